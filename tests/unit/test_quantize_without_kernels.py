"""A runtime that lacks what 8-bit recipes ask for: tests that need it skip, bundles that need it are refused.

The sessions here are real ones that are told so: by a graph that asks for no products in 8 bits, which is
what a processor without that kernel makes of the wish, or by the runtime's error for an operator it lacks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import onnx
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplementedHere

from gateway.core.errors import InferenceError
from gateway.inference.bundle.manifest import load_bundle
from gateway.inference.decision_model import DecisionModel
from gateway.inference.golden import replay
from gateway.inference.quantize.quantizing import Wish, quantize
from tests.unit import quantize_demo, test_quantize_recipes, test_quantize_unfolded
from tests.unit.inference_demo import BUFFER_TANK, BUNDLES
from tests.unit.quantize_demo import DEMO, SHORT, made, needs_products_in_8_bits, products_in_8_bits

Change = Callable[[onnx.ModelProto], None]


def told(monkeypatch: pytest.MonkeyPatch, folder: Path, change: Change) -> None:
    """From now on sessions are made of changed graphs; bundles are made anew, as on that machine."""
    session = onnxruntime.InferenceSession

    def changed(model: str | bytes, *arguments: object, **named: object) -> object:
        graph = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)
        change(graph)
        return session(graph.SerializeToString(), *arguments, **named)

    monkeypatch.setattr(onnxruntime, "InferenceSession", changed)
    monkeypatch.setattr(quantize_demo, "_KEPT", SimpleNamespace(name=str(folder)))
    monkeypatch.setattr(quantize_demo, "_made", functools.cache(quantize_demo._made.__wrapped__))
    products = functools.cache(products_in_8_bits.__wrapped__)
    monkeypatch.setattr(quantize_demo, "products_in_8_bits", products)


def no_products_in_8_bits(graph: onnx.ModelProto) -> None:
    for node in graph.graph.node:
        left = [one for one in node.attribute if one.name != "accuracy_level"]
        del node.attribute[:]
        node.attribute.extend(left)


def no_blocks(graph: onnx.ModelProto) -> None:
    if any(node.op_type == "MatMulNBits" for node in graph.graph.node):
        message = (
            "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for MatMulNBits(1)"
        )
        raise NotImplementedHere(message)


@pytest.mark.parametrize("lacking", [no_products_in_8_bits, no_blocks])
def test_the_probe_finds_no_products_in_8_bits_and_says_why_it_skips(
    lacking: Change, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told(monkeypatch, tmp_path, lacking)

    assert not quantize_demo.products_in_8_bits()
    with pytest.raises(pytest.skip.Exception, match="no kernel on this processor for products in 8 bits"):
        needs_products_in_8_bits()


def test_what_needs_no_such_kernel_is_still_tested_before_the_rest_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made_folder, elsewhere = tmp_path / "made", tmp_path / "elsewhere"
    made_folder.mkdir()
    elsewhere.mkdir()
    told(monkeypatch, made_folder, no_products_in_8_bits)

    with pytest.raises(pytest.skip.Exception):
        test_quantize_recipes.test_products_in_8_bits_lose_more_than_products_in_float32_and_stay_within_the_same_bar()
    with pytest.raises(pytest.skip.Exception):
        test_quantize_unfolded.test_products_in_8_bits_answer_otherwise_where_a_processor_has_none(elsewhere)
    ours, theirs = made("int8a8").figures, made("int8").figures
    assert ours is not None
    assert theirs is not None
    assert ours.relative_l2 == pytest.approx(theirs.relative_l2), "the wish was not heeded"


def test_a_recipe_whose_operator_is_missing_is_refused_in_words_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bundle = made("int8").bundle.directory
    told(monkeypatch, tmp_path, no_blocks)

    sentence = r"MatMulNBits\(1\)\): this runtime has not that operator here: .*`int8w` has none of its own"
    with pytest.raises(InferenceError, match=sentence):
        quantize(Wish(source=DEMO, output=tmp_path / "m", recipe="int8", length=SHORT))
    with pytest.raises(InferenceError, match=sentence):
        DecisionModel.from_bundle(bundle, "cpu")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("lacking", [no_products_in_8_bits, no_blocks])
def test_what_is_shipped_answers_as_ever_on_a_runtime_without_8_bit_kernels(
    lacking: Change, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told(monkeypatch, tmp_path, lacking)

    assert replay(load_bundle(BUFFER_TANK)).same
    assert quantize(Wish(source=DEMO, output=tmp_path / "m", recipe="int8w", length=SHORT)).figures
    assert DecisionModel.from_bundle(BUNDLES / "two-heater", "cpu").truth.actual == "CPUExecutionProvider"
