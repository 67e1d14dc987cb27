"""Where a verb fails, programs get one JSON value with the sentence that people read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli.main import app

MODULE = "constraints/buffer-tank.json"
CASES = {
    "no gateway": (["status", "--socket", "nosuch.sock"], 3, "no gateway runs at nosuch.sock"),
    "none to follow": (["decisions", "--follow", "--socket", "nosuch.sock"], 3, "no gateway runs at"),
    "no file": (["analyze", "nosuch.json"], 1, "`nosuch.json` cannot be read: No such file"),
    "no module": (["runtime", "load", "nosuch.json"], 1, "`nosuch.json` cannot be read: No such file"),
    "no sheet": (["binding", "sign", "tank", "--file", "nosuch.csv"], 1, "`nosuch.csv` cannot be read: No"),
    "no bundle": (["model", "inspect", "nosuch"], 1, "bundle.json cannot be read (No such file"),
    "no certificate": (["certificate", "verify", "nosuch"], 2, "`nosuch` cannot be read"),
    "no log": (["backtest", MODULE, "--state-dir", "nosuch"], 1, "there is no audit log at"),
    "no key": (
        ["compile", "-i", MODULE, "-o", "nosuch/m.o3c", "--sign", "README.md"],
        1,
        "key `README.md` cannot be used: it is no private key in PEM without a password",
    ),
    "a word is missing": (["explain"], 2, "Missing argument 'DECISION'."),
    "a word too many": (["runtime", "list", "all"], 2, "Got unexpected extra argument(s) (all)"),
    "out of range": (["decisions", "--limit", "0"], 2, "Invalid value for '--limit'"),
    "no such verb": (["stauts"], 2, "No such command 'stauts'"),
    "no time": (["backtest", MODULE, "--since", "3x"], 2, "`3x` is no length of time: write such as 30d"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_failure_is_one_json_value_with_the_sentence_people_read(case: str) -> None:
    words, status, sentence = CASES[case]
    people = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    programs = CliRunner().invoke(app, [*words, "--json"], env={"COLUMNS": "200"})
    told = json.loads(programs.stdout)

    assert people.stdout == ""
    assert sentence in people.stderr
    assert sentence in told["error"]
    assert "Errno" not in told["error"]
    assert (told["ok"], told["exit_status"]) == (False, status)
    assert people.exit_code == programs.exit_code == status


def test_options_before_the_verb_that_are_wrong_are_told_to_programs_too() -> None:
    told = CliRunner().invoke(app, ["--json", "status"])
    assert json.loads(told.stdout)["error"] == "No such option: --json"


def test_what_a_verb_printed_itself_is_the_only_value() -> None:
    told = CliRunner().invoke(app, ["check", "nosuch.toml", "--json"])
    assert told.exit_code == 1
    assert json.loads(told.stdout)["problems"] == [
        "nosuch.toml:1:1: the file cannot be read: No such file or directory"
    ]


def test_a_sheet_that_is_no_text_is_refused_with_what_to_do(tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.csv"
    sheet.write_bytes(b"tag;\xb0C")
    told = CliRunner().invoke(app, ["binding", "sign", "tank", "--file", str(sheet)])
    assert told.exit_code == 1
    assert told.stderr == f"o3ctl: `{sheet}` is not UTF-8 text; save the sheet as CSV in UTF-8\n"
