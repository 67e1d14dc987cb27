import json
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from gateway.core.tag import TagDefinition, TagId, TagKind
from gateway.inference.bundle.manifest import BundleError, check_tags, load_bundle
from tests.unit.inference_demo import BUFFER_TANK, RECKLESS, demo_definitions


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(BUFFER_TANK, tmp_path / "copy"))


def _edit(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = directory / "bundle.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize("directory", [BUFFER_TANK, RECKLESS])
def test_shipped_bundles_load_and_fit_the_demo_tags(directory: Path) -> None:
    bundle = load_bundle(directory)

    check_tags(bundle, demo_definitions())

    assert bundle.tokens_per_cycle == 6
    assert bundle.history_cycles * 6 >= bundle.manifest.window.length * bundle.manifest.architecture.layers


def test_a_changed_model_is_refused(copy: Path) -> None:
    with (copy / "model.onnx").open("ab") as file:
        file.write(b"\0")

    with pytest.raises(BundleError, match=r"SHA-256 .* copy the bundle again"):
        load_bundle(copy)


def test_a_missing_file_is_refused(copy: Path) -> None:
    (copy / "model.onnx").unlink()

    with pytest.raises(BundleError, match="copy the whole bundle folder"):
        load_bundle(copy)


def test_a_folder_without_a_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"bundle.json cannot be read"):
        load_bundle(tmp_path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda m: m["quantization"].update(kind="int4"), "quantization `int4` of 8 bits is not supported"),
        (lambda m: m["quantization"].update(bits=3), "of 3 bits is not supported"),
        (lambda m: m["window"].update(mode="ring"), "window mode `ring` is not supported"),
        (lambda m: m.update(format=2), "format 2 is not known"),
        (lambda m: m.update(colour="red"), "unknown field"),
        (lambda m: m["files"].pop("model.onnx"), "does not list model.onnx"),
        (lambda m: m["files"].update({"../x": m["files"]["model.onnx"]}), "leaves the bundle"),
        (lambda m: m["inputs"][0].update(knots=["0", "0"]), "ascending"),
        (lambda m: m["inputs"][0].update(knots=["0", "many"]), "is no decimal"),
        (lambda m: m["inputs"][1].update(first_token=m["inputs"][0]["first_token"]), "overlap"),
        (lambda m: m["confidence"].update(hit_rate=[]), "confidence table"),
        (lambda m: m.update(outputs=[]), "no output tag"),
    ],
)
def test_a_bundle_that_cannot_be_trusted_says_why(
    copy: Path, change: Callable[[dict[str, Any]], object], sentence: str
) -> None:
    _edit(copy, change)

    with pytest.raises(BundleError, match=sentence):
        load_bundle(copy)


def test_a_range_wider_than_the_bins_is_refused() -> None:
    definitions = demo_definitions()
    wide = TagDefinition(
        id=TagId("TK1.LT101"),
        kind=TagKind.REAL,
        unit="m",
        eu_range=(Fraction(0), Fraction(6)),
        raw_range=(0, 6000),
    )

    with pytest.raises(BundleError, match="narrow the range or train with wider bins"):
        check_tags(load_bundle(BUFFER_TANK), {**definitions, wide.id: wide})


def test_a_missing_tag_and_a_wrong_unit_are_refused() -> None:
    definitions = demo_definitions()
    bundle = load_bundle(BUFFER_TANK)
    without = {tag: d for tag, d in definitions.items() if tag != "TK1.FT101"}
    other = TagDefinition(id=TagId("TK1.LT101"), kind=TagKind.REAL, unit="mm")

    with pytest.raises(BundleError, match="is not configured"):
        check_tags(bundle, without)
    with pytest.raises(BundleError, match="correct the unit"):
        check_tags(bundle, {**definitions, other.id: other})
