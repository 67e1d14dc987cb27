"""Writes the decoder as an ONNX graph over a paged KV pool; weights may be stored as 8-bit blocks.

Shapes: B sequences, T new tokens each, S = NB * block cached slots each, V vocabulary, d width, H heads of D.
Keys are cached already rotated, so a slot means the same however far the window has moved on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from gateway.inference.training.unfolded import unfolded

Weights = Mapping[str, NDArray[np.float32]]

OPSET = 24
IR_VERSION = 11
_MICROSOFT = "com.microsoft"
_EPSILON = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Size of a decoder."""

    vocabulary: int
    layers: int
    heads: int
    head_dim: int
    hidden: int
    window: int  # a token sees itself and the window - 1 tokens before it
    block: int  # slots a page

    @property
    def width(self) -> int:
        """Of the residual stream."""
        return self.heads * self.head_dim


def write_graph(
    path: Path, shape: Shape, weights: Weights, quantized_block: int | None, *, unfold: bool = False
) -> None:
    """Write `path`; matrices in 8-bit blocks of `quantized_block`, or float32.

    Blocks are multiplied by MatMulNBits, or with `unfold` as the float32 that a runtime makes of them.
    """
    writer = Writer(weights, quantized_block, unfold=unfold)
    graph = _decoder(writer, shape)
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(_MICROSOFT, 1)],
        ir_version=IR_VERSION,
        producer_name="o3-gateway",
    )
    path.write_bytes(model.SerializeToString(deterministic=True))


class Writer:
    """Collects nodes and initializers."""

    def __init__(self, weights: Weights, quantized_block: int | None, *, unfold: bool = False) -> None:
        self._weights, self._quantized_block, self._unfold = weights, quantized_block, unfold
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._count = 0

    def node(
        self, kind: str, *inputs: str, out: str = "", domain: str = "", **attributes: float | str
    ) -> str:
        """Add a node with one output; its name."""
        self._count += 1
        name = out or f"{kind.lower()}_{self._count}"
        made = helper.make_node(kind, list(inputs), [name], name=name, domain=domain)
        made.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self.nodes.append(made)
        return name

    def constant(self, name: str, value: NDArray[np.generic]) -> str:
        """Add an initializer; its name."""
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def integers(self, *values: int) -> str:
        """A vector of int64."""
        self._count += 1
        return self.constant(f"integers_{self._count}", np.array(values, dtype=np.int64))

    def scalar(self, value: int) -> str:
        """A scalar of int64."""
        self._count += 1
        return self.constant(f"integer_{self._count}", np.array(value, dtype=np.int64))

    def weight(self, name: str) -> str:
        """A weight kept as float32."""
        return self.constant(name, self._weights[name])

    def matmul(self, x: str, name: str, by: float = 1.0) -> str:
        """`x @ weights[name]` times `by`, the weight `[K, N]`; the graph multiplies once only."""
        weight = self._weights[name]
        if self._quantized_block is None:
            return self.node("MatMul", x, self.constant(name, weight * weight.dtype.type(by)))
        packed, scales = quantize_8bit(weight, self._quantized_block)
        scales = scales * np.float32(by)
        if self._unfold:
            rows, columns = weight.shape
            found = unfolded(name, packed, scales, (rows, columns))
            self.nodes.extend(found.nodes)
            for constant, value in found.constants.items():
                self.constant(constant, value)
            return self.node("MatMul", x, found.weight)
        return self.node(
            "MatMulNBits",
            x,
            self.constant(f"{name}_q", packed),
            self.constant(f"{name}_scales", scales),
            domain=_MICROSOFT,
            K=weight.shape[0],
            N=weight.shape[1],
            bits=8,
            block_size=self._quantized_block,
        )


