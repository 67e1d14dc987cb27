"""`o3ctl model`: what is printed, for people and for programs, and the exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli.main import app
from gateway.inference.bundle.manifest import load_bundle
from gateway.inference.quantize.recipes import RECIPES, Recipe
from tests.unit.inference_demo import BUNDLES
from tests.unit.quantize_demo import DEMO, made

_LOOP = ("--seeds", "1", "--cycles", "40")
SHORT = (*_LOOP, "--fitted", "0")


def run(*arguments: str) -> tuple[int, str, str]:
    ran = CliRunner().invoke(app, ["model", *arguments])
    return ran.exit_code, ran.stdout, ran.stderr


def test_quantize_makes_a_bundle_and_shows_every_figure_with_its_bar(tmp_path: Path) -> None:
    status, out, _ = run("quantize", str(DEMO), "-o", str(tmp_path / "m"), "-r", "mixed", *SHORT)

    assert status == 0
    for part in ("L2 over L2", "likeliest value differs", "expected action off", "closed-loop objective"):
        assert part in out
    assert "accepted" in out
    assert "4 in 4 bit, 9 in float16" in out
    assert load_bundle(tmp_path / "m").manifest.quantization.kind == "mixed"


def test_without_a_recipe_a_bundle_is_made_as_the_shipped_ones_are(tmp_path: Path) -> None:
    status, _, _ = run("quantize", str(DEMO), "-o", str(tmp_path / "m"), *SHORT)

    assert status == 0
    made, shipped = load_bundle(tmp_path / "m").manifest, load_bundle(BUNDLES / "buffer-tank").manifest
    assert made.made is not None
    assert made.made.recipe == "int8w"
    assert made.quantization == shipped.quantization


def test_quantize_as_json_says_the_same(tmp_path: Path) -> None:
    arguments = ("-o", str(tmp_path / "m"), "--recipe", "fp32", "--kv", "int8", *SHORT, "--json")
    status, out, _ = run("quantize", str(DEMO), *arguments)
    told = json.loads(out)

    assert status == 0
    assert told["gated"]
    assert told["figures"]["relative_l2"] <= told["gates"]["relative_l2"]
    assert told["digest"] == load_bundle(tmp_path / "m").digest


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_missed_bar_ends_quantize_with_1_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: tuple[str, ...]
) -> None:
    strict = {name: getattr(RECIPES["int4"], name) for name in Recipe.__dataclass_fields__}
    monkeypatch.setitem(RECIPES, "int4", Recipe(**strict | {"relative_l2": 0.001}))
    status, out, err = run("quantize", str(DEMO), "-o", str(tmp_path / "m"), "-r", "int4", *SHORT, *form)

    assert status == 1
    assert "relative_l2 is" in err
    if form:
        assert json.loads(out)["failures"]
    else:
        assert "missed" in out
        assert "refused" in out
    assert list(tmp_path.iterdir()) == []


def test_optimize_says_what_was_fused(tmp_path: Path) -> None:
    status, out, _ = run("optimize", str(DEMO), "-o", str(tmp_path / "m"), *_LOOP)

    assert status == 0
    assert "fused: " in out
    assert "gone" in out


def test_inspect_shows_tags_types_and_the_bytes_of_keys_and_values() -> None:
    directory = str(made("fp32", "int8").bundle.directory)
    status, out, _ = run("inspect", directory, "--tensors")
    told = json.loads(run("inspect", directory, "--json")[1])

    assert status == 0
    for part in ("TK1.LT101", "swa 366 tokens", "ReduceMax", "wq_0", "gated on CPUExecutionProvider"):
        assert part in " ".join(out.split())
    assert told["kv"]["pool_bytes"] == pytest.approx(told["kv"]["pool_bytes_allocated"], rel=0.05)
    assert told["kv"]["token_bytes"] == 288
    assert {tensor["type"] for tensor in told["tensors"]} == {"float32", "int64"}


@pytest.mark.parametrize("name", ["buffer-tank", "reckless"])
def test_inspect_shows_every_figure_on_record_of_a_shipped_bundle(name: str) -> None:
    directory = BUNDLES / name
    figures = load_bundle(directory).manifest
    out = run("inspect", str(directory))[1]

    on_record = figures.accuracy | figures.closed_loop
    for figure in ("relative_l2", "top1_delta", "expected_action_error_of_span", "objective_over_twin"):
        assert f"{on_record[figure]:.5f}" in out
    assert "likeliest value differs" in out
    assert "not known" not in out


def test_inspect_says_in_words_what_a_recipe_did() -> None:
    status, out, _ = run("inspect", str(made("int8a8").bundle.directory))

    assert status == 0
    assert "what is multiplied by them in 8 bits, row by row" in " ".join(out.split())


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_gate_accepts_the_shipped_bundle(form: tuple[str, ...]) -> None:
    status, out, _ = run("gate", str(DEMO), *_LOOP, *form)

    assert status == 0
    assert "accepted" in out


def test_gate_ends_with_1_where_a_bar_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    strict = {name: getattr(RECIPES["int8w"], name) for name in Recipe.__dataclass_fields__}
    monkeypatch.setitem(RECIPES, "int8w", Recipe(**strict | {"row_p99": 0.0001}))
    status, out, _ = run("gate", str(DEMO), *_LOOP)

    assert status == 1
    assert "missed" in out


def test_gate_says_of_a_bundle_for_cuda_that_it_is_gated_there(tmp_path: Path) -> None:
    made_there = run("quantize", str(DEMO), "-o", str(tmp_path / "m"), "-r", "fp16", "--device", "cuda")
    status, _, err = run("gate", str(tmp_path / "m"), *_LOOP)

    assert made_there[0] == 0
    assert "not measured" in made_there[1]
    assert status == 1
    assert "made for `cuda`" in err
    assert json.loads(run("inspect", str(tmp_path / "m"), "--json")[1])["kv"]["pool_bytes_allocated"] is None


def test_bench_times_decode_and_prefill_at_each_batch() -> None:
    status, out, _ = run("bench", str(DEMO), "--rounds", "3")
    told = json.loads(run("bench", str(DEMO), "--rounds", "3", "--batch", "2", "--json")[1])

    assert status == 0
    assert out.count("decode") == out.count("prefill") == 2
    assert [(one["forward"], one["batch"]) for one in told["timed"]] == [("decode", 2), ("prefill", 2)]
    assert all(0 < one["p50_ms"] <= one["p99_ms"] for one in told["timed"])


@pytest.mark.parametrize("verb", ["inspect", "gate", "bench"])
def test_a_folder_without_a_bundle_is_told_in_one_sentence(verb: str, tmp_path: Path) -> None:
    status, _, err = run(verb, str(tmp_path))

    assert status == 1
    assert "bundle.json cannot be read" in err
    assert "Traceback" not in err


def test_without_onnx_gate_and_bench_work_and_the_others_say_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['onnx'] = None\n"
        "from typer.testing import CliRunner\n"
        "from gateway.cli.main import app\n"
        "for words in sys.argv[1:]:\n"
        "    ran = CliRunner().invoke(app, ['model', *words.split('|')])\n"
        "    print(ran.exit_code, type(ran.exception).__name__, ran.stderr.replace('\\n', ' '))\n"
    )
    out = str(tmp_path / "m")
    verbs = (
        ("gate", str(DEMO), *_LOOP),
        ("bench", str(DEMO), "--rounds", "2"),
        ("inspect", str(DEMO)),
        ("quantize", str(DEMO), "-o", out),
        ("optimize", str(DEMO), "-o", out),
    )
    ran = subprocess.run(  # noqa: S603 - our own interpreter and text
        [sys.executable, "-c", code, *map("|".join, verbs)],
        capture_output=True,
        text=True,
        check=True,
        timeout=360,
    )
    gate, bench, *others = ran.stdout.splitlines()

    assert (gate.split()[0], bench.split()[0]) == ("0", "0")
    assert len(others) == 3
    for said in others:
        assert said.startswith("1 SystemExit o3ctl: this needs the package `onnx`, which the gateway itself")
        assert said.rstrip().endswith("pip install 'o3-gateway[models]'")
