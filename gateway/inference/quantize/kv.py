"""Keys and values in float16, or in 8 bits with a float16 scale for each head of each token.

A scale for a whole page would depend on what else stands in it: the answer would change with the chunks a
history came in. One for each head of each token is settled when the token is written and never changes, so
reuse, forks, pages in any order and off-loading stay exact.
"""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from gateway.core.errors import InferenceError
from gateway.inference.bundle.made import KvType
from gateway.inference.bundle.manifest import Architecture
from gateway.inference.quantize.graphs import FLOAT, Graph

_MOST = 127.0
_LEAST_SCALE = 1e-6  # float16 still holds it


def keep_kv(graph: Graph, architecture: Architecture, kv: KvType) -> None:
    """Change how a graph over a paged pool keeps keys and values; raises `InferenceError` for another."""
    if kv == "float32":
        return
    pools = [name for layer in range(architecture.layers) for name in (f"keys_{layer}", f"values_{layer}")]
    inputs = {value.name for value in graph.model.graph.input}
    if not set(pools) <= inputs:
        raise InferenceError(
            f"keys and values in {kv} need a graph over a paged pool (backend `paged_graph`): "
            "leave --kv away for this model"
        )
    for pool in pools:
        _Pool(graph, architecture, pool).change(kv)
    del graph.model.graph.value_info[:]


class _Pool:
    """One pool: the ScatterND that writes into it, the Gathers that read from it."""

    def __init__(self, graph: Graph, architecture: Architecture, pool: str) -> None:
        self._graph, self._architecture, self._pool = graph, architecture, pool
        self._nodes: list[onnx.NodeProto] = []

    def change(self, kv: KvType) -> None:
        graph, pool = self._graph, self._pool
        back = f"{pool}_out"
        if not any(node.op_type == "ScatterND" and pool in node.input for node in graph.nodes):
            raise InferenceError(f"nothing writes to `{pool}` by ScatterND: export the graph again")
        for node in graph.nodes:
            if node.op_type == "ScatterND" and pool in node.input:
                self._write(node, kv)
            elif node.op_type == "Gather" and node.input[0] == back:
                self._read(node, kv)
            else:
                self._nodes.append(node)
        graph.set_nodes(self._nodes)
        element = {"float16": TensorProto.FLOAT16, "int8": TensorProto.INT8}[kv]
        width = self._architecture.heads * self._architecture.head_dim
        _retype(graph, pool, element, width)
        if kv == "int8":
            _add_pool(graph, f"{pool}_scales", self._architecture.heads)

    def _write(self, node: onnx.NodeProto, kv: KvType) -> None:
        new, slots = node.input[2], node.input[1]
        if kv == "float16":
            half = self._node("Cast", new, to=TensorProto.FLOAT16)
            self._scatter(self._pool, slots, half)
            return
        heads, size = self._architecture.heads, self._architecture.head_dim
        by_head = self._node("Reshape", new, self._shape(-1, heads, size))
        peak = self._node("ReduceMax", self._node("Abs", by_head), self._shape(2), keepdims=1)
        wanted = self._node("Max", self._node("Div", peak, self._number(_MOST)), self._number(_LEAST_SCALE))
        scale = self._node("Cast", wanted, to=TensorProto.FLOAT16)
        known = self._node("Cast", scale, to=FLOAT)  # what a reader will multiply by
        rounded = self._node("Round", self._node("Div", by_head, known))
        bounded = self._node("Clip", rounded, self._number(-_MOST), self._number(_MOST))
        numbers = self._node("Cast", bounded, to=TensorProto.INT8)
        self._scatter(self._pool, slots, self._node("Reshape", numbers, self._shape(-1, heads * size)))
        scales = self._node("Reshape", scale, self._shape(-1, heads))
        self._scatter(f"{self._pool}_scales", slots, scales)

    def _read(self, node: onnx.NodeProto, kv: KvType) -> None:
        table = node.input[1]
        found = self._node("Gather", f"{self._pool}_out", table)
        values = self._node("Cast", found, to=FLOAT)
        if kv == "float16":
            self._named("Identity", node.output[0], values)
            return
        heads, size = self._architecture.heads, self._architecture.head_dim
        scale = self._node("Cast", self._node("Gather", f"{self._pool}_scales_out", table), to=FLOAT)
        by_head = self._node("Reshape", values, self._shape(0, 0, heads, size))
        whole = self._node("Mul", by_head, self._node("Unsqueeze", scale, self._shape(3)))
        self._named("Reshape", node.output[0], whole, self._shape(0, 0, heads * size))

    def _scatter(self, pool: str, slots: str, new: str) -> None:
        self._named("ScatterND", f"{pool}_out", pool, slots, new)

    def _node(self, kind: str, *inputs: str, **attributes: float) -> str:
        return self._named(kind, self._graph.new_name(f"{self._pool}_{kind.lower()}"), *inputs, **attributes)

    def _named(self, kind: str, made: str, *inputs: str, **attributes: float) -> str:
        node = helper.make_node(kind, list(inputs), [made], name=made)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self._nodes.append(node)
        return made

    def _shape(self, *values: int) -> str:
        return self._once("kv_shape_" + "_".join(map(str, values)), np.array(values, dtype=np.int64))

    def _number(self, value: float) -> str:
        return self._once(f"kv_number_{value:g}", np.array(value, dtype=np.float32))

    def _once(self, name: str, value: NDArray[np.generic]) -> str:
        return name if name in self._graph.initializers else self._graph.add(name, value)


def _retype(graph: Graph, pool: str, element: int, width: int) -> None:
    inner = graph.model.graph
    for values, name in ((inner.input, pool), (inner.output, f"{pool}_out")):
        for value in values:
            if value.name == name:
                value.CopyFrom(helper.make_tensor_value_info(name, element, ["slots", width]))


def _add_pool(graph: Graph, name: str, width: int) -> None:
    inner, half = graph.model.graph, TensorProto.FLOAT16
    inner.input.append(helper.make_tensor_value_info(name, half, ["slots", width]))
    inner.output.append(helper.make_tensor_value_info(f"{name}_out", half, ["slots", width]))
