"""`o3ctl audit verify` on the files of a gateway that need not run."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli.audit.place import log_file
from gateway.cli.main import app
from gateway.core.clock import FakeClock
from gateway.storage.audit import AuditLog
from gateway.storage.offline import verify_file

DEMO = Path(__file__).parents[3] / "packaging" / "demo"


def written(folder: Path, events: int) -> Path:
    async def write() -> None:
        audit = AuditLog(folder / "audit.sqlite", FakeClock())
        await audit.start()
        for number in range(events):
            await audit.append_event("mode", "anna", {"number": str(number)})
        await audit.aclose()

    asyncio.run(write())
    return folder / "audit.sqlite"


def test_a_whole_log_is_said_to_be_whole_with_its_head(tmp_path: Path) -> None:
    written(tmp_path, 7)
    people = CliRunner().invoke(app, ["audit", "verify", "--state-dir", str(tmp_path)])
    programs = CliRunner().invoke(app, ["audit", "verify", "--state-dir", str(tmp_path), "--json"])
    assert people.exit_code == programs.exit_code == 0, people.output
    report = json.loads(programs.stdout)
    assert (report["ok"], report["rows"], report["broken_at"]) == (True, 7, None)
    assert "7 records, every one as it was appended" in people.stdout
    assert report["head"] in people.stdout


def test_a_changed_record_is_found_and_named(tmp_path: Path) -> None:
    changed = (
        "UPDATE audit SET body = CAST(replace(CAST(body AS TEXT), 'anna', 'otto') AS BLOB) WHERE sequence = 4"
    )
    with closing(sqlite3.connect(written(tmp_path, 7))) as database, database:
        database.execute(changed)
    people = CliRunner().invoke(app, ["audit", "verify", "--state-dir", str(tmp_path)])
    programs = CliRunner().invoke(app, ["audit", "verify", "--state-dir", str(tmp_path), "--json"])
    assert people.exit_code == programs.exit_code == 1
    assert "NOT as it was written: row 4 or a row before it was changed" in people.stdout
    assert "The 3 records before it are whole" in people.stdout
    assert json.loads(programs.stdout)["broken_at"] == 4


@pytest.mark.parametrize("content", [None, b"no database at all, but long enough to be read as a header" * 4])
def test_no_log_is_a_sentence_and_status_1(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "audit.sqlite").write_bytes(content)
    people = CliRunner().invoke(app, ["audit", "verify", "--state-dir", str(tmp_path)])
    programs = CliRunner().invoke(app, ["audit", "verify", "--state-dir", str(tmp_path), "--json"])
    assert people.exit_code == programs.exit_code == 1
    assert str(tmp_path / "audit.sqlite") in people.stderr
    assert json.loads(programs.stdout)["ok"] is False


def test_how_far_the_walk_is_can_be_heard(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    verify_file(written(tmp_path, 1200), lambda count, total: heard.append((count, total)))
    assert heard == [(500, 1200), (1000, 1200), (1200, 1200)]


# Who names the configuration has named the folder; a second option for it would be asked for in vain.
def test_the_log_of_a_configuration_is_the_one_in_its_state_folder(tmp_path: Path) -> None:
    for file in DEMO.iterdir():
        shutil.copyfile(file, tmp_path / file.name)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "engineer.hash").write_text("x")

    assert log_file(None, tmp_path / "gateway.toml") == tmp_path / "state" / "audit.sqlite"
    assert log_file(tmp_path, tmp_path / "gateway.toml") == tmp_path / "audit.sqlite"
