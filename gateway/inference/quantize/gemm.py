"""Products an exporter wrote as Gemm, as MatMul and Add: the form in which matrices are kept in blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import NodeProto, helper

from gateway.inference.quantize.graphs import FLOAT, Graph


def as_matmuls(graph: Graph) -> int:
    """Turn every Gemm of a value with a matrix of weights into MatMul, and Add for its bias; how many."""
    nodes: list[NodeProto] = []
    made = 0
    wanted = {node.output[0] for node in gemms(graph)}
    for node in graph.nodes:
        if node.output[0] not in wanted:
            nodes.append(node)
            continue
        made += 1
        weight = node.input[1]
        if _attributes(node).get("transB", 0):
            turned = f"{weight}_turned"
            if turned not in graph.initializers:
                graph.add(turned, np.asarray(graph.value(weight)).T)
            weight = turned
        bias = list(node.input[2:3])
        product = graph.new_name(node.name or "gemm") if bias else node.output[0]
        nodes.append(
            helper.make_node("MatMul", [node.input[0], weight], [product], name=f"{node.name}_product")
        )
        if bias:
            nodes.append(
                helper.make_node("Add", [product, *bias], list(node.output), name=f"{node.name}_bias")
            )
    graph.set_nodes(nodes)
    graph.sweep()
    return made


def gemms(graph: Graph) -> Iterator[NodeProto]:
    """What `as_matmuls` turns."""
    return (node for node in graph.nodes if _is_plain(graph, node))


def _is_plain(graph: Graph, node: NodeProto) -> bool:
    """Whether a node is `A * B + C` with a float32 matrix B of weights, nothing scaled and A as it comes."""
    if node.op_type != "Gemm" or node.domain not in {"", "ai.onnx"}:
        return False
    weight, given = graph.initializers.get(node.input[1]), _attributes(node)
    scaled = given.get("alpha", 1.0) != 1.0 or given.get("beta", 1.0) != 1.0 or given.get("transA", 0) != 0
    return weight is not None and weight.data_type == FLOAT and not scaled


def _attributes(node: NodeProto) -> dict[str, float]:
    return {one.name: helper.get_attribute_value(one) for one in node.attribute}
