from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gateway.cli.main import app
from tests.unit.solver_demo import BUFFER_TANK, LOWER_LEVEL, ROOT
from tests.unit.solver_heaters import TERMINAL, document

DEMO_TAGS = ROOT / "packaging" / "demo" / "tk1.csv"


def ran(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["analyze", *map(str, arguments)], env={"COLUMNS": "200"})


def heaters(folder: Path, **more: object) -> Path:
    path = folder / "heaters.json"
    path.write_text(json.dumps(document(**more), indent=1))
    return path


def edited(path: Path, source: Path, *changes: tuple[str, str]) -> Path:
    text = source.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return path


def test_analyze_of_a_good_module_is_status_0_and_tells_errors_and_units(tmp_path: Path) -> None:
    found = ran(heaters(tmp_path, terminal=list(TERMINAL), horizon=8))

    assert found.exit_code == 0, found.stdout
    assert "heaters.json: module `heaters` revision 1" in found.stdout
    assert "proved: the terminal set is invariant under the backup" in found.stdout
    assert "t1: error 0.3 = 0.3 degC; then moves by its dynamics" in found.stdout
    assert "K/%" in found.stdout
    assert "tags were taken as the module says they are" in found.stdout


# Nearest trouble first, for people and for programs; status 1.
def test_analyze_tells_the_escaping_state_first_and_as_a_course_of_events(tmp_path: Path) -> None:
    path = heaters(tmp_path, safe_set=["t1 <= 60", "t2 <= 60"])

    people, programs = ran(path), ran(path, "--json")

    assert people.exit_code == programs.exit_code == 1
    lines = people.stdout.splitlines()
    assert lines[1].startswith("refused   safe set")
    assert "is not kept from t1 " in lines[1]
    assert lines[2].strip().startswith("already in the set: t1 ")
    assert lines[-1].startswith("2 refused")
    report = json.loads(programs.stdout)
    assert not report["ok"]
    assert report["findings"][0]["level"] == "refused"
    assert report["findings"][0]["story"]


def test_analyze_of_what_is_no_module_says_where_and_is_status_1(tmp_path: Path) -> None:
    path = edited(tmp_path / "bad.json", LOWER_LEVEL, ("level <= 3.2", "levle <= 3.2"))

    people, programs = ran(path), ran(path, "--json")

    assert people.exit_code == programs.exit_code == 1
    assert f"{path}:9:" in people.stdout
    assert "did you mean `level`?" in people.stdout
    assert "nothing more is asked of it" in people.stdout
    assert json.loads(programs.stdout)["refused"]


def test_analyze_against_a_folder_names_both_modules_of_a_conflict(tmp_path: Path) -> None:
    active = tmp_path / "active"
    active.mkdir()
    edited(active / "tank.json", BUFFER_TANK)
    clash = edited(
        tmp_path / "clash.json",
        LOWER_LEVEL,
        ('"require": "level <= 3.2"', '"require": "level >= 3.7"'),
        ('"level": "3.21"', '"level": "3.6"'),
        ('"level": "3.2", "inflow"', '"level": "3.7", "inflow"'),
    )

    found = ran(clash, "--against", active, "--tags", DEMO_TAGS)

    assert found.exit_code == 1
    line = next(x for x in found.stdout.splitlines() if "can never hold together" in x)
    assert "`lower-level` of module `lower-level-limit` (clash.json:9: `level >= 3.7`)" in line
    assert "`no-overflow` of module `buffer-tank` (tank.json:17: `level <= 3.6`)" in line


