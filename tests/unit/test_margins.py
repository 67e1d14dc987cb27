"""What is violated never shows a margin that says it just holds (S29)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from gateway.core.decision import (
    DecisionId,
    DecisionRecord,
    Finding,
    Holds,
    Mode,
    PointId,
    Refused,
    Undetermined,
    Violated,
)
from gateway.daemon.views import decision_view
from gateway.recheck.source import read_source
from gateway.solver.wire import answers, checked, encoder, result
from gateway.solver.workers.check import Checks
from gateway.storage.codec import decode_record, encode_record
from gateway.web.views import margin_text
from tests.unit.solver_demo import BUFFER_TANK, PATIENT, TAGS, Situation, module, proposal, rule_set

SLOW = '{"id": "prefer-slow",'
COLD = '{"id": "prefer-cold", "kind": "informational", "require": "not heater"},'


@pytest.fixture(scope="module")
def checks() -> Checks:
    return Checks(rule_set(), PATIENT)


def violated(checks: Checks, situation: Situation, pump: str, heater: int, mixer: int) -> dict[str, Violated]:
    found = checks.check(replace(situation, may_repair=False).request(proposal(pump, heater, mixer)))[0]
    return {f.constraint: f for f in found.findings if isinstance(f, Violated)}


def test_s29_a_missed_mixer_stage_is_one_stage_short_not_just_enough(checks: Checks) -> None:
    found = violated(checks, Situation(mixer=0), "40", heater=1, mixer=0)
    assert found["heater-needs-mixing"].margin == -1
    assert found["safe_set[4]"].margin == -1


def test_s29_a_rule_about_switches_alone_has_no_margin_when_it_is_violated() -> None:
    rules = rule_set(module(BUFFER_TANK, (SLOW, COLD + SLOW)))
    found = violated(Checks(rules, PATIENT), Situation(held_s=5.0), "40", heater=1, mixer=1)
    assert found.keys() == {"prefer-cold", "heater.min_off"}
    assert [f.margin for f in found.values()] == [None, None]


def test_s29_every_violation_with_a_distance_is_negative(checks: Checks) -> None:
    for situation, pump, heater in (
        (Situation(level=3.5985, pump="0", inflow=36.0), "0", 0),
        (Situation(level=0.3, pump="0"), "5", 1),
        (Situation(temp=74.9), "40", 1),
        (Situation(), "80", 0),
    ):
        found = violated(checks, situation, pump, heater, 1)
        assert found
        assert all(f.margin is not None and f.margin < 0 for f in found.values()), found


def test_a_margin_that_does_not_exist_survives_wire_and_record(checks: Checks) -> None:
    request = Situation(held_s=5.0, may_repair=False).request(proposal("40", 1, 1))
    found = checks.check(request)[0]
    assert isinstance(found.verdict, Refused)
    assert found.verdict.counterexample.margin is None
    sent = answers.decode(encoder.encode(checked(found, None)))
    assert result(sent)[0] == found  # type: ignore[arg-type]
    record = a_record(*found.findings, verdict=found.verdict)
    assert decode_record(encode_record(record)) == record
    assert '"margin": null' in decision_view(record, "", TAGS).counterexample_json


def test_s29_people_see_a_dash_where_there_is_no_distance() -> None:
    record = a_record(
        Violated("tank", "one-heater", "critical", None, {}),
        Violated("tank", "no-overflow", "critical", Fraction("-0.00001"), {}, unit="m"),
        Holds("tank", "no-dry-run", Fraction(1)),
        Holds("tank", "pump.range", Fraction(0), "%"),
    )
    assert decision_view(record, "", TAGS).margins == [
        ("tank/no-overflow", "-0.0001", "m"),
        ("tank/one-heater", "-", ""),
        ("tank/no-dry-run", "1", ""),
        ("tank/pump.range", "0", "%"),
    ]
    assert margin_text("-") == "-"
    assert margin_text("-0.0001") == "-0.001"


def test_s5_s29_what_refuses_nothing_is_neither_the_nearest_margin_nor_what_refused() -> None:
    watched = Violated("plant", "spec", "monitor", Fraction(-3), {}, "off-spec", "plant.json:7")
    told = decision_view(a_record(watched, Holds("plant", "level", Fraction(2))), "", TAGS)

    assert told.margins == [("plant/level", "2", ""), ("plant/spec", "-3", "")]
    assert told.violated == []
    assert told.reported == ["plant/spec: off-spec"]


def test_both_judges_count_the_entries_of_a_safe_set_from_one() -> None:
    ours = {r.constraint.id for r in rule_set().safe_set}
    theirs = {r.id for r in read_source(BUFFER_TANK.read_text(encoding="utf-8")).safe_set}
    assert ours == theirs == {f"safe_set[{n}]" for n in range(1, 7)}


def a_record(*findings: Finding, verdict: Refused | None = None) -> DecisionRecord:
    return DecisionRecord(
        id=DecisionId("d-1"),
        point=PointId("tank"),
        mode=Mode.ARMED,
        requested_by="period",
        received_utc_ns=0,
        outcome=verdict or Undetermined("x"),
        proposal=None,
        written=(),
        written_by="",
        findings=findings,
        inputs={},
        generation=1,
        rule_set_digest="r",
        model_digest="m",
        timings_ms={},
    )
