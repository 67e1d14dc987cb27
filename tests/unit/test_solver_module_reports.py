"""Reports beside module files, in a folder into which others may write, too."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gateway.core.durable import write_durably
from gateway.solver.in_force.module_reports import ModuleReport, ReportWriter


@pytest.fixture
def writer(tmp_path: Path) -> ReportWriter:
    (tmp_path / "folder").mkdir()
    return ReportWriter(tmp_path / "folder", tmp_path / "state")


def report(summary: str = "the module cannot be used") -> ModuleReport:
    return ModuleReport(kind="refused", file="bad.json", at_ns=0, summary=summary)


# Else whoever may drop a module could have the gateway write over its own state.
def test_a_link_in_the_place_of_a_report_is_replaced_and_not_followed(
    tmp_path: Path, writer: ReportWriter
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for name in ("bad.refused.txt", ".bad.refused.txt.tmp"):
        (tmp_path / "folder" / name).symlink_to(precious)
    writer.write(report())
    assert precious.read_text() == "precious"
    assert not (tmp_path / "folder" / "bad.refused.txt").is_symlink()
    assert "cannot be used" in (tmp_path / "folder" / "bad.refused.txt").read_text()


# Opened to be written, a pipe waits for its reader: no other change would ever come into force.
def test_a_pipe_in_the_place_of_a_report_holds_nobody_up(tmp_path: Path, writer: ReportWriter) -> None:
    for name in ("bad.refused.txt", ".bad.refused.txt.tmp"):
        os.mkfifo(tmp_path / "folder" / name)
    writer.write(report())
    assert "cannot be used" in (tmp_path / "folder" / "bad.refused.txt").read_text()


def test_a_folder_in_the_place_of_a_report_is_told_to_the_log_alone(
    tmp_path: Path, writer: ReportWriter
) -> None:
    (tmp_path / "folder" / "bad.refused.txt").mkdir()
    writer.write(report())
    assert json.loads((tmp_path / "state" / "bad.json").read_text())["summary"] == "the module cannot be used"


def test_a_report_of_any_text_is_written(tmp_path: Path, writer: ReportWriter) -> None:
    writer.write(report("half a character \ud800 and °C"))
    text = (tmp_path / "folder" / "bad.refused.txt").read_text(encoding="utf-8")
    assert "half a character \\ud800 and °C" in text


def test_a_durable_write_follows_no_link_that_somebody_left(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / ".tank.json.tmp").symlink_to(precious)
    write_durably(tmp_path / "tank.json", b"{}")
    assert precious.read_text() == "precious"
    assert (tmp_path / "tank.json").read_bytes() == b"{}"
    assert not (tmp_path / "tank.json").is_symlink()