def test_analyze_against_shows_what_a_new_revision_permits_and_refuses(tmp_path: Path) -> None:
    active = tmp_path / "active"
    active.mkdir()
    edited(active / "limit.json", LOWER_LEVEL)
    lower = edited(
        tmp_path / "lower.json",
        LOWER_LEVEL,
        ('"revision": 1', '"revision": 2'),
        ('"require": "level <= 3.2"', '"require": "2*level <= 6.2"'),
        ('"level": "3.2", "inflow"', '"level": "3.1", "inflow"'),
    )

    found = ran(lower, "--against", active, "--tags", DEMO_TAGS)

    assert "proved: what this revision permits revision 1 permits too" in found.stdout
    assert "newly refused against revision 1: level 3." in found.stdout
    assert "newly permitted against revision 1: no snapshot in range" in found.stdout


def test_analyze_does_not_pass_over_a_file_that_is_no_module(tmp_path: Path) -> None:
    active = tmp_path / "active"
    active.mkdir()
    (active / "odd.json").write_text("{")

    found = ran(heaters(tmp_path, terminal=list(TERMINAL), horizon=8), "--against", active)

    assert found.exit_code == 1
    assert "not known conflicts    not compared with what is no module:" in found.stdout


# It may be a rule that the gateway has in force from before.
def test_analyze_says_which_link_leads_nowhere_and_that_it_was_not_compared(tmp_path: Path) -> None:
    active = tmp_path / "active"
    active.mkdir()
    module = heaters(tmp_path, terminal=list(TERMINAL), horizon=8)
    (active / "heaters.json").symlink_to(module)  # itself, which is not held against itself
    fine = ran(module, "--against", active)
    (active / "gone.json").symlink_to(tmp_path / "nowhere.json")
    (active / "loop.json").symlink_to(active / "loop.json")
    (active / "folder.json").mkdir()

    found = ran(module, "--against", active, "--json")

    assert fine.exit_code == 0, fine.stdout
    assert found.exit_code == 1
    told = [f["said"] for f in json.loads(found.stdout)["findings"] if f["level"] == "unknown"]
    before = f"not compared with what is no module: {active}/"
    assert f"{before}gone.json: it is a link to `{tmp_path}/nowhere.json`, where nothing is" in told
    assert f"{before}folder.json: it is not a regular file" in told
    assert any(said.startswith(f"{before}loop.json: ") for said in told)


def test_analyze_over_budget_says_so_and_is_not_fine() -> None:
    found = ran(BUFFER_TANK, "--budget", "0.1", "--tags", DEMO_TAGS)

    assert found.exit_code == 1
    assert "whether the safe set is invariant under the backup: not known in the budget" in found.stdout
    assert "proved" not in found.stdout


def test_analyze_keeps_its_answers_beside_the_gateways_state_and_tells_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gateway.toml", "tk1.csv"):
        (tmp_path / name).write_text((ROOT / "packaging" / "demo" / name).read_text())
    state = tmp_path / "state"
    state.mkdir()
    arguments = (LOWER_LEVEL, "--config", tmp_path / "gateway.toml", "--json")

    first = ran(*arguments)
    monkeypatch.setattr("gateway.solver.analysis.analyze.analyze", None)  # not asked again
    again = ran(*arguments)

    assert first.stdout == again.stdout
    assert len(list((state / "analysis").glob("*.json"))) == 1
    assert [name for name, _ in json.loads(first.stdout)["times"]] == ["deadline", "write delay", "PLC scan"]


def test_analyze_suggests_a_safe_set_to_paste_and_it_is_proved_again(tmp_path: Path) -> None:
    path = edited(tmp_path / "tank.json", BUFFER_TANK)
    data = json.loads(path.read_text())
    del data["safe_set"]
    path.write_text(json.dumps(data, indent=1))

    found = ran(path, "--suggest-safe-set", "--tags", DEMO_TAGS, "--json")

    (suggested,) = [f for f in json.loads(found.stdout)["findings"] if f["question"] == "suggestion"]
    pasted = json.loads("{" + "".join(suggested["lines"]).rstrip(",") + "}")
    path.write_text(json.dumps({**data, **pasted}, indent=1))
    again = ran(path, "--tags", DEMO_TAGS)
    assert again.exit_code == 0, again.stdout
    assert "proved: the safe set is invariant" in again.stdout
