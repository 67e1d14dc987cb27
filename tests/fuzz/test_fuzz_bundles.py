"""Descriptions with anything in any place, graphs with any bytes: a bundle is read or refused, and soon."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from gateway.core.errors import InferenceError
from gateway.inference.bundle.beside import NoGraphError, external_files
from gateway.inference.client.model_engine import ModelEngine
from gateway.inference.client.point_state import PointState
from tests.unit.inference_demo import BUFFER_TANK, demo_definitions
from tests.unit.inference_exports import CLASSIFIER, FORECASTER, GENAI_LLAMA, OPTIMUM_LLAMA

pytestmark = pytest.mark.integration

_SOON_S = 20.0  # of the processor; a hundredth of it is usual
_ANYTHING: tuple[object, ...] = (
    *("", "abc", "nan", "-inf", "-1", "0", "1e999999999", "9" * 5000, "\0", "../x"),
    *(-1, 0, 1, 2, 10**6, 10**12, 2**63, -(2**63), 1.5, 1e308, 5e-324, True, None),
    *([], {}, ["0"], [1e308] * 3, {"a": "b"}),
)
_BUNDLES = (BUFFER_TANK, OPTIMUM_LLAMA, GENAI_LLAMA, CLASSIFIER, FORECASTER)
_DESCRIPTIONS = {each.name: json.loads((each / "bundle.json").read_text()) for each in _BUNDLES}


def _places(value: object, before: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if before:
        yield before
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from _places(part, (*before, key))


_PLACES = {name: list(_places(description)) for name, description in _DESCRIPTIONS.items()}


def _with(description: Any, place: tuple[str | int, ...], value: object) -> Any:  # noqa: ANN401  any JSON
    changed = copy.deepcopy(description)
    part = changed
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    return changed


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The bundles' files beside descriptions of our own."""
    made = {}
    for each in _BUNDLES:
        folder = made[each.name] = tmp_path_factory.mktemp(each.name)
        for file in each.iterdir():
            if file.name != "bundle.json":
                (folder / file.name).write_bytes(file.read_bytes())
    return made


@given(data=st.data())
def test_anything_in_any_place_of_a_description_is_read_or_refused_soon(
    folders: dict[str, Path], data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(folders)))
    description = _DESCRIPTIONS[name]
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(_PLACES[name]))
        try:
            description = _with(description, place, data.draw(st.sampled_from(_ANYTHING)))
        except (KeyError, IndexError, TypeError):  # an earlier change took the place away
            continue
    (folders[name] / "bundle.json").write_text(json.dumps(description))
    began = time.process_time()
    with contextlib.suppress(InferenceError):
        bundle = ModelEngine(folders[name], demo_definitions()).bundle
        assert bundle.history_cycles > 0
        PointState(bundle)
    assert time.process_time() - began < _SOON_S


_GRAPH = (GENAI_LLAMA / "model.onnx").read_bytes()


@given(cuts=st.lists(st.tuples(st.integers(0, len(_GRAPH) - 1), st.integers(0, 255)), max_size=4))
def test_what_a_parser_finds_beside_a_graph_of_any_bytes_we_find_too(cuts: list[tuple[int, int]]) -> None:
    content = bytearray(_GRAPH)
    for at, byte in cuts:
        content[at] = byte
    try:
        found = set(external_files(io.BytesIO(bytes(content))))
    except NoGraphError:
        return  # refused
    try:
        model = onnx.ModelProto.FromString(bytes(content))
    except Exception:  # noqa: BLE001  the parser's own type, which has no public name
        return  # the runtime refuses it
    assert _named(model.graph) <= found


@given(st.lists(st.sampled_from(["location", "offset", "a", "../b", ""]), max_size=6))
def test_keys_and_values_are_not_mistaken_for_one_another(words: list[str]) -> None:
    tensor = onnx.TensorProto(name="location", data_type=1, dims=[1])
    for key, value in zip(words[::2], words[1::2], strict=False):
        tensor.external_data.add(key=key, value=value)
    inner = helper.make_graph([helper.make_node("Constant", [], ["c"], value=tensor)], "location", [], [])
    node = helper.make_node("If", ["location"], ["d"], then_branch=inner, else_branch=inner)
    model = helper.make_model(helper.make_graph([node], "g", [], []), doc_string="location")
    wanted = {value for key, value in zip(words[::2], words[1::2], strict=False) if key == "location"}
    assert set(external_files(io.BytesIO(model.SerializeToString()))) == wanted


def _named(graph: onnx.GraphProto) -> set[str]:
    return {
        entry.value
        for tensor in graph.initializer
        for entry in tensor.external_data
        if entry.key == "location" and entry.value
    }
