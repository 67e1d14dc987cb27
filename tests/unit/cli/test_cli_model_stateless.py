"""`o3ctl model inspect` and `bench` of models without tokens: what is printed, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli.main import app
from gateway.core.errors import InferenceError
from gateway.inference.bundle.stateless import load_stateless
from gateway.inference.quantize.stateless import bench_stateless, inspect_stateless
from gateway.inference.serving import stateless_model
from tests.unit.inference_exports import CLASSIFIER, FORECASTER, REGRESSOR, STATELESS


def run(*arguments: str) -> tuple[int, str, str]:
    ran = CliRunner().invoke(app, ["model", *arguments], env={"COLUMNS": "160"})
    return ran.exit_code, ran.stdout, ran.stderr


def test_inspect_shows_tags_what_an_answer_is_and_where_it_stands_in_the_graph() -> None:
    status, out, _ = run("inspect", str(CLASSIFIER))

    assert status == 0
    for part in (
        "stateless",
        "0.2 to 3.9",
        "probabilities of 2, most probable",
        "batch x 2",
        "not asked for",
    ):
        assert part in out
    assert "X" in out
    assert "TK1.LT101, TK1.FT101, TK1.TT101; 1 row, flat" in out


def test_inspect_as_json_tells_the_rows_that_a_forecaster_reads() -> None:
    status, out, _ = run("inspect", str(FORECASTER), "--json")
    told = json.loads(out)

    assert status == 0
    assert told["digest"] == load_stateless(FORECASTER).digest
    assert told["steps"] == 4
    read, answered = told["tensors"]
    assert (read["shape"], read["holds"].endswith("; 4 rows, flat")) == (["batch", 12], True)
    assert answered["holds"] == "TK1.P101.SP at [0]"


@pytest.mark.parametrize("directory", STATELESS, ids=lambda directory: directory.name)
def test_bench_times_answers_one_at_a_time_and_together(directory: Path) -> None:
    status, out, _ = run("bench", str(directory), "--rounds", "5", "--json")
    told = json.loads(out)

    assert status == 0
    assert [one["batch"] for one in told["timed"]] == [1, 8]
    for one in told["timed"]:
        assert 0 < one["p50_ms"] <= one["p99_ms"]
        assert one["answers_per_s"] == pytest.approx(one["batch"] / one["p50_ms"] * 1e3)
    assert told["model_bytes"] == (directory / "model.onnx").stat().st_size


def test_bench_for_people_names_the_provider() -> None:
    status, out, _ = run("bench", str(REGRESSOR), "--rounds", "2", "--batch", "3")

    assert status == 0
    assert "CPUExecutionProvider; model 1051 B" in out
    assert "3" in out.split("answers/s")[1]


def test_a_graph_for_one_request_at_a_time_is_timed_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stateless_model.StatelessModel, "widest", property(lambda _: 1))
    bundle = load_stateless(REGRESSOR)

    assert [one.batch for one in bench_stateless(bundle, rounds=2).timed] == [1]
    with pytest.raises(InferenceError, match="the graph takes 1 request at a time: export it for any number"):
        bench_stateless(bundle, batches=(8,), rounds=2)
    with pytest.raises(InferenceError, match="at least one request"):
        bench_stateless(bundle, batches=(), rounds=2)


def test_a_graph_that_is_not_what_the_bundle_says_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stateless_model, "_RANKS", {"flat": 3})
    with pytest.raises(InferenceError, match=r"correct bundle\.json or export the model again"):
        inspect_stateless(load_stateless(REGRESSOR))
    status, _, err = run("inspect", str(tmp_path))
    assert status == 1
    assert "copy the whole bundle folder" in err


def test_none_of_it_needs_onnx() -> None:
    code = (
        "import sys; sys.modules['onnx'] = None\n"
        "from gateway.cli.main import app\n"
        f"app(['model', 'inspect', {str(REGRESSOR)!r}, '--json'], standalone_mode=False)\n"
        f"app(['model', 'bench', {str(REGRESSOR)!r}, '--rounds', '2', '--json'], standalone_mode=False)\n"
    )
    ran = subprocess.run(  # noqa: S603 - our own interpreter and text
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=360
    )

    assert '"tensors"' in ran.stdout
    assert '"timed"' in ran.stdout
