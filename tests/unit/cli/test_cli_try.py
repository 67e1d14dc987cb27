"""`o3ctl try M.json --live`: every difference is told once its decision is durable; nothing is loaded."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli.backtest import trying
from gateway.cli.backtest.part import Job, Stretcher
from gateway.cli.backtest.report import Told
from gateway.cli.main import app
from gateway.core.decision import DecisionRecord
from gateway.solver.modules.assumed_tags import assumed_tags
from gateway.storage import chain
from gateway.storage.codec import record_to_plain
from tests.unit.backtest_log import record, write_log
from tests.unit.cli.test_cli_backtest import TIGHTER, changed
from tests.unit.solver_demo import BUFFER_TANK, Situation, proposal


def append(path: Path, *records: DecisionRecord) -> None:
    """What a running gateway appends."""
    rows = [chain.row("decision", record_to_plain(r), decision=r.id, point=r.point) for r in records]
    with contextlib.closing(chain.open_for_appending(path, 250)) as connection:
        assert not any(chain.append_rows(connection, rows))


def decided(number: int, pump: str) -> DecisionRecord:
    return record(number, Situation(level=2.0, pump="40"), proposal(pump))


def stretcher(folder: Path) -> Stretcher:
    data = changed(folder, *TIGHTER).read_bytes()
    tags = assumed_tags(data)
    return Stretcher(
        Job(log=folder / "audit.sqlite", module=(data, "tighter.json"), others=(), tags=tags, point=None)
    )


def test_each_difference_is_told_at_the_look_after_its_decision_and_what_was_before_is_not(
    tmp_path: Path,
) -> None:
    log = write_log(tmp_path / "audit.sqlite", [decided(0, "45")])
    told: list[tuple[str, Told]] = []
    judge = stretcher(tmp_path)
    follow = trying.Following(judge, lambda what, of: told.append((what, of)))
    counts: list[int] = []

    def ticks() -> Iterator[None]:
        append(log, decided(1, "45"), decided(2, "42"))
        yield
        counts.append(len(told))
        append(log, decided(3, "46"))
        yield
        counts.append(len(told))
        append(log, decided(4, "47"))  # between the last tick and the end

    follow.run(ticks())
    assert counts == [1, 2]
    assert [(what, of.decision, of.margin) for what, of in told] == [
        ("newly refused", "d-1", "-1"),
        ("newly refused", "d-3", "-2"),
        ("newly refused", "d-4", "-3"),
    ]
    assert told[0][1].values["TK1.P101.SP"] == "45"
    assert follow.found.kinds["still_permitted"] == 1
    judge.close()


def test_ctrl_c_ends_with_the_summary_of_what_was_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write_log(tmp_path / "audit.sqlite", [])
    judge = stretcher(tmp_path)
    follow = trying.Following(judge, trying._line)

    def ticks() -> Iterator[None]:
        append(log, decided(1, "45"))
        yield
        raise KeyboardInterrupt

    assert "nothing is loaded" in follow.begins()
    follow.run(ticks())
    follow.ends(as_json=False, assumed=True)
    said = capsys.readouterr().out
    assert "newly refused: d-1" in said
    assert "pump-ramp misses its limit by 1" in said
    judge.close()


def test_the_verb_needs_live_and_answers_in_lines_of_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write_log(tmp_path / "audit.sqlite", [])
    module = changed(tmp_path, *TIGHTER)
    assert CliRunner().invoke(app, ["try", str(module)]).exit_code == 2

    def ticks(_ends: float) -> Iterator[None]:
        append(log, decided(1, "45"))
        yield

    monkeypatch.setattr(trying, "_until", ticks)
    found = CliRunner().invoke(app, ["try", str(module), "--live", "--state-dir", str(tmp_path), "--json"])
    assert found.exit_code == 0, found.output
    first, last = (json.loads(line) for line in found.output.splitlines())
    assert (first["difference"], first["constraint"]) == ("newly refused", "pump-ramp")
    assert last["summary"]["kinds"]["newly_refused"] == 1


# Zero differences of zero decisions are no trial.
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_trial_in_which_nothing_was_decided_says_so_and_ends_with_1(
    form: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path / "audit.sqlite", [decided(0, "45")])
    module = changed(tmp_path, *TIGHTER)
    monkeypatch.setattr(trying, "_until", lambda _ends: iter(()))
    found = CliRunner().invoke(app, ["try", str(module), "--live", "--state-dir", str(tmp_path), *form])

    assert found.exit_code == 1
    assert "no decision was made meanwhile, so nothing is known of the module" in found.stderr
    if form:
        assert json.loads(found.stdout)["summary"]["decisions"] == 0


def test_without_against_it_is_judged_with_the_modules_that_the_state_folder_has_in_force(
    tmp_path: Path,
) -> None:
    from gateway.cli.backtest.backtesting import _in_force  # noqa: PLC0415
    from gateway.solver.in_force.activation import Activation, KeptModule  # noqa: PLC0415

    assert _in_force(tmp_path / "modules") == []
    kept = Activation(tmp_path / "modules")
    content = kept.keep(BUFFER_TANK.read_bytes())
    module = KeptModule(
        file="buffer-tank.json", content=content, revision=7, digest=content, last_success_ns=1
    )
    kept.commit(kept.reserve(), {"buffer-tank": module}, {}, {})
    assert _in_force(tmp_path / "modules") == [(BUFFER_TANK.read_bytes(), "buffer-tank.json")]
