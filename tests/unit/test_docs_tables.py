"""The commands of `docs/tables.md`, typed in order with the tables of the page."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli.main import app
from tests.unit.solver_demo import BUFFER_TANK, ROOT

PAGE = ROOT / "docs" / "tables.md"
_BLOCKS = re.findall(r"^```\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
TABLES = [block for block in _BLOCKS if block.startswith("row,")]
COMMANDS = [line for block in _BLOCKS for line in block.splitlines() if line.startswith("o3ctl ")]


def test_every_command_of_the_page_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(BUFFER_TANK, "tank.json")
    for name, table in zip(("ce.csv", "windows.csv"), TABLES, strict=True):
        Path(name).write_text(table)
    said = ""
    for command in COMMANDS:
        done = CliRunner().invoke(app, shlex.split(command, comments=True)[1:])
        assert done.exit_code == 0, f"{command}\n{done.output}"
        said += done.output
    assert len(COMMANDS) == 6
    assert "LALL101,level <= 0.1,standard,too low,X,X" in said
    assert re.search(r"^W1,level,.*0\.15,3\.7", said, re.MULTILINE), said
