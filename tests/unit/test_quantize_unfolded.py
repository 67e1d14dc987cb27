"""Blocks unfolded at load: int8's numbers at float32's speed, whichever kernels a processor has."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from gateway.inference.bundle.manifest import REFERENCE_FILE, load_bundle
from gateway.inference.golden import compared, read_golden, replay, replays
from gateway.inference.quantize.graphs import Graph
from gateway.inference.quantize.matmul_nbits import in_blocks, keep_in_blocks
from gateway.inference.seal import seal
from tests.unit.inference_demo import BUNDLES
from tests.unit.quantize_demo import logits, made, needs_products_in_8_bits, off, tokens

SHIPPED = sorted(path.parent for path in BUNDLES.glob("*/bundle.json"))
UNFOLDS = {"Cast", "Slice", "Transpose"}


def as_run(model: Path, folder: Path) -> dict[str, int]:
    """Operators that are left when a runtime has loaded the graph."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "run.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return Graph.read(folder / "run.onnx").operators()


@pytest.mark.parametrize("directory", SHIPPED, ids=lambda directory: directory.name)
def test_a_shipped_model_is_small_on_disk_and_runs_float32s_operators(
    directory: Path, tmp_path: Path
) -> None:
    bundle = load_bundle(directory)
    stored = Graph.read(bundle.model_path)

    assert bundle.manifest.quantization.kind == "unfolded"
    assert stored.weight_bytes()["uint8"] > 0.9 * 13 * 64 * 64
    assert bundle.manifest.files["model.onnx"].bytes < 0.45 * bundle.manifest.files[REFERENCE_FILE].bytes
    assert stored.operators().keys() >= UNFOLDS
    ours, theirs = as_run(bundle.model_path, tmp_path), as_run(directory / REFERENCE_FILE, tmp_path)
    assert ours == theirs
    assert not UNFOLDS & ours.keys()


def test_unfolded_blocks_answer_as_blocks_do() -> None:
    blocks, unfolded, new = made("int8").bundle, made("int8w").bundle, tokens(120)

    assert off(logits(unfolded, [new]), logits(blocks, [new])) < 1e-5
    assert not any("MatMulNBits" in name for name in Graph.read(unfolded.model_path).operators())
    golden = read_golden(blocks)
    there = compared(golden, replays(unfolded, golden))
    assert there.same
    assert there.worst_action_error_of_span <= 1e-5


@pytest.mark.parametrize("rows", [64, 50])
def test_a_last_block_that_is_not_full_is_cut(rows: int) -> None:
    rng = np.random.default_rng(rows)
    weight, x = rng.normal(size=(rows, 24)).astype(np.float32), rng.normal(size=(3, rows)).astype(np.float32)
    one = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", rows])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 24])],
        initializer=[numpy_helper.from_array(weight, "w")],
    )
    graph = Graph(helper.make_model(one, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))

    assert keep_in_blocks(graph, {"w": 8}, 32, products="unfolded") == 1

    onnx.checker.check_model(graph.model)
    session = onnxruntime.InferenceSession(
        graph.model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    packed, scales = in_blocks(weight, 8, 32)
    back = ((packed.astype(np.float32) - 128) * scales[:, :, None]).reshape(24, -1)[:, :rows].T
    assert np.allclose(session.run(None, {"x": x})[0], x @ back, rtol=1e-5, atol=1e-5)


def test_products_in_8_bits_answer_otherwise_where_a_processor_has_none(tmp_path: Path) -> None:
    """Why shipped bundles are not `int8a8`: a runtime without the kernel ignores that it is asked for."""
    there = Path(shutil.copytree(made("int8a8").bundle.directory, tmp_path / "elsewhere"))
    graph = Graph.read(there / "model.onnx")
    for node in graph.nodes:
        left = [one for one in node.attribute if one.name != "accuracy_level"]
        del node.attribute[:]
        node.attribute.extend(left)
    graph.write(there / "model.onnx")
    seal(there)
    elsewhere, new = load_bundle(there), tokens(120)

    assert replay(made("int8a8").bundle).worst_action_error_of_span == 0
    assert off(logits(elsewhere, [new]), logits(made("int8").bundle, [new])) < 1e-5
    needs_products_in_8_bits()  # else this processor is that other one
    assert off(logits(elsewhere, [new]), logits(made("int8a8").bundle, [new])) > 1e-3
    assert replay(elsewhere).worst_action_error_of_span > 1e-5
