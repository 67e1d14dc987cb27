"""What cannot be made, measured or run: each with a sentence that says what to do, and nothing is left."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from gateway.core.errors import InferenceError
from gateway.inference.bundle.made import Fused, Made
from gateway.inference.bundle.manifest import Bundle, load_bundle
from gateway.inference.bundle.target import check_target
from gateway.inference.quantize.benching import bench
from gateway.inference.quantize.figures import measure
from gateway.inference.quantize.making import GateRefusedError
from gateway.inference.quantize.optimizing import optimize
from gateway.inference.quantize.quantizing import Wish, quantize
from gateway.inference.quantize.recipes import RECIPES, Recipe
from gateway.inference.seal import seal
from tests.unit.inference_demo import RECKLESS
from tests.unit.quantize_demo import DEMO, SHORT, made

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


def copy(tmp_path: Path, change: Callable[[Path], None] = lambda _: None) -> Path:
    """The demo bundle with a change, sealed again."""
    there = tmp_path / "source"
    shutil.copytree(DEMO, there)
    change(there)
    return there


def left(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.iterdir() if path.name != "source")


def wish(source: Path, tmp_path: Path, recipe: str = "int8", **others: object) -> Wish:
    return msgspec.convert(
        {"source": source, "output": tmp_path / "made", "recipe": recipe, "length": SHORT, **others},
        Wish,
        dec_hook=lambda _, value: value,
    )


@pytest.mark.parametrize(
    ("others", "says"),
    [
        (
            {"recipe": "int3"},
            r"recipe `int3` is not known: use one of `fp32`, `int8`, `int8w`, `int8a8`, `int4`",
        ),
        ({"kv": "int4"}, r"cannot be kept in `int4`: use one of float32, float16, int8"),
        ({"device": "tpu"}, r"device `tpu` is not known: use `cpu` or `cuda`"),
        ({"block": 48}, r"a block has 16, 32, 64, 128 or 256 numbers, not 48"),
        ({"block": 0}, r"a block has 16, 32, 64, 128 or 256 numbers, not 0"),
        ({"recipe": "fp32"}, r"`fp32` changes nothing by itself: add --kv float16 or --kv int8"),
    ],
)
def test_a_wish_that_means_nothing_is_refused(tmp_path: Path, others: dict[str, str], says: str) -> None:
    with pytest.raises(InferenceError, match=says):
        quantize(wish(DEMO, tmp_path, **{"recipe": "int8", **others}))

    assert left(tmp_path) == []


def _without(name: str) -> Callable[[Path], None]:
    def change(there: Path) -> None:
        (there / name).unlink()
        described = json.loads((there / "bundle.json").read_text())
        del described["files"][name]
        (there / "bundle.json").write_text(json.dumps(described))
        seal(there)

    return change


def _with(name: str, content: bytes) -> Callable[[Path], None]:
    def change(there: Path) -> None:
        (there / name).write_bytes(content)
        seal(there)

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            _without("reference.onnx"),
            r"it has no reference.onnx and its model is `unfolded`: put the float32",
        ),
        (_without("gate.json"), r"it has no gate.json, the held-out cycles"),
        (_with("reference.onnx", b"no graph"), r"is no ONNX graph .*: export it again"),
        (_with("gate.json", b'[[["1"]]]'), r"gate.json is no record of held-out cycles"),
        (_with("gate.json", b"[]"), r"gate.json has no cycles: write it again with `o3ctl model hold-out`"),
    ],
)
def test_a_source_that_lacks_something_is_refused(
    tmp_path: Path, change: Callable[[Path], None], says: str
) -> None:
    source = copy(tmp_path, change)

    with pytest.raises(InferenceError, match=says):
        quantize(wish(source, tmp_path))
    assert left(tmp_path) == []


def test_a_damaged_source_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    source = copy(tmp_path)
    (source / "model.onnx").write_bytes((source / "model.onnx").read_bytes()[:1000])

    with pytest.raises(InferenceError, match="ends after 1000 of"):
        quantize(wish(source, tmp_path))
    assert left(tmp_path) == []


def test_an_output_that_exists_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()

    with pytest.raises(InferenceError, match="exists already: name another folder, or remove that one"):
        quantize(wish(DEMO, tmp_path))
    assert list((tmp_path / "made").iterdir()) == []


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InferenceError, match=r"cannot be made .*: name another folder"):
        quantize(wish(DEMO, tmp_path, output=tmp_path / "nowhere" / "made"))


def test_a_result_that_misses_a_bar_is_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strict = {name: getattr(RECIPES["int4"], name) for name in Recipe.__dataclass_fields__}
    monkeypatch.setitem(RECIPES, "int4", Recipe(**strict | {"relative_l2": 0.01}))

    with pytest.raises(
        GateRefusedError, match=r"`int4` is refused, nothing was written: relative_l2 is"
    ) as told:
        quantize(wish(DEMO, tmp_path, "int4"))
    assert told.value.figures.relative_l2 > 0.01
    assert left(tmp_path) == []


def test_a_reference_that_is_not_the_models_twin_is_found_by_the_figures(tmp_path: Path) -> None:
    other = (RECKLESS / "reference.onnx").read_bytes()
    source = copy(tmp_path, _with("reference.onnx", other))
    figures = measure(load_bundle(source), SHORT)

    missed = figures.failures(RECIPES["int8"].gates("float32"), needs_loop=False)

    assert any(sentence.startswith("relative_l2") for sentence in missed)
    assert any(sentence.startswith("expected_action_error_of_span") for sentence in missed)


def test_nothing_in_the_source_changes(tmp_path: Path) -> None:
    source = copy(tmp_path)
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    quantize(wish(source, tmp_path))

    assert {path.name: path.read_bytes() for path in source.iterdir()} == before
    assert left(tmp_path) == ["made"]


def test_for_cuda_it_is_made_here_but_runs_nowhere_before_it_is_measured_there(tmp_path: Path) -> None:
    result = quantize(wish(DEMO, tmp_path, "bf16", device="cuda"))
    bundle = load_bundle(result.bundle.directory)

    assert result.figures is None
    assert bundle.manifest.made is not None
    assert bundle.manifest.made.gated == ""
    assert bundle.manifest.accuracy == {}
    with pytest.raises(InferenceError, match="made for `cuda` and this is `CPUExecutionProvider`"):
        bench(bundle, rounds=1)
    with pytest.raises(InferenceError, match="made for `cuda`"):
        measure(bundle, SHORT)
    with pytest.raises(InferenceError, match="its gates have not been passed"):
        check_target(bundle, CUDA, "1.31.1")


def _fused(**others: str) -> Bundle:
    facts = {"level": "extended", "provider": CPU, "runtime": "1.31.1", "machine": "x86_64"} | others
    fused = Fused(**facts, operators={}, gone={}, new={})
    made_of = Made(recipe="int8", source="", tools={}, gated=CPU, fused=fused)
    source = load_bundle(DEMO)
    return Bundle(DEMO, msgspec.structs.replace(source.manifest, made=made_of), "")


@pytest.mark.parametrize(
    "others", [{"provider": CUDA}, {"runtime": "1.30.0"}, {"machine": "riscv64"}], ids=lambda o: next(iter(o))
)
def test_a_fused_graph_is_refused_on_another_target(others: dict[str, str]) -> None:
    with pytest.raises(InferenceError, match=r"its graph was fused for .*: make it again here with"):
        check_target(_fused(**others), CPU, "1.31.1")


def test_a_fused_graph_answers_as_before_and_says_what_was_fused(tmp_path: Path) -> None:
    result = optimize(DEMO, tmp_path / "made", "extended", length=SHORT)
    bundle, source = load_bundle(tmp_path / "made"), load_bundle(DEMO)

    assert bundle.manifest.made is not None
    fused = bundle.manifest.made.fused
    assert fused is not None
    assert (fused.level, fused.provider) == ("extended", CPU)
    assert fused.gone
    assert fused.new
    assert bundle.manifest.made.source == source.digest
    assert bundle.manifest.quantization == source.manifest.quantization
    assert result.figures is not None
    ours, theirs = result.figures, measure(source, SHORT)
    assert ours.relative_l2 == pytest.approx(theirs.relative_l2, rel=1e-3)
    with pytest.raises(InferenceError, match="its graph is fused already"):
        optimize(tmp_path / "made", tmp_path / "again", length=SHORT)


def test_what_was_quantized_can_be_fused_and_keeps_its_recipe(tmp_path: Path) -> None:
    optimize(made("fp32", "int8").bundle.directory, tmp_path / "made", length=SHORT)
    bundle = load_bundle(tmp_path / "made")

    assert bundle.manifest.made is not None
    assert bundle.manifest.made.recipe == "fp32"
    assert bundle.manifest.quantization.kv == "int8"
    assert bundle.manifest.gates["relative_l2"] == 0.02


def test_an_unknown_level_or_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InferenceError, match="level `best` is not known: use one of basic, extended, all"):
        optimize(DEMO, tmp_path / "made", "best", length=SHORT)
    with pytest.raises(InferenceError, match="device `tpu` is not known"):
        optimize(DEMO, tmp_path / "made", device="tpu", length=SHORT)


def test_a_bench_of_nothing_is_refused() -> None:
    with pytest.raises(InferenceError, match="at least one sequence"):
        bench(load_bundle(DEMO), batches=())


def test_without_onnx_the_tool_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['onnx'] = None\n"
        "from gateway.core.errors import InferenceError\n"
        "try:\n    import gateway.inference.quantize.quantizing\n"
        "except InferenceError as exc:\n    print(exc)\n"
    )
    ran = subprocess.run(  # noqa: S603 - our own interpreter and text
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=360
    )

    assert "pip install 'o3-gateway[models]'" in ran.stdout
