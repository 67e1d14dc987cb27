from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from gateway.cli.main import app

DEMO = Path(__file__).resolve().parents[3] / "packaging" / "demo" / "gateway.toml"


def test_check_prints_every_problem_at_once_and_is_status_1(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text("[gateway]\nid = 3\nstate_dri = 'x'\n")

    people = CliRunner().invoke(app, ["check", str(path)])
    programs = CliRunner().invoke(app, ["check", str(path), "--json"])

    assert people.exit_code == programs.exit_code == 1
    assert f"{path}:2:" in people.stdout
    assert "did you mean `state_dir`?" in people.stdout
    assert "problems; nothing was changed" in people.stdout
    report = json.loads(programs.stdout)
    assert not report["ok"]
    assert len(report["problems"]) > 2


def test_check_of_a_missing_file_is_a_problem_and_not_a_traceback(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["check", str(tmp_path / "none.toml")])

    assert result.exit_code == 1
    assert "cannot be read" in result.stdout


# S11: `o3ctl check` prints the sum a horizon would have to cover.
def test_check_of_the_demo_prints_a_summary_and_the_lease_sum() -> None:
    people = CliRunner().invoke(app, ["check", str(DEMO)])
    programs = CliRunner().invoke(app, ["check", str(DEMO), "--json"])

    assert people.exit_code == 0, people.stdout
    (lease,) = json.loads(programs.stdout)["leases"]
    assert lease["total"] == sum(seconds for _, seconds in lease["terms"])
    assert f"= {lease['total']:g} s" in people.stdout
    assert "PLC lease 3" in people.stdout
    assert "1 channel, 1 device, 12 tags, 1 decision point, digest " in people.stdout
    assert "decision point `buffer-tank`" in people.stdout
