"""Decoders of random weights: they say nothing about plants, only about exactness and speed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from gateway.core.tag import TagDefinition, TagId, TagKind
from gateway.inference.bundle.files import BUNDLE_FILE, MODEL_FILE, FileSpec
from gateway.inference.bundle.manifest import (
    Architecture,
    Bundle,
    Manifest,
    OutputSpec,
    Quantization,
    TagSpec,
    Window,
    load_bundle,
)
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.training.graph import Shape, write_graph
from gateway.inference.training.graph_cuda import write_cuda_graph

BLOCK = 16
_BASE = 1000.0


@dataclass(frozen=True, slots=True)
class Size:
    """A class of decoders; `knots` of each tag follow from its vocabulary."""

    name: str
    layers: int
    heads: int
    head_dim: int
    hidden: int
    vocabulary: int

    def shape(self, window: int) -> Shape:
        """With a band of `window` tokens."""
        return Shape(
            vocabulary=self.vocabulary,
            layers=self.layers,
            heads=self.heads,
            head_dim=self.head_dim,
            hidden=self.hidden,
            window=window,
            block=BLOCK,
        )

    @property
    def architecture(self) -> Architecture:
        return Architecture(
            layers=self.layers,
            heads=self.heads,
            head_dim=self.head_dim,
            rotary_base=_BASE,
            vocabulary=self.vocabulary,
            begin_token=0,
        )


SMALL = Size("small", 4, 4, 32, 512, 600)  # 0.94 M parameters
TINY = Size("tiny", 2, 4, 24, 256, 300)  # 0.23 M
MINUTE = Size("minute", 2, 2, 16, 64, 61)  # for tests that run often


def random_weights(size: Size, seed: int) -> dict[str, NDArray[np.float32]]:
    """By the names the graph's writer uses; scaled so that every layer says something."""
    rng, width = np.random.default_rng(seed), size.heads * size.head_dim

    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        drawn: NDArray[np.float32] = rng.standard_normal((rows, columns), dtype=np.float32)
        return drawn / np.float32(rows**0.5)

    weights = {
        "embedding": rng.standard_normal((size.vocabulary + 1, width)).astype(np.float32),
        "norm": np.ones(width, dtype=np.float32),
        "head": matrix(width, size.vocabulary),
    }
    for layer in range(size.layers):
        weights |= {f"{kind}_{layer}": np.ones(width, np.float32) for kind in ("norm_attention", "norm_feed")}
        weights |= {f"{kind}_{layer}": matrix(width, width) for kind in ("wq", "wk", "wv", "wo")}
        weights[f"up_{layer}"] = matrix(width, size.hidden)
        weights[f"down_{layer}"] = matrix(size.hidden, width)
    return weights


def parameters(size: Size) -> int:
    return sum(weight.size for weight in random_weights(size, 0).values())


def write_decoder(
    folder: Path,
    size: Size,
    *,
    inputs: int,
    outputs: int,
    window: Window,
    quantized: int | None = 32,
    seed: int = 1,
) -> Bundle:
    """A bundle in `folder` that loads like any other; matrices of 8 bit unless `quantized` is None."""
    folder.mkdir(parents=True, exist_ok=True)
    band = window.length if window.mode == "swa" else 1 << 30  # a model that knows no band
    write_graph(folder / MODEL_FILE, size.shape(band), random_weights(size, seed), quantized)
    content = (folder / MODEL_FILE).read_bytes()
    count = (size.vocabulary - 1) // (inputs + outputs)
    knots = tuple(f"{100 * at / (count - 1):.4f}" for at in range(count))
    tags = [
        {"tag": name, "unit": "", "knots": knots, "first_token": 1 + at * count, "trained": ("0", "100")}
        for at, name in enumerate(tag_names(inputs, outputs))
    ]
    manifest = Manifest(
        format=1,
        id=size.name,
        revision=1,
        description="Random weights.",
        cycle_s="1",
        inputs=tuple(msgspec.convert(tag, TagSpec) for tag in tags[:inputs]),
        outputs=tuple(
            msgspec.convert(tag | {"decoding": "expectation"}, OutputSpec) for tag in tags[inputs:]
        ),
        window=window,
        block=BLOCK,
        architecture=size.architecture,
        quantization=(
            Quantization(kind="none", bits=32, block=0)
            if quantized is None
            else Quantization(kind="matmul_nbits", bits=8, block=quantized)
        ),
        files={MODEL_FILE: FileSpec(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))},
    )
    (folder / BUNDLE_FILE).write_bytes(msgspec.json.encode(manifest))
    return load_bundle(folder)


