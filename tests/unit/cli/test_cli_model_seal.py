"""`o3ctl model seal`: a bundle of one's own is finished, and its model shows itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli.main import app
from gateway.inference.bundle.any_bundle import load_any
from gateway.inference.seal import main
from tests.unit.inference_exports import OPTIMUM_LLAMA, REGRESSOR


def run(*arguments: str) -> tuple[int, str, str]:
    ran = CliRunner().invoke(app, ["model", "seal", *arguments])
    return ran.exit_code, ran.stdout, ran.stderr


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """An export whose description has no digests yet."""
    folder = Path(shutil.copytree(REGRESSOR, tmp_path / "own"))
    told = json.loads((folder / "bundle.json").read_text())
    del told["files"]
    (folder / "bundle.json").write_text(json.dumps(told))
    return folder


def test_sealing_writes_the_digests_and_says_what_the_model_showed(own: Path) -> None:
    status, said, _ = run(str(own))
    bundle = load_any(own)

    assert status == 0
    assert bundle.manifest.files["model.onnx"].bytes == (own / "model.onnx").stat().st_size
    lines = dict(line.split(maxsplit=1) for line in said.splitlines())
    assert (
        lines["bundle"] == f"{bundle.manifest.id}/{bundle.manifest.revision}, sealed as {bundle.digest[:12]}…"
    )
    assert lines["backend"] == "stateless"
    assert lines["outputs"] == ", ".join(spec.tag for spec in bundle.manifest.outputs)
    assert "requests in a forward" in said


def test_programs_are_told_the_same(own: Path) -> None:
    status, said, _ = run(str(own), "--json")
    told, bundle = json.loads(said), load_any(own)

    assert status == 0
    assert (told["bundle"], told["digest"]) == (str(own), bundle.digest)
    assert (told["id"], told["revision"]) == (bundle.manifest.id, bundle.manifest.revision)
    assert told["inputs"] == [spec.tag for spec in bundle.manifest.inputs]
    assert told["outputs"] == [spec.tag for spec in bundle.manifest.outputs]
    assert told["facts"]["backend"] == "stateless"
    assert told["runs_on"] == "CPUExecutionProvider"
    assert 0 < told["decision_ms"] <= told["slow_ms"]
    assert told["at_once"] >= 1


def test_a_sealed_bundle_is_sealed_again_with_the_same_digest(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OPTIMUM_LLAMA, tmp_path / "own"))
    digests = [json.loads(run(str(folder), "--json")[1])["digest"] for _ in range(2)]
    assert digests[0] == digests[1]


def test_a_file_that_changed_since_it_was_sealed_is_taken_as_it_is_now(own: Path) -> None:
    before = json.loads(run(str(own), "--json")[1])["digest"]
    told = json.loads((own / "bundle.json").read_text())
    told["description"] = "another one"
    (own / "bundle.json").write_text(json.dumps(told))
    assert json.loads(run(str(own), "--json")[1])["digest"] != before


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_what_does_not_fit_is_said_in_a_sentence_and_is_status_1(own: Path, options: tuple[str, ...]) -> None:
    (own / "model.onnx").unlink()
    status, said, wrong = run(str(own), *options)

    assert status == 1
    assert [json.loads(line)["ok"] for line in said.splitlines()] == [False] * len(options)
    assert wrong.startswith("o3ctl: ")
    assert "model.onnx cannot be read (No such file or directory): put it there" in wrong


def test_a_folder_without_a_description_is_said(tmp_path: Path) -> None:
    status, _, wrong = run(str(tmp_path))
    assert (status, wrong.startswith("o3ctl: "), "bundle.json" in wrong) == (1, True, True)


def test_the_module_by_itself_says_the_same_words(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, said, _ = run(str(own))
    assert main([str(own)]) == 0
    told = capsys.readouterr().out
    timed = [line for line in told.splitlines() if not line.startswith("a decision")]
    assert timed == [line for line in said.splitlines() if not line.startswith("a decision")]
