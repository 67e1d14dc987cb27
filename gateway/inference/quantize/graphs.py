"""ONNX graphs as the passes see them: read, looked up by name, changed, written. `onnx` is asked for here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gateway.core.errors import InferenceError

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper, shape_inference
except ImportError as exc:
    raise InferenceError(
        "this needs the package `onnx`, which the gateway itself does without: "
        "pip install 'o3-gateway[models]'"
    ) from exc

MICROSOFT = "com.microsoft"
FLOAT = TensorProto.FLOAT
MOST_GRAPH_BYTES = 1 << 30


class Graph:
    """A model's graph with its weights at hand."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        self._count = 0

    @classmethod
    def read(cls, path: Path) -> Graph:
        """The graph of a file, weights that are kept beside it included; raises `InferenceError`."""
        try:
            return cls(onnx.load(str(path)))
        except Exception as exc:  # protobuf and onnx raise their own types, some private
            raise InferenceError(f"`{path}` is no ONNX graph ({exc}): export it again") from exc

    def write(self, path: Path) -> None:
        """One file, the same bytes for the same graph; raises `InferenceError` where it is too large."""
        size = self.model.ByteSize()
        if size > MOST_GRAPH_BYTES:
            raise InferenceError(
                f"the graph has {size >> 20} MiB, at most {MOST_GRAPH_BYTES >> 20} are served"
            )
        path.write_bytes(self.model.SerializeToString(deterministic=True))

    @property
    def nodes(self) -> list[onnx.NodeProto]:
        """In an order in which they can run."""
        return list(self.model.graph.node)

    def set_nodes(self, nodes: list[onnx.NodeProto]) -> None:
        """Replace all nodes."""
        del self.model.graph.node[:]
        self.model.graph.node.extend(nodes)

    def value(self, name: str) -> NDArray[np.generic]:
        """A weight."""
        found: NDArray[np.generic] = numpy_helper.to_array(self.initializers[name])
        return found

    def add(self, name: str, value: NDArray[np.generic]) -> str:
        """Add a weight; its name."""
        return self.add_tensor(numpy_helper.from_array(np.asarray(value, order="C"), name))

    def add_tensor(self, tensor: onnx.TensorProto) -> str:
        """Add a weight as it is; its name."""
        self.model.graph.initializer.append(tensor)
        self.initializers[tensor.name] = tensor
        return str(tensor.name)

    def new_name(self, begin: str) -> str:
        """A name that nothing has yet."""
        self._count += 1
        return f"{begin}_made_{self._count}"

    def sweep(self) -> None:
        """Drop weights that nothing reads."""
        read = {name for node in self.nodes for name in node.input}
        read |= {output.name for output in self.model.graph.output}
        kept = [tensor for tensor in self.model.graph.initializer if tensor.name in read]
        del self.model.graph.initializer[:]
        self.model.graph.initializer.extend(kept)
        self.initializers = {tensor.name: tensor for tensor in self.model.graph.initializer}

    def import_domain(self, domain: str) -> None:
        """Declare that operators of a domain are used."""
        if domain not in {one.domain for one in self.model.opset_import}:
            self.model.opset_import.append(helper.make_opsetid(domain, 1))

    def types(self) -> dict[str, int]:
        """The element type of every value, as far as inference reaches."""
        inferred = shape_inference.infer_shapes(self.model)
        values = (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output)
        found = {value.name: int(value.type.tensor_type.elem_type) for value in values}
        return found | {name: int(tensor.data_type) for name, tensor in self.initializers.items()}

    def matmuls(self) -> Iterator[onnx.NodeProto]:
        """Products with a matrix of weights: what can be kept in blocks."""
        for node in self.nodes:
            if node.op_type != "MatMul" or node.domain not in {"", "ai.onnx"}:
                continue
            weight = self.initializers.get(node.input[1])
            if weight is not None and weight.data_type == FLOAT and len(weight.dims) == _MATRIX:
                yield node

    def operators(self) -> dict[str, int]:
        """How often each operator is used, the most used first."""
        counts: dict[str, int] = {}
        for node in self.nodes:
            name = f"{node.domain}.{node.op_type}" if node.domain not in {"", "ai.onnx"} else node.op_type
            counts[name] = counts.get(name, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def weight_bytes(self) -> dict[str, int]:
        """Bytes of weights by type, the largest first."""
        sizes: dict[str, int] = {}
        for tensor in self.model.graph.initializer:
            name = type_name(tensor.data_type)
            each = 2 if tensor.data_type == TensorProto.BFLOAT16 else self.value(tensor.name).itemsize
            sizes[name] = sizes.get(name, 0) + int(np.prod(tensor.dims, dtype=np.int64)) * each
        return dict(sorted(sizes.items(), key=lambda item: -item[1]))


_MATRIX = 2


def type_name(element: int) -> str:
    """As people write it: float32, float16, int8 ..."""
    name = str(TensorProto.DataType.Name(element)).lower()
    return {"float": "float32", "double": "float64"}.get(name, name)
