"""Matrices in blocks of 8 or 4 bits: MatMulNBits, an operator whose rows do not depend on their neighbours.

Or unfolded to float32 as a runtime loads the graph (8 bits).
A block is `size` numbers of one column with one scale. The middle of the range is 0: no zero points are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, helper

from gateway.inference.quantize.graphs import MICROSOFT, Graph
from gateway.inference.quantize.recipes import Products
from gateway.inference.training.unfolded import unfolded

_TRIED = np.linspace(1.0, 0.7, 13, dtype=np.float32)  # of the scale that would lose no peak


def keep_in_blocks(
    graph: Graph,
    bits_of: Mapping[str, int],
    size: int,
    advance: Callable[[], None] = lambda: None,
    *,
    products: Products = "float32",
) -> int:
    """Turn the matrices named in `bits_of` into blocks of so many bits; how many there were."""
    nodes: list[NodeProto] = []
    made = 0
    wanted = {node.name: node for node in graph.matmuls() if node.input[1] in bits_of}
    kept: dict[str, tuple[str, ...]] = {}  # one matrix may be read twice
    for node in graph.nodes:
        if node.name not in wanted or node.input[1] not in bits_of:
            nodes.append(node)
            continue
        name = node.input[1]
        weight, bits = graph.value(name).astype(np.float32), bits_of[name]
        if name not in kept:
            packed, scales = in_blocks(weight, bits, size)
            if products == "unfolded":
                kept[name] = _unfolded(graph, nodes, name, packed, scales, weight.shape)
            else:
                kept[name] = (graph.add(f"{name}_q{bits}", packed), graph.add(f"{name}_scales", scales))
            made += 1
            advance()
        if products == "unfolded":
            nodes.append(
                helper.make_node("MatMul", [node.input[0], *kept[name]], list(node.output), name=node.name)
            )
            continue
        made_node = _node(node, kept[name], weight.shape, bits, size)
        if products == "in_8":
            made_node.attribute.append(helper.make_attribute("accuracy_level", _IN_8_BITS))
        nodes.append(made_node)
    graph.set_nodes(nodes)
    if products != "unfolded":
        graph.import_domain(MICROSOFT)
    graph.sweep()
    return made


def in_blocks(
    weight: NDArray[np.float32], bits: int, size: int
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """`weight` `[K, N]` as bytes `[N, blocks, size * bits / 8]` and scales `[N, blocks]`.

    The last block of a column is filled up with zeros. With 4 bits two numbers share a byte, the first
    in its low half. Each scale is the one of several that loses least, by squares.
    """
    rows, columns = weight.shape
    count = -(-rows // size)
    padded = np.zeros((columns, count * size), dtype=np.float32)
    padded[:, :rows] = weight.T
    blocks = padded.reshape(columns, count, size)
    middle = 1 << (bits - 1)
    peak = np.abs(blocks).max(axis=2) / (middle - 1)
    scales, least = peak.copy(), np.full(peak.shape, np.inf, dtype=np.float32)
    for part in _TRIED:
        tried = peak * part
        lost = np.square(_rounded(blocks, tried, middle) * tried[:, :, None] - blocks).sum(axis=2)
        better = lost < least
        scales, least = np.where(better, tried, scales), np.where(better, lost, least)
    numbers: NDArray[np.uint8] = (_rounded(blocks, scales, middle) + middle).astype(np.uint8)
    if bits == _NIBBLE:
        numbers = np.bitwise_or(numbers[:, :, 0::2], np.left_shift(numbers[:, :, 1::2], np.uint8(_NIBBLE)))
    return np.ascontiguousarray(numbers), scales.astype(np.float32)


_NIBBLE = 4
_IN_8_BITS = 4  # the operator's own number for it


def _rounded(blocks: NDArray[np.float32], scales: NDArray[np.float32], middle: int) -> NDArray[np.float32]:
    safe = np.where(scales == 0, np.float32(1), scales)[:, :, None]
    rounded: NDArray[np.float32] = np.clip(np.rint(blocks / safe), -middle, middle - 1)
    return rounded


def _unfolded(
    graph: Graph,
    nodes: list[NodeProto],
    name: str,
    packed: NDArray[np.uint8],
    scales: NDArray[np.float32],
    shape: tuple[int, ...],
) -> tuple[str]:
    """Put the nodes that unfold a matrix before whatever reads it; its name."""
    rows, columns = shape
    found = unfolded(name, packed, scales, (rows, columns))
    nodes += found.nodes
    for constant, value in found.constants.items():
        graph.add(constant, value)
    return (found.weight,)


def _node(node: NodeProto, names: tuple[str, ...], shape: tuple[int, ...], bits: int, size: int) -> NodeProto:
    made = helper.make_node(
        "MatMulNBits", [node.input[0], *names], list(node.output), name=node.name, domain=MICROSOFT
    )
    sizes = {"K": shape[0], "N": shape[1], "bits": bits, "block_size": size}
    made.attribute.extend(helper.make_attribute(key, value) for key, value in sizes.items())
    return made
