"""Which operators the CPU runs in a type by itself: asked of the runtime, one small graph for each."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import onnx
import onnxruntime
from onnx import helper

from gateway.inference.quantize.graphs import FLOAT, Graph

_CPU = ["CPUExecutionProvider"]


def not_on_cpu(graph: Graph, types: Mapping[str, int], half: int) -> set[str]:
    """Operators of `graph` that the CPU provider lacks in the type `half`, or runs by way of float32."""
    asked: dict[tuple[str, str], bool] = {}
    for node in graph.nodes:
        kind = (node.domain, node.op_type)
        if kind not in asked and any(types.get(name, FLOAT) == FLOAT for name in node.input if name):
            asked[kind] = _runs(graph, node, types, half)
    return {kind for (_, kind), runs in asked.items() if not runs}


def _runs(graph: Graph, node: onnx.NodeProto, types: Mapping[str, int], half: int) -> bool:
    """Whether a session takes the node as it is: no error, and no conversions put around it."""

    def value(name: str, there: str) -> onnx.ValueInfoProto:
        element = types.get(name, FLOAT)
        return helper.make_tensor_value_info(there, half if element == FLOAT else element, None)

    inputs = [value(name, f"i{at}") for at, name in enumerate(node.input) if name]
    outputs = [value(name, f"o{at}") for at, name in enumerate(node.output)]
    alone = onnx.NodeProto()
    alone.CopyFrom(node)
    alone.input[:] = [f"i{at}" if name else "" for at, name in enumerate(node.input)]
    alone.output[:] = [f"o{at}" for at in range(len(node.output))]
    model = helper.make_model(
        helper.make_graph([alone], "one", inputs, outputs),
        opset_imports=list(graph.model.opset_import),
        ir_version=graph.model.ir_version,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.onnx"
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.optimized_model_filepath = str(path)
        try:
            onnxruntime.InferenceSession(model.SerializeToString(), options, providers=_CPU)
        except Exception:  # noqa: BLE001 - the runtime's own types; whatever it says, it does not run this
            return False
        made = onnx.load(str(path)).graph.node
        return not any(one.op_type == "Cast" for one in made)
