"""The launcher tells when a part it cannot replace has died."""

from __future__ import annotations

import asyncio
import importlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from gateway.cli.demo import __main__ as demo_start
from gateway.cli.demo.run import _demo_sheet, _first_decision, _last_words, _tell_of_death
from gateway.config.load import load
from gateway.link.messages import Answer, Ask
from gateway.link.server import LinkServer, Peer

DEMO = Path(__file__).resolve().parents[3] / "packaging" / "demo"


async def test_a_part_that_died_is_told_with_its_status_and_its_last_words(tmp_path: Path) -> None:
    log_file, out = tmp_path / "plant.log", io.StringIO()
    log_file.write_text("scan 1\n[port 15020] gone\n")
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "raise SystemExit(3)")
    async with asyncio.timeout(180):
        await _tell_of_death(Console(file=out, width=200), "plant", process, log_file, "the gateway goes on")
    said = out.getvalue()
    assert "the plant ended with status 3: the gateway goes on" in said
    assert "`make run` bring it back" in said
    assert "[port 15020] gone" in said


def test_a_log_that_is_not_there_is_a_sentence_too(tmp_path: Path) -> None:
    assert "cannot be read" in _last_words(tmp_path / "none.log")
    (tmp_path / "empty.log").touch()
    assert _last_words(tmp_path / "empty.log").endswith("empty.log is empty")


# S26: the demo goes the same way as an engineer.
def test_the_demos_sheet_is_handed_in_as_o3ctl_would() -> None:
    asked = _demo_sheet(load(DEMO / "gateway.toml"))
    assert asked["point"] == "buffer-tank"
    assert asked["text"] == (DEMO / "binding.csv").read_text()
    assert asked["by"] == "demo"


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("a file")
    done = subprocess.run(  # noqa: S603  our own module
        [sys.executable, "-m", "gateway.cli.demo", "--dir", str(tmp_path / "demo")],
        capture_output=True,
        text=True,
        timeout=360,
        check=False,
    )
    assert done.returncode == 1
    assert "the demo's files cannot be prepared: Not a directory" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_ctrl_c_while_modules_are_loaded_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupted)
    with pytest.raises(SystemExit) as ended:
        demo_start.main()
    assert ended.value.code == 130


# A second `make run` told of the first one's decision, and called the gateway ready on that.
async def test_the_first_verdict_is_one_of_this_run(tmp_path: Path) -> None:
    asked = 0

    async def answer(ask: Ask, _peer: Peer) -> Answer:
        nonlocal asked
        asked += 1
        views = [
            {"id": "d-old-9", "at_ns": 99, "outcome": "permitted"},
            {"id": "d-new-1", "at_ns": 101, "outcome": "undetermined"},
            {"id": "d-new-2", "at_ns": 102, "outcome": "permitted"},
        ]
        return Answer(id=ask.id, ok=True, result=[views[min(asked, 3) - 1]])

    socket_path = tmp_path / "o3.sock"
    server = LinkServer(socket_path, answer, list, frozenset({os.getuid()}))
    async with server.listening(), asyncio.timeout(60):
        assert (await _first_decision(socket_path, 100))["id"] == "d-new-2"
