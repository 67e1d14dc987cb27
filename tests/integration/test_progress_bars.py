"""A long command draws its progress on a terminal, and nothing where nobody watches."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.inference.bundle.manifest import load_bundle
from tests.unit.inference_demo import BUFFER_TANK

pytestmark = pytest.mark.integration

BAR = "━"
_SHORT = ("--seeds", "1", "--cycles", "40", "--fitted", "0")
_DECIDE_FOR_RICH = {"FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"}


def quantize(folder: Path) -> list[str]:
    """A short run of the longest command; `folder/made` is its bundle."""
    source = shutil.copytree(BUFFER_TANK, folder / "source")
    command = "from gateway.cli.main import app; app()"
    wanted = ("model", "quantize", str(source), "-o", str(folder / "made"), "-r", "fp32", "--kv", "int8")
    return [sys.executable, "-c", command, *wanted, *_SHORT, "--json"]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _DECIDE_FOR_RICH}
    return kept | {"TERM": "xterm-256color", "LANG": "C.UTF-8", "PYTHONUTF8": "1"}


def drawn(reader: int) -> Iterator[bytes]:
    """What reaches a terminal until its last writer has gone."""
    with contextlib.suppress(OSError):  # Linux ends a terminal without writers with EIO
        while part := os.read(reader, 65536):
            yield part


def test_on_a_terminal_quantize_draws_a_bar_for_each_stage_and_takes_it_away_again(tmp_path: Path) -> None:
    reader, terminal = pty.openpty()
    try:
        with (tmp_path / "out").open("wb") as out:
            process = subprocess.Popen(  # noqa: S603  our own command
                quantize(tmp_path), stdin=terminal, stdout=out, stderr=terminal, env=environment()
            )
            os.close(terminal)
            seen = b"".join(drawn(reader)).decode(errors="replace")
            status = process.wait(timeout=360)
    finally:
        os.close(reader)

    assert status == 0, seen
    assert BAR in seen
    assert "100 %" in seen
    assert seen.index(BAR) < seen.rindex("\x1b[2K")  # erased: nothing is left above the result
    assert BAR not in seen[seen.rindex("\x1b[2K") :]
    told = json.loads((tmp_path / "out").read_text())
    assert told["digest"] == load_bundle(tmp_path / "made").digest


def test_piped_it_draws_nothing_and_says_the_same(tmp_path: Path) -> None:
    done = subprocess.run(  # noqa: S603  our own command
        quantize(tmp_path), capture_output=True, check=True, env=environment(), timeout=360
    )

    assert done.stderr == b""
    assert json.loads(done.stdout)["digest"] == load_bundle(tmp_path / "made").digest
    assert BAR.encode() not in done.stdout