def for_cuda(bundle: Bundle, folder: Path, size: Size, seed: int = 1) -> Bundle:
    """The same weights and words in `folder`, in float16 and over `PagedAttention`."""
    folder.mkdir(parents=True, exist_ok=True)
    window = bundle.manifest.window
    write_cuda_graph(
        folder / MODEL_FILE,
        size.shape(window.length),
        random_weights(size, seed),
        banded=window.mode == "swa",
    )
    content = (folder / MODEL_FILE).read_bytes()
    manifest = msgspec.structs.replace(
        bundle.manifest,
        backend="paged_attention",
        quantization=Quantization(kind="float16", bits=16, block=0, kv="float16"),
        files={MODEL_FILE: FileSpec(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))},
    )
    (folder / BUNDLE_FILE).write_bytes(msgspec.json.encode(manifest))
    return load_bundle(folder)


def tag_names(inputs: int, outputs: int) -> list[str]:
    return [f"X.IN{at}" for at in range(inputs)] + [f"X.OUT{at}" for at in range(outputs)]


def definitions(bundle: Bundle) -> Mapping[TagId, TagDefinition]:
    """Every tag in per cent, a tenth a count."""
    return {
        TagId(spec.tag): TagDefinition(
            id=TagId(spec.tag),
            kind=TagKind.REAL,
            unit="",
            eu_range=(Fraction(0), Fraction(100)),
            raw_range=(0, 1000),
            scale=Fraction(1, 10),
        )
        for spec in (*bundle.manifest.inputs, *bundle.manifest.outputs)
    }


def recomputed(
    size: Size, weights: Mapping[str, NDArray[np.float32]], tokens: Sequence[Token], window: int
) -> NDArray[np.float64]:
    """Logits `[T, vocabulary]` of one banded pass in float64, without pages, chunks or any runtime."""
    table = weights["embedding"].astype(np.float64)
    ids = np.array([token.id for token in tokens])
    parts = np.array([token.fraction for token in tokens], dtype=np.float32).astype(np.float64)
    x = table[ids] + (table[ids + 1] - table[ids]) * parts[:, None]
    positions = np.arange(len(ids))
    half = size.head_dim // 2
    angles = positions[:, None, None] * _BASE ** (-np.arange(half) / half)
    distance = positions[:, None] - positions
    hidden = np.where((distance >= 0) & (distance < window), 0.0, -np.inf)
    for layer in range(size.layers):
        normed = _normed(x)
        query, key, value = (
            (normed @ weights[f"{kind}_{layer}"]).reshape(len(ids), size.heads, size.head_dim)
            for kind in ("wq", "wk", "wv")
        )
        scores = np.einsum("qhd,khd->hqk", _turned(query, angles), _turned(key, angles))
        scores = scores / np.sqrt(size.head_dim) + hidden
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", shares, value).reshape(len(ids), -1)
        x = x + mixed @ weights[f"wo_{layer}"]
        up = _normed(x) @ weights[f"up_{layer}"]
        x = x + (up / (1.0 + np.exp(-up))) @ weights[f"down_{layer}"]
    logits: NDArray[np.float64] = _normed(x) @ weights["head"]
    return logits


def _normed(x: NDArray[np.float64]) -> NDArray[np.float64]:
    normed: NDArray[np.float64] = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6)
    return normed


def _turned(x: NDArray[np.float64], angles: NDArray[np.float64]) -> NDArray[np.float64]:
    first, second = np.split(x, 2, axis=-1)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
