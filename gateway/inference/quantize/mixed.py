"""Which matrices belong to attention, which feed forward, which is the last: by how a graph is connected."""

from __future__ import annotations

from collections.abc import Iterable

from onnx import NodeProto

from gateway.inference.quantize.graphs import Graph
from gateway.inference.quantize.recipes import Recipe

_ATTENTION = {"Attention", "GroupQueryAttention", "MultiHeadAttention", "PagedAttention", "Softmax"}


def parts(graph: Graph) -> dict[str, str]:
    """Each matrix's part: `attention`, `feed_forward` or `head`.

    Attention's are the last matrices before an attention operator and the first behind it; the head is the
    last matrix before `logits`; the others feed forward.
    """
    matrices = {node.output[0]: node.input[1] for node in graph.matmuls()}
    made_by = {output: node for node in graph.nodes for output in node.output}
    read_by: dict[str, list[NodeProto]] = {}
    for node in graph.nodes:
        for name in node.input:
            read_by.setdefault(name, []).append(node)
    found = dict.fromkeys(matrices.values(), "feed_forward")
    for node in graph.nodes:
        if node.op_type in _ATTENTION:
            for name in (*_before(node.input, made_by, matrices), *_behind(node, read_by, matrices)):
                found[name] = "attention"
    for name in _before(("logits",), made_by, matrices):
        found[name] = "head"
    return found


def bits_of(graph: Graph, recipe: Recipe) -> dict[str, int]:
    """How many bits each matrix gets by a recipe; those that stay whole are missing."""
    wanted = {
        "attention": recipe.attention_bits,
        "feed_forward": recipe.feed_forward_bits,
        "head": recipe.head_bits,
    }
    return {name: bits for name, part in parts(graph).items() if (bits := wanted[part]) is not None}


def _before(begin: Iterable[str], made_by: dict[str, NodeProto], matrices: dict[str, str]) -> set[str]:
    """Matrices that a value comes from without another one between."""
    found, seen, left = set(), set[str](), list(begin)
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in matrices:
            found.add(matrices[name])
        elif name in made_by:
            left += made_by[name].input
    return found


def _behind(node: NodeProto, read_by: dict[str, list[NodeProto]], matrices: dict[str, str]) -> set[str]:
    """Matrices that an operator's answer goes into, before anything is added to it."""
    found, seen, left = set(), set[str](), list(node.output)
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        for reader in read_by.get(name, ()):
            if reader.output[0] in matrices:
                found.add(matrices[reader.output[0]])
            elif reader.op_type != "Add":
                left += reader.output
    return found