def quantize_8bit(weight: NDArray[np.float32], block: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """`weight` `[K, N]` for MatMulNBits: bytes `[N, K/block, block]`, 128 is 0; scales `[N, blocks]`."""
    rows, columns = weight.shape
    if rows % block:
        message = f"{rows} rows do not divide into blocks of {block}"
        raise ValueError(message)
    blocks = weight.T.reshape(columns, rows // block, block)
    scales = np.abs(blocks).max(axis=2) / 127.0
    safe = np.where(scales == 0, 1.0, scales)
    packed = np.clip(np.rint(blocks / safe[:, :, None]) + 128, 1, 255).astype(np.uint8)
    return packed, scales.astype(np.float32)


def _decoder(w: Writer, shape: Shape) -> onnx.GraphProto:
    ints, floats = TensorProto.INT64, TensorProto.FLOAT
    half = shape.head_dim // 2
    inputs = [
        helper.make_tensor_value_info("tokens", ints, ["B", "T"]),
        helper.make_tensor_value_info("fractions", floats, ["B", "T"]),
        helper.make_tensor_value_info("cos", floats, ["B", "T", half]),
        helper.make_tensor_value_info("sin", floats, ["B", "T", half]),
        helper.make_tensor_value_info("query_positions", ints, ["B", "T"]),
        helper.make_tensor_value_info("first_positions", ints, ["B"]),
        helper.make_tensor_value_info("write_slots", ints, ["W", 1]),
        helper.make_tensor_value_info("block_table", ints, ["B", "NB"]),
    ]
    outputs = [helper.make_tensor_value_info("logits", floats, ["B", "T", shape.vocabulary])]
    x = _embedding(w)
    cache = _addressing(w, shape)
    for layer in range(shape.layers):
        for kind in ("keys", "values"):
            name = f"{kind}_{layer}"
            inputs.append(helper.make_tensor_value_info(name, floats, ["slots", shape.width]))
            outputs.append(helper.make_tensor_value_info(f"{name}_out", floats, ["slots", shape.width]))
        x = _attention(w, shape, layer, x, cache)
        x = _feed_forward(w, layer, x)
    x = w.node("RMSNormalization", x, w.weight("norm"), axis=-1, epsilon=_EPSILON)
    w.node("Identity", w.matmul(x, "head"), out="logits")
    return helper.make_graph(w.nodes, "decoder", inputs, outputs, initializer=w.initializers)


def _embedding(w: Writer) -> str:
    """Token embedding, moved towards the next knot's by the fraction of the way there."""
    table = w.weight("embedding")
    here = w.node("Gather", table, "tokens")
    there = w.node("Gather", table, w.node("Add", "tokens", w.scalar(1)))
    step = w.node("Mul", w.node("Sub", there, here), w.node("Unsqueeze", "fractions", w.integers(2)))
    return w.node("Add", here, step)


def _addressing(w: Writer, shape: Shape) -> tuple[str, str, str]:
    """Slots to write `[B, T, 1]` and to gather `[B, S]`; which of these each query may see `[B, 1, T, S]`."""
    within = w.constant("within_block", np.arange(shape.block, dtype=np.int64).reshape(1, 1, -1))
    starts = w.node("Unsqueeze", w.node("Mul", "block_table", w.scalar(shape.block)), w.integers(2))
    slots = w.node("Reshape", w.node("Add", starts, within), w.integers(0, -1))
    count = w.node("Squeeze", w.node("Shape", slots, start=1, end=2), w.integers(0))
    offsets = w.node("Range", w.scalar(0), count, w.scalar(1))
    keys = w.node("Add", w.node("Unsqueeze", "first_positions", w.integers(1, 2, 3)), offsets)
    distance = w.node("Sub", w.node("Unsqueeze", "query_positions", w.integers(1, 3)), keys)
    causal = w.node("GreaterOrEqual", distance, w.scalar(0))
    banded = w.node("Less", distance, w.scalar(shape.window))
    new = w.node("Shape", w.node("Unsqueeze", "tokens", w.integers(2)))
    return w.node("Reshape", "write_slots", new), slots, w.node("And", causal, banded)


def _attention(w: Writer, shape: Shape, layer: int, x: str, cache: tuple[str, str, str]) -> str:
    """Queries come scaled from their matrix: the runtime's vector kernel takes products by 1 only."""
    heads, (written, slots, allowed) = shape.heads, cache
    normed = w.node("RMSNormalization", x, w.weight(f"norm_attention_{layer}"), axis=-1, epsilon=_EPSILON)
    scales = {"wq": shape.head_dim**-0.5, "wk": 1.0, "wv": 1.0}
    projected = {kind: w.matmul(normed, f"{kind}_{layer}", by) for kind, by in scales.items()}
    # rotary positions by halves, in one operator: written out they are a third of all nodes of a step
    query, key = (
        w.node("RotaryEmbedding", projected[kind], "cos", "sin", num_heads=heads) for kind in ("wq", "wk")
    )
    cached = []
    for kind, new in (("keys", key), ("values", projected["wv"])):
        pool = w.node("ScatterND", f"{kind}_{layer}", written, new, out=f"{kind}_{layer}_out")
        cached.append(w.node("Gather", pool, slots))  # [B, S, d]
    mixed = w.node("Attention", query, *cached, allowed, q_num_heads=heads, kv_num_heads=heads, scale=1.0)
    return w.node("Add", x, w.matmul(mixed, f"wo_{layer}"))


def _feed_forward(w: Writer, layer: int, x: str) -> str:
    normed = w.node("RMSNormalization", x, w.weight(f"norm_feed_{layer}"), axis=-1, epsilon=_EPSILON)
    up = w.matmul(normed, f"up_{layer}")
    active = w.node("Mul", up, w.node("Sigmoid", up))
    return w.node("Add", x, w.matmul(active, f"down_{layer}"))
