"""What a decision leaves behind for people: blocked text, the one alarm, durable follow-ups (S28)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from gateway.core.clock import FakeClock
from gateway.core.decision import (
    DecisionId,
    DecisionRecord,
    Mode,
    Outcome,
    Permitted,
    PointId,
    Refused,
    RegisterValue,
    Undetermined,
    Violated,
    WriteOutcome,
)
from gateway.daemon.reporting import Reporter
from gateway.link.messages import Alarm, DecisionView
from gateway.pipeline.point import Point
from gateway.storage.audit import AuditLog
from gateway.storage.state import DurableState
from tests.fakes.pipeline import COUNTEREXAMPLE, House, pump


class Told:
    def __init__(self, folder: Path) -> None:
        self.house = House()
        self.decisions: list[DecisionView] = []
        self.alarms: list[Alarm] = []
        self.points: list[Point] = []
        clock = FakeClock()
        self.reporter = Reporter(
            clock=clock,
            definitions=self.house.store.definitions,
            audit=AuditLog(folder / "audit.sqlite", clock),
            state=DurableState(folder / "state.json"),
            publish_decision=self.decisions.append,
            publish_alarm=self.alarms.append,
            publish_point=self.points.append,
        )

    def decide(self, outcome: Outcome, *, why: str = "", **changes: object) -> None:
        record = replace(RECORD, outcome=outcome, **changes)  # type: ignore[arg-type]  # fields by name
        self.reporter.decided(self.house.point, record, why)


RECORD = DecisionRecord(
    id=DecisionId("d-1"),
    point=PointId("tank"),
    mode=Mode.ARMED,
    requested_by="period",
    received_utc_ns=0,
    outcome=Undetermined("nobody knows"),
    proposal=None,
    written=(),
    written_by="",
    findings=(),
    inputs={},
    generation=1,
    rule_set_digest="digest-1",
    model_digest="",
    timings_ms={},
)


def test_the_third_undetermined_decision_raises_the_points_one_alarm(tmp_path: Path) -> None:
    told = Told(tmp_path)
    for _ in range(5):
        told.decide(Undetermined("input `LT` is Bad"))
    assert [(a.source, a.active) for a in told.alarms] == [("point:tank", True)]
    assert "input `LT` is Bad" in told.alarms[0].cause
    assert "o3ctl ack point:tank" in told.alarms[0].action
    assert told.house.point.blocked.startswith("undetermined: ")


def test_a_what_if_is_published_and_changes_nothing_of_the_point(tmp_path: Path) -> None:
    told = Told(tmp_path)
    for _ in range(5):
        told.decide(Refused(COUNTEREXAMPLE), what_if=True)
    assert len(told.decisions) == 5
    assert told.alarms == []
    assert told.points == []
    assert told.house.point.blocked == ""


def test_a_refusal_with_a_checked_fallback_is_no_alarm(tmp_path: Path) -> None:
    told = Told(tmp_path)
    for _ in range(5):
        written: tuple[RegisterValue, ...] = (pump(10),)
        told.decide(Refused(COUNTEREXAMPLE), written=written, written_by="backup")
        told.decide(
            Refused(COUNTEREXAMPLE),
            written=written,
            written_by="backup",
            write_outcome=WriteOutcome.CONFIRMED,
        )
    assert told.alarms == []
    assert told.house.point.blocked == ""


def test_writes_that_do_not_arrive_raise_the_alarm_and_say_why(tmp_path: Path) -> None:
    told = Told(tmp_path)
    for _ in range(3):
        told.decide(
            Permitted((pump(50),)),
            why="time-out",
            written=(pump(50),),
            written_by="verdict",
            write_outcome=WriteOutcome.UNCONFIRMED,
        )
    assert "unconfirmed" in told.alarms[-1].cause
    assert told.house.point.blocked == "unconfirmed: time-out"


def test_a_confirmed_write_is_remembered_for_the_next_start(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.decide(
        Permitted((pump(50),)),
        written=(pump(50),),
        written_by="verdict",
        write_outcome=WriteOutcome.CONFIRMED,
    )
    state: DurableState = told.reporter._state
    remembered: Mapping[str, int] = {
        str(t): raw for t, raw in state.point(PointId("tank")).last_confirmed.items()
    }
    assert remembered == {"P.SP": 500}
    assert Fraction(500, 10) == 50


def test_an_alarm_that_ended_stands_until_it_is_acknowledged(tmp_path: Path) -> None:
    told = Told(tmp_path)
    for acknowledged, active in ((False, True), (False, False)):
        told.reporter.raise_alarm(
            "link:plc1", active=active, acknowledged=acknowledged, cause="lost", consequence="c", action="a"
        )
        assert "link:plc1" in told.reporter.alarms
    told.reporter.raise_alarm(
        "link:plc1", active=False, acknowledged=True, cause="lost", consequence="c", action="a"
    )
    assert told.reporter.alarms == {}


OFF_SPEC = Violated(
    "column", "spec", "monitor", Fraction(-1, 100), {}, "the product is off its specification"
)


def test_s5_s28_a_violated_monitor_is_a_line_of_the_points_alarm_and_says_that_it_refuses_nothing(
    tmp_path: Path,
) -> None:
    told = Told(tmp_path)
    for _ in range(3):
        told.decide(
            Permitted((pump(50),)),
            written=(pump(50),),
            written_by="verdict",
            write_outcome=WriteOutcome.CONFIRMED,
            findings=(OFF_SPEC,),
        )
    (alarm,) = told.alarms
    assert alarm.source == "point:tank"
    assert alarm.cause == (
        "column/spec is violated, and no action can influence it: the product is off its specification"
    )
    assert "refuses nothing" in alarm.consequence
    assert told.house.point.blocked == ""


def test_s28_an_informational_rule_that_is_violated_is_no_alarm(tmp_path: Path) -> None:
    told = Told(tmp_path)
    for _ in range(5):
        told.decide(Permitted(()), findings=(replace(OFF_SPEC, kind="informational"),))
    assert told.alarms == []


# A full disk takes the plant back to its PLC: that must not be found out from a health page.
def test_s28_decisions_that_cannot_be_recorded_raise_the_points_alarm_and_say_so(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.house.point.mode = Mode.ARMED
    for _ in range(4):
        told.reporter.unrecorded(told.house.point, "disk is full: make room")
    (alarm,) = told.alarms
    assert (alarm.source, alarm.active) == ("point:tank", True)
    assert alarm.cause == "decisions cannot be recorded: disk is full: make room"
    assert "the PLC keeps or takes control" in alarm.consequence
    assert told.house.point.blocked == alarm.cause


def test_s28_in_shadow_an_unrecorded_decision_is_no_alarm(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.house.point.mode = Mode.SHADOW
    for _ in range(4):
        told.reporter.unrecorded(told.house.point, "disk is full")
    assert told.alarms == []
