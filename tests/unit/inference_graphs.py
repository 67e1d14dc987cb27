"""Small graphs without a cache, and bundles around them, for what a real export would not do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from gateway.inference.seal import seal

LEVEL = {"tag": "TK1.LT101", "unit": "m", "trained": ["0", "5"]}
INFLOW = {"tag": "TK1.FT101", "unit": "m3/h", "trained": ["0", "40"]}
PUMP = {"tag": "TK1.P101.SP", "unit": "%", "trained": ["0", "100"], "tensor": "y", "index": [0]}


def graph_of(
    *nodes: onnx.NodeProto,
    inputs: dict[str, list[Any]],
    outputs: dict[str, list[Any]],
    constants: dict[str, list[float]] | None = None,
) -> onnx.ModelProto:
    """A checked graph of float tensors."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [
            helper.make_tensor(name, TensorProto.FLOAT, [len(values)], values)
            for name, values in (constants or {}).items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model)
    return model


def summing(columns: int) -> onnx.ModelProto:
    """y is the sum of a row."""
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"])
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", columns])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])],
        [helper.make_tensor("axes", TensorProto.INT64, [1], [1])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def logarithm() -> onnx.ModelProto:
    """y is the logarithm of x - 1, no number where x is below 1."""
    return graph_of(
        helper.make_node("Sub", ["x", "one"], ["less"]),
        helper.make_node("Log", ["less"], ["y"]),
        inputs={"x": ["n", 1]},
        outputs={"y": ["n", 1]},
        constants={"one": [1.0]},
    )


def as_is(columns: int) -> onnx.ModelProto:
    """y is x."""
    return graph_of(
        helper.make_node("Identity", ["x"], ["y"]),
        inputs={"x": ["n", columns]},
        outputs={"y": ["n", columns]},
    )


def description(**changes: Any) -> dict[str, Any]:  # noqa: ANN401  any JSON
    """A description of a model from level to pump, with changes."""
    return {
        "backend": "stateless",
        "format": 1,
        "id": "own",
        "revision": 1,
        "description": "A test's.",
        "cycle_s": "1",
        "inputs": [LEVEL],
        "outputs": [PUMP],
        "tensors": [{"name": "x", "tags": ["TK1.LT101"]}],
        "files": {},
    } | changes


def bundle_in(folder: Path, model: onnx.ModelProto, **changes: Any) -> Path:  # noqa: ANN401  any JSON
    """A sealed bundle of that graph."""
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "bundle.json").write_text(json.dumps(description(**changes)))
    seal(folder)
    return folder
