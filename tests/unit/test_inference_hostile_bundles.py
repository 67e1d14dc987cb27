"""Bundles made to harm: each is refused in a sentence, soon, and without reading what is not its own."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from gateway.core.errors import InferenceError
from gateway.inference.bundle import files as module
from gateway.inference.bundle.any_bundle import load_any
from gateway.inference.bundle.beside import NoGraphError, external_files_of
from gateway.inference.client.model_engine import ModelEngine
from gateway.inference.decision_model import ranges_of
from gateway.inference.seal import seal
from gateway.inference.serving.serving import Size, start_engine
from tests.unit.inference_demo import BUFFER_TANK, demo_definitions
from tests.unit.inference_exports import OPTIMUM_LLAMA, REGRESSOR
from tests.unit.inference_graphs import description

_SOON_S = 5.0  # of the processor; an honest one takes a hundredth of it

each_kind = pytest.mark.parametrize("directory", [OPTIMUM_LLAMA, REGRESSOR], ids=lambda each: each.name)


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[Path], Path]:
    return lambda directory: Path(shutil.copytree(directory, tmp_path / "bundle"))


def refused(folder: Path, said: str) -> None:
    """Here and in main, with that sentence, soon."""
    began = time.process_time()
    with pytest.raises(InferenceError, match=said):
        load_any(folder)
    with pytest.raises(InferenceError, match=said):
        ModelEngine(folder, demo_definitions())
    assert time.process_time() - began < _SOON_S


@each_kind
@pytest.mark.parametrize("name", ["model.onnx", "bundle.json"])
def test_a_link_is_not_followed(
    directory: Path, name: str, copied: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder = copied(directory)
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")

    refused(folder, rf"{name} is a link: put the file itself into the folder")


@pytest.mark.parametrize("name", ["model.onnx", "bundle.json"])
def test_a_pipe_that_nobody_writes_to_is_not_waited_for(copied: Callable[[Path], Path], name: str) -> None:
    folder = copied(REGRESSOR)
    (folder / name).unlink()
    os.mkfifo(folder / name)

    refused(folder, rf"{name} is no regular file: copy the whole bundle folder")


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "..", "", "a/b", "a\0b", "a\x1b[2Jb"])
def test_files_elsewhere_cannot_be_listed(copied: Callable[[Path], Path], name: str) -> None:
    folder = copied(REGRESSOR)
    (folder.parent / "secret").write_bytes(b"")
    empty = {"sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "bytes": 0}
    _edit(folder, lambda m: m["files"].update({name: empty}))

    refused(folder, r"file name .* leaves the bundle: remove it from bundle\.json")


@pytest.mark.parametrize(
    "key", ['"revision": 1', '"files": {}', '"backend": "stateless"', '"r\\u0065vision": 1']
)
def test_a_key_that_stands_there_twice(copied: Callable[[Path], Path], key: str) -> None:
    """However it is spelled: one reader takes the first, another the last."""
    folder = copied(REGRESSOR)
    text = (folder / "bundle.json").read_text().rstrip().removesuffix("}")
    (folder / "bundle.json").write_text(f"{text}, {key}}}")

    refused(folder, r"bundle\.json is no bundle description \(the key `\w+` stands there twice\): correct it")


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_nesting_without_end(copied: Callable[[Path], Path], opening: str) -> None:
    folder = copied(REGRESSOR)
    (folder / "bundle.json").write_text(opening * 200_000)

    refused(folder, r"bundle\.json is nested deeper than any description: export it again")
    with pytest.raises(InferenceError, match="nested deeper"):
        seal(folder)


def test_a_description_beyond_all_measure(copied: Callable[[Path], Path]) -> None:
    folder = copied(REGRESSOR)
    with (folder / "bundle.json").open("r+b") as file:
        file.truncate(64 << 30)  # a hole, which takes no room

    refused(folder, r"bundle\.json is larger than 4 MiB: it is no description")


def test_files_that_are_too_much_together(copied: Callable[[Path], Path]) -> None:
    folder = copied(REGRESSOR)
    part = {"sha256": "0" * 64, "bytes": module.MOST_FILE_BYTES}
    _edit(folder, lambda m: m["files"].update({f"part{number}": part for number in range(3)}))

    refused(folder, rf"a bundle at most {module.MOST_BUNDLE_BYTES}: use a smaller or quantized model")


@pytest.mark.parametrize(
    "number", ["1e999999999", "-1e-999999999", "9" * 5000, "1/3", "nan", "inf", "\u0661"]
)
@pytest.mark.parametrize(
    ("directory", "change"),
    [
        (OPTIMUM_LLAMA, lambda m, number: m.update(cycle_s=number)),
        (OPTIMUM_LLAMA, lambda m, number: m["inputs"][0]["knots"].__setitem__(-1, number)),
        (OPTIMUM_LLAMA, lambda m, number: m["outputs"][0].update(trained=["0", number])),
        (OPTIMUM_LLAMA, lambda m, number: m["outputs"][0].update(max_change=number)),
        (REGRESSOR, lambda m, number: m.update(cycle_s=number)),
        (REGRESSOR, lambda m, number: m["inputs"][0].update(trained=["0", number])),
        (REGRESSOR, lambda m, number: m["inputs"][0].update(scaling={"mean": number, "deviation": "1"})),
        (REGRESSOR, lambda m, number: m["outputs"][0].update(labels={"low": number})),
    ],
)
def test_a_short_text_that_stands_for_a_million_digits(
    copied: Callable[[Path], Path],
    directory: Path,
    change: Callable[[dict[str, Any], str], object],
    number: str,
) -> None:
    refused(_edit(copied(directory), lambda m: change(m, number)), "decimal")


@pytest.mark.parametrize("size", [-1, 0, 10**12, 2**63])
@pytest.mark.parametrize(
    "name", ["layers", "heads", "head_dim", "vocabulary", "rotary_base", "block", "length"]
)
def test_a_size_that_no_model_has(copied: Callable[[Path], Path], name: str, size: int) -> None:
    """Before memory is asked for, or time."""

    def change(manifest: dict[str, Any]) -> None:
        place = {"block": manifest, "length": manifest["window"]}.get(name, manifest["architecture"])
        place[name] = size

    refused(_edit(copied(BUFFER_TANK), change), rf"`{name}` is -?\d+.*, of a model it is \d+ to \d+: export")


def test_more_tags_than_any_plant_has_are_looked_through_once(copied: Callable[[Path], Path]) -> None:
    tags = [f"T{number}" for number in range(40_000)]
    columns = [{"tag": tag, "unit": "", "trained": ["0", "1"]} for tag in tags]
    folder = copied(REGRESSOR)
    manifest = json.loads((folder / "bundle.json").read_text()) | {"inputs": columns}
    manifest["tensors"][0]["tags"] = tags
    (folder / "bundle.json").write_text(json.dumps(manifest, separators=(",", ":")))
    began = time.process_time()
    with pytest.raises(InferenceError, match="tag `T0` is not configured"):
        ModelEngine(folder, demo_definitions())
    assert time.process_time() - began < _SOON_S


def test_a_past_that_nobody_keeps(copied: Callable[[Path], Path]) -> None:
    folder = _edit(copied(REGRESSOR), lambda m: m["tensors"][0].update(steps=10**9))
    refused(folder, "holds 1000000000 steps, at most 1024: read fewer")


@pytest.mark.parametrize(
    "change",
    [
        {"edges": [0.5], "hit_rate": [0.5, 1e308]},
        {"edges": [0.5], "hit_rate": [-1, 0.5]},
        {"edges": [0.9, 0.1], "hit_rate": [0.1, 0.5, 0.9]},
        {"edges": [], "hit_rate": [1], "calibration": {"temperature": 5e-324, "offset": 0}},
        {"edges": [], "hit_rate": [1], "calibration": {"temperature": 1, "offset": 1e308}},
    ],
)
def test_a_confidence_that_is_none(copied: Callable[[Path], Path], change: dict[str, Any]) -> None:
    """It would be shown as sure beyond all measure, or end the worker."""
    if "calibration" in change:
        change["calibration"] |= {"error_before": 0, "error_after": 0, "reliability": []}
    folder = _edit(copied(BUFFER_TANK), lambda m: m.update(confidence=change))
    refused(folder, "confidence.*: correct (it|them), or export it again")


@pytest.mark.parametrize("whitening", [[], [[1e308] * 6] * 6])
def test_a_detector_that_knows_everything(
    copied: Callable[[Path], Path], whitening: list[list[float]]
) -> None:
    """A distance that is no number is not familiar."""
    folder = _edit(copied(BUFFER_TANK), lambda m: m["familiarity"]["state"].update(whitening=whitening))
    if not whitening:
        refused(folder, "rows of `familiarity` do not fit the tags: export it again")
        return
    familiarity = load_any(folder).manifest.familiarity  # type: ignore[union-attr]
    assert familiarity is not None
    with pytest.warns(RuntimeWarning):
        assert not familiarity.knows([2.0, 12.0, 40.0], [27.0, 0.0, 1.0], None)


def test_an_operator_of_ones_own(tmp_path: Path) -> None:
    node = helper.make_node("Shell", ["x"], ["y"], domain="com.example", command="true")
    folder = _bundle(tmp_path / "own", [node], domains=["com.example"])

    with pytest.raises(
        InferenceError, match=r"cannot be loaded .*com\.example.*, export it again without it"
    ):
        start_engine(bundle := load_any(folder), tuple(ranges_of(bundle).values()), Size())


def test_a_word_a_million_times_is_not_looked_at_a_million_times(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"location" * 600_000)
    began = time.process_time()
    with pytest.raises(NoGraphError, match="more than 500000 places"):
        external_files_of(tmp_path / "model.onnx")
    assert time.process_time() - began < _SOON_S


@pytest.mark.parametrize(
    "spoiled", [b"\x3a", b"\x3a\x7flocation", b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"]
)
def test_a_graph_whose_parts_do_not_end_where_they_say(
    copied: Callable[[Path], Path], spoiled: bytes
) -> None:
    folder = copied(REGRESSOR)
    (folder / "model.onnx").write_bytes(spoiled + b"\x0a\x08location")

    with pytest.raises(InferenceError, match=r"model\.onnx cannot be loaded .*: export it again, or copy"):
        seal(folder)


def _edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    manifest = json.loads((folder / "bundle.json").read_text())
    change(manifest)
    (folder / "bundle.json").write_text(json.dumps(manifest))
    return folder


def _bundle(folder: Path, nodes: list[onnx.NodeProto], domains: list[str]) -> Path:
    """A sealed bundle of a graph from x to y that no checker has seen."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 1]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 18), *(helper.make_opsetid(domain, 1) for domain in domains)]
    folder.mkdir()
    (folder / "model.onnx").write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    )
    (folder / "bundle.json").write_text(json.dumps(description()))
    seal(folder)
    return folder
