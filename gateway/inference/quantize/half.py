"""A graph in float16 or bfloat16; operators that cannot run so stay in float32 between conversions.

Inputs and `logits` keep their types, keys and values too: how those are kept is another pass's.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from gateway.inference.quantize.graphs import FLOAT, MICROSOFT, Graph, type_name

HALVES = {"float16": int(TensorProto.FLOAT16), "bfloat16": int(TensorProto.BFLOAT16)}


def to_half(graph: Graph, half: int, kept: AbstractSet[str]) -> list[str]:
    """Run every operator that is not in `kept` in `half`; the operators that do stay in float32, by name.

    Weights of operators that stay are stored in `half` as well where they are matrices: what is multiplied is
    the same everywhere, whichever operators a machine has.
    """
    return _Conversion(graph, half, kept).run()


class _Conversion:
    def __init__(self, graph: Graph, half: int, kept: AbstractSet[str]) -> None:
        self._graph, self._half, self._kept = graph, half, kept
        self._before = graph.types()
        self._types = dict(self._before)
        self._renamed: dict[str, str] = {}  # values under a new name
        self._as: dict[tuple[str, int], str] = {}  # a value in another type, by name
        self._nodes: list[onnx.NodeProto] = []
        self._given_back = {output.name for output in graph.model.graph.output}
        pools = [value.name for value in graph.model.graph.input if f"{value.name}_out" in self._given_back]
        self._pools = {*pools, *(f"{pool}_out" for pool in pools)}
        self._of_pools = tuple(f"{pool}_" for pool in pools)

    def run(self) -> list[str]:
        stayed: set[str] = set()
        for source in self._graph.nodes:
            if source.op_type == "Cast":
                self._conversion(source)
            elif self._of_a_pool(source) or source.domain == MICROSOFT or source.op_type in self._kept:
                if self._convert(source, FLOAT) and not self._of_a_pool(source) and not source.domain:
                    stayed.add(source.op_type)
            else:
                self._convert(source, self._half)
        self._graph.set_nodes(self._nodes)
        del self._graph.model.graph.value_info[:]
        self._graph.sweep()
        return sorted(stayed)

    def _of_a_pool(self, node: onnx.NodeProto) -> bool:
        return bool(self._pools & {*node.input, *node.output}) or node.name.startswith(self._of_pools)

    def _convert(self, source: onnx.NodeProto, wanted: int) -> bool:
        """Add the node with its float32 values in `wanted`; False where it has none."""
        node = onnx.NodeProto()
        node.CopyFrom(source)
        back = []
        for at, name in enumerate(source.input):
            node.input[at] = self._renamed.get(name, name)
            if name and self._is_float(name):
                node.input[at] = self._in(node.input[at], wanted)
        for at, name in enumerate(source.output):
            if self._is_float(name):
                if name in self._given_back and wanted != FLOAT:
                    node.output[at] = self._graph.new_name(name)
                    back.append((node.output[at], name))
                self._types[node.output[at]] = wanted
        self._nodes.append(node)
        for made, name in back:
            self._cast(made, name, FLOAT)
        return any(name and self._is_float(name) for name in (*source.input, *source.output))

    def _conversion(self, source: onnx.NodeProto) -> None:
        """A conversion that stands in the graph: not needed where its value has that type already."""
        name = self._renamed.get(source.input[0], source.input[0])
        to = next(attribute.i for attribute in source.attribute if attribute.name == "to")
        here = self._types.get(name, FLOAT)
        back_to_float = to == FLOAT and here == self._half
        if (back_to_float or here == to) and source.output[0] not in self._given_back:
            self._renamed[source.output[0]] = name
            return
        self._cast(name, source.output[0], to)

    def _is_float(self, name: str) -> bool:
        return self._before.get(name, FLOAT) == FLOAT

    def _in(self, name: str, element: int) -> str:
        """The value's name in a type; a conversion is made once."""
        tensor = self._graph.initializers.get(name)
        if tensor is not None and tensor.data_type == FLOAT:
            return self._weight(name, element)
        if self._types.get(name, FLOAT) == element:
            return name
        if (name, element) not in self._as:
            made = self._graph.new_name(name)
            self._cast(name, made, element)
            self._as[name, element] = made
        return self._as[name, element]

    def _weight(self, name: str, element: int) -> str:
        if element == FLOAT and len(self._graph.initializers[name].dims) < _MATRIX:
            return name
        stored = f"{name}_{type_name(self._half)}"
        if stored not in self._graph.initializers:
            values = self._graph.value(name).astype(np.float32)
            self._graph.add_tensor(_tensor(stored, values, self._half))
            self._types[stored] = self._half
        if element == self._half:
            return stored
        if (stored, FLOAT) not in self._as:
            self._as[stored, FLOAT] = self._graph.new_name(name)
            self._cast(stored, self._as[stored, FLOAT], FLOAT)
        return self._as[stored, FLOAT]

    def _cast(self, name: str, made: str, element: int) -> None:
        node = helper.make_node("Cast", [name], [made], name=f"{made}_cast", to=element)
        self._nodes.append(node)
        self._types[made] = element


_MATRIX = 2


def _tensor(name: str, values: NDArray[np.float32], half: int) -> onnx.TensorProto:
    if half == HALVES["float16"]:
        raw = values.astype(np.float16).tobytes()
    else:  # the upper half of float32's bits, rounded to the nearest, to the even one in the middle
        bits = values.view(np.uint32)
        raw = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).tobytes()
    return helper.make_tensor(name, half, list(values.shape), raw, raw=True)
