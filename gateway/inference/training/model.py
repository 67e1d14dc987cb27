"""The decoder in torch, for training only: the same arithmetic as `graph.py`, one shot, banded."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from torch import Tensor, nn
from torch.nn import functional

from gateway.inference.bundle.manifest import Manifest
from gateway.inference.training.graph import Shape

_EPSILON = 1e-6


class _Layer(nn.Module):  # type: ignore[misc]  # torch is untyped where it is not installed
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.heads, self.head_dim = shape.heads, shape.head_dim
        self.norm_attention = nn.RMSNorm(width, eps=_EPSILON)
        self.norm_feed = nn.RMSNorm(width, eps=_EPSILON)
        self.wq = nn.Linear(width, width, bias=False)
        self.wk = nn.Linear(width, width, bias=False)
        self.wv = nn.Linear(width, width, bias=False)
        self.wo = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, allowed: Tensor) -> Tensor:
        batch, length, width = x.shape
        normed = self.norm_attention(x)
        query, key, value = (
            projection(normed).view(batch, length, self.heads, self.head_dim)
            for projection in (self.wq, self.wk, self.wv)
        )
        query, key = _rotated(query, cos, sin), _rotated(key, cos, sin)
        mixed = functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), attn_mask=allowed
        )
        x = x + self.wo(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.silu(self.up(self.norm_feed(x))))


class Decoder(nn.Module):  # type: ignore[misc]  # as above
    """Logits `[B, T, vocabulary]` of `tokens` and `fractions` `[B, T]`; every row starts at position 0."""

    def __init__(self, shape: Shape, rotary_base: float) -> None:
        super().__init__()
        self.shape, self.rotary_base = shape, rotary_base
        # One row more than tokens: the last knot's next knot, never weighted.
        self.embedding = nn.Embedding(shape.vocabulary + 1, shape.width)
        self.layers = nn.ModuleList(_Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=_EPSILON)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, tokens: Tensor, fractions: Tensor) -> Tensor:
        """See the class."""
        length = tokens.shape[1]
        here, there = self.embedding(tokens), self.embedding(tokens + 1)
        x = here + (there - here) * fractions[:, :, None]
        positions = torch.arange(length)
        half = self.shape.head_dim // 2
        frequencies = self.rotary_base ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = (positions[:, None] * frequencies).float()[:, None, :]
        distance = positions[:, None] - positions[None, :]
        allowed = (distance >= 0) & (distance < self.shape.window)
        for layer in self.layers:
            x = layer(x, angles.cos(), angles.sin(), allowed)
        logits: Tensor = self.head(self.norm(x))
        return logits


def start_smooth(model: Decoder, manifest: Manifest) -> None:
    """Begin with neighbouring knots alike, in embedding and head: values are ordered, words are not."""
    generator = torch.Generator().manual_seed(0)
    width = model.shape.width
    with torch.no_grad():
        nn.init.normal_(model.embedding.weight, std=0.5, generator=generator)
        for spec in (*manifest.inputs, *manifest.outputs):
            at = torch.linspace(0.0, 1.0, len(spec.knots))
            tokens = slice(spec.first_token, spec.first_token + len(spec.knots))
            for table, size in ((model.embedding.weight, 0.5), (model.head.weight, 0.1)):
                rates = 2.0 * torch.randn(width, generator=generator)
                phases = 2.0 * math.pi * torch.rand(width, generator=generator)
                table[tokens] = size * math.sqrt(2.0) * torch.cos(rates * at[:, None] * math.pi + phases)


def weights_of(model: Decoder) -> dict[str, NDArray[np.float32]]:
    """The weights by the names `graph.py` uses; matrices `[in, out]`."""
    named: dict[str, NDArray[np.float32]] = {}
    for name, tensor in model.state_dict().items():
        value = tensor.detach().numpy().astype(np.float32)
        parts = name.split(".")
        short = parts[0] if parts[0] != "layers" else f"{parts[2]}_{parts[1]}"
        named[short] = value.T.copy() if value.ndim == 2 and short != "embedding" else value  # noqa: PLR2004 - matrices
    return named


def load_weights(model: Decoder, reference: Path) -> None:
    """Go on from the float32 graph of another bundle with the same vocabulary: `weights_of` undone."""
    stored = {
        tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(str(reference)).graph.initializer
    }
    state = {}
    for name, tensor in model.state_dict().items():
        parts = name.split(".")
        short = parts[0] if parts[0] != "layers" else f"{parts[2]}_{parts[1]}"
        value = stored[short]
        state[name] = torch.from_numpy(
            (value.T if value.ndim == 2 and short != "embedding" else value).copy()  # noqa: PLR2004 - matrices
        ).to(tensor.dtype)
    model.load_state_dict(state)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
