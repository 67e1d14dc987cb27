"""Gemm as MatMul and Add: the same numbers, and matrices that the passes find."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from gateway.inference.quantize.gemm import as_matmuls, gemms
from gateway.inference.quantize.graphs import Graph

ROWS = np.random.default_rng(1).normal(size=(5, 6)).astype(np.float32)
WEIGHT = np.random.default_rng(2).normal(size=(6, 4)).astype(np.float32)
BIAS = np.random.default_rng(3).normal(size=4).astype(np.float32)


def graph(attributes: dict[str, float], *, bias: bool = True) -> Graph:
    weight = WEIGHT.T.copy() if attributes.get("transB") else WEIGHT
    kept = [numpy_helper.from_array(weight, "w"), *([numpy_helper.from_array(BIAS, "b")] if bias else [])]
    node = helper.make_node("Gemm", ["x", "w", *(["b"] if bias else [])], ["y"], name="product")
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    made = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
        initializer=kept,
    )
    return Graph(helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))


def answered(by: Graph) -> NDArray[np.float32]:
    onnx.checker.check_model(by.model)
    session = onnxruntime.InferenceSession(by.model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: NDArray[np.float32] = session.run(None, {"x": ROWS})[0]
    return found


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("attributes", [{}, {"transB": 1}, {"alpha": 1.0, "beta": 1.0}])
def test_a_gemm_becomes_a_product_with_the_same_answer(*, bias: bool, attributes: dict[str, float]) -> None:
    one = graph(attributes, bias=bias)
    before = answered(one)

    assert as_matmuls(one) == 1

    assert np.allclose(answered(one), before, rtol=1e-6, atol=1e-6)
    assert [node.op_type for node in one.nodes] == (["MatMul", "Add"] if bias else ["MatMul"])
    assert len(list(one.matmuls())) == 1
    assert not list(gemms(one))


@pytest.mark.parametrize("attributes", [{"alpha": 2.0}, {"beta": 0.5}])
def test_a_gemm_that_scales_stays_as_it_is(attributes: dict[str, float]) -> None:
    one = graph(attributes)
    before = answered(one)

    assert as_matmuls(one) == 0

    assert [node.op_type for node in one.nodes] == ["Gemm"]
    assert np.array_equal(answered(one), before)
