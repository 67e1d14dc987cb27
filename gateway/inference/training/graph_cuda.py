"""Writes the decoder for CUDA: float16, rows packed one after another, keys and values by `PagedAttention`.

Shapes: N tokens of B sequences, P pages of `block` slots, V vocabulary, d width, H heads of D. Only operators
that have a CUDA kernel for float16, so that no copy between devices stands in the graph and decoding can be
captured.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from gateway.inference.training.graph import Shape, Weights, Writer

OPSET = 21
IR_VERSION = 10
_MICROSOFT = "com.microsoft"
_EPSILON = 1e-6


def write_cuda_graph(path: Path, shape: Shape, weights: Weights, *, banded: bool) -> None:
    """Write `path`; with `banded` a token sees itself and the `shape.window - 1` before it, else all."""
    w = Writer({name: value.astype(np.float16) for name, value in weights.items()}, None)
    model = helper.make_model(
        _decoder(w, shape, banded=banded),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(_MICROSOFT, 1)],
        ir_version=IR_VERSION,
        producer_name="o3-gateway",
    )
    path.write_bytes(model.SerializeToString(deterministic=True))


def _decoder(w: Writer, shape: Shape, *, banded: bool) -> onnx.GraphProto:
    half, longs, ints, halves = (
        shape.head_dim // 2,
        TensorProto.INT64,
        TensorProto.INT32,
        TensorProto.FLOAT16,
    )
    inputs = [
        helper.make_tensor_value_info("tokens", longs, ["N"]),
        helper.make_tensor_value_info("fractions", halves, ["N"]),
        helper.make_tensor_value_info("cos", halves, ["N", half]),
        helper.make_tensor_value_info("sin", halves, ["N", half]),
        helper.make_tensor_value_info("last_tokens", longs, ["B"]),
        helper.make_tensor_value_info("cumulative_lengths", ints, ["B_and_1"]),
        helper.make_tensor_value_info("past_lengths", ints, ["B"]),
        helper.make_tensor_value_info("block_table", ints, ["B", "NB"]),
        helper.make_tensor_value_info("slots", ints, ["N"]),
        helper.make_tensor_value_info("bounds", ints, [3]),
    ]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["B", shape.vocabulary])]
    x = _embedding(w)
    rotary = (w.node("Unsqueeze", "cos", w.integers(1)), w.node("Unsqueeze", "sin", w.integers(1)))
    for layer in range(shape.layers):
        for kind in ("keys", "values"):
            pool: list[str | int | None] = ["P", shape.block, shape.heads, shape.head_dim]
            inputs.append(helper.make_tensor_value_info(f"{kind}_{layer}", halves, pool))
            outputs.append(helper.make_tensor_value_info(f"{kind}_{layer}_out", halves, pool))
        x = _attention(w, shape, layer, x, rotary, banded=banded)
        x = _feed_forward(w, layer, x)
    answering = w.node("Gather", _normed(w, x, "norm"), "last_tokens", axis=0)
    w.node("Cast", w.matmul(answering, "head"), out="logits", to=TensorProto.FLOAT)
    return helper.make_graph(w.nodes, "decoder", inputs, outputs, initializer=w.initializers)


def _embedding(w: Writer) -> str:
    """Token embedding, moved towards the next knot's by the fraction of the way there."""
    table = w.weight("embedding")
    here = w.node("Gather", table, "tokens")
    there = w.node("Gather", table, w.node("Add", "tokens", w.scalar(1)))
    step = w.node("Mul", w.node("Sub", there, here), w.node("Unsqueeze", "fractions", w.integers(1)))
    return w.node("Add", here, step)


def _normed(w: Writer, x: str, weight: str) -> str:
    """Root mean square norm, summed in float32."""
    wide = w.node("Cast", x, to=TensorProto.FLOAT)
    mean = w.node("ReduceMean", w.node("Mul", wide, wide), w.integers(-1), keepdims=1)
    epsilon = w.constant(f"{weight}_epsilon", np.array(_EPSILON, dtype=np.float32))
    scaled = w.node("Div", wide, w.node("Sqrt", w.node("Add", mean, epsilon)))
    return w.node("Mul", w.node("Cast", scaled, to=TensorProto.FLOAT16), w.weight(weight))


def _attention(w: Writer, shape: Shape, layer: int, x: str, rotary: tuple[str, str], *, banded: bool) -> str:
    normed = _normed(w, x, f"norm_attention_{layer}")
    query, key = (_rotated(w, shape, w.matmul(normed, f"{kind}_{layer}"), rotary) for kind in ("wq", "wk"))
    pools = (f"keys_{layer}", f"values_{layer}")
    absent = ("", "")  # the operator's own rotation: here keys and queries come rotated
    mixed = w.node(
        "PagedAttention",
        query,
        key,
        w.matmul(normed, f"wv_{layer}"),
        *pools,
        "cumulative_lengths",
        "past_lengths",
        "block_table",
        *absent,
        "slots",
        *("",) * 5,  # sinks, norms of heads, scales of quantized caches
        "bounds",
        domain=_MICROSOFT,
        num_heads=shape.heads,
        kv_num_heads=shape.heads,
        local_window_size=shape.window if banded else -1,
    )
    w.nodes[-1].output.extend(f"{pool}_out" for pool in pools)
    return w.node("Add", x, w.matmul(mixed, f"wo_{layer}"))


def _rotated(w: Writer, shape: Shape, x: str, rotary: tuple[str, str]) -> str:
    """Rotary positions, halves convention, on `[N, d]`."""
    cos, sin = rotary
    first = w.node(
        "Split", w.node("Reshape", x, w.integers(0, shape.heads, shape.head_dim)), axis=-1, num_outputs=2
    )
    second = f"{first}_second"
    w.nodes[-1].output.append(second)
    turned = w.node(
        "Concat",
        w.node("Sub", w.node("Mul", first, cos), w.node("Mul", second, sin)),
        w.node("Add", w.node("Mul", second, cos), w.node("Mul", first, sin)),
        axis=-1,
    )
    return w.node("Reshape", turned, w.integers(0, shape.width))


def _feed_forward(w: Writer, layer: int, x: str) -> str:
    up = w.matmul(_normed(w, x, f"norm_feed_{layer}"), f"up_{layer}")
    return w.node("Add", x, w.matmul(w.node("Mul", up, w.node("Sigmoid", up)), f"down_{layer}"))
