"""A matrix kept in 8-bit blocks and unfolded by operators a runtime works out once, when it loads the graph.

So products are float32's, as fast and as exact in any company, and the file is a quarter of its size. A
large model takes its whole float32 size in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper

_MIDDLE = 128.0  # the byte that stands for 0


@dataclass(frozen=True, slots=True)
class Unfolded:
    """Nodes that make `weight` `[K, N]` float32, and the constants they read, by name."""

    weight: str
    nodes: tuple[NodeProto, ...]
    constants: dict[str, NDArray[np.generic]]


def unfolded(
    name: str, packed: NDArray[np.uint8], scales: NDArray[np.float32], shape: tuple[int, int]
) -> Unfolded:
    """`packed` `[N, blocks, size]` times `scales` `[N, blocks]`, its last block cut to `shape` `[K, N]`."""
    rows, columns = shape
    constants: dict[str, NDArray[np.generic]] = {
        f"{name}_q": packed,
        f"{name}_scales": scales[:, :, None],
        f"{name}_middle": np.array(_MIDDLE, dtype=np.float32),
        f"{name}_whole": np.array([columns, -1], dtype=np.int64),
        f"{name}_first": np.array([0], dtype=np.int64),
        f"{name}_rows": np.array([rows], dtype=np.int64),
        f"{name}_axis": np.array([1], dtype=np.int64),
    }
    steps: tuple[tuple[str, tuple[str, ...], dict[str, int | list[int]]], ...] = (
        ("Cast", (f"{name}_q",), {"to": TensorProto.FLOAT}),
        ("Sub", ("", f"{name}_middle"), {}),
        ("Mul", ("", f"{name}_scales"), {}),
        ("Reshape", ("", f"{name}_whole"), {}),
        ("Slice", ("", f"{name}_first", f"{name}_rows", f"{name}_axis"), {}),
        ("Transpose", ("",), {"perm": [1, 0]}),
    )
    nodes, last = [], ""
    for kind, inputs, attributes in steps:
        made = f"{name}_{kind.lower()}"
        node = helper.make_node(kind, [one or last for one in inputs], [made], name=made)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        nodes.append(node)
        last = made
    return Unfolded(last, tuple(nodes), constants)
