from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.decision import Permitted, Refused, Repaired
from gateway.solver.check import Checks
from tests.unit.solver_demo import HEATER, MIXER, PATIENT, PUMP, Situation, proposal, rule_set


@pytest.fixture(scope="module")
def checks() -> Checks:
    return Checks(rule_set(), PATIENT)


def permitted(checks: Checks, here: Situation, raw: int) -> bool:
    asked = here.request(proposal(f"{raw / 10}", here.heater, here.mixer))
    return isinstance(checks.check(asked)[0].verdict, Permitted)


# S12, and that a repair is found whenever one exists: every register value on the segment is tried.
@pytest.mark.parametrize(
    ("here", "wanted"),
    [
        (Situation(pump="40"), "60"),
        (Situation(pump="40"), "25"),
        (Situation(level=3.55, inflow=25.0, pump="30"), "18"),
        (Situation(level=3.578, inflow=30.0, pump="60"), "75"),  # the value in force is itself not permitted
        (Situation(level=3.583, inflow=33.0, pump="66"), "90"),  # nor is what the ramp allows for long
        (Situation(level=0.345, inflow=4.0, pump="52"), "62"),
        (Situation(level=3.59, inflow=36.0, pump="10"), "0"),  # nothing on the way helps
    ],
)
def test_s12_repair_is_the_last_permitted_register_value_on_the_segment(
    checks: Checks, here: Situation, wanted: str
) -> None:
    start, end = round(float(here.pump) * 10), round(float(wanted) * 10)
    way = range(start, end + 1) if end >= start else range(start, end - 1, -1)
    unrepaired = replace(here, may_repair=False)
    best = next((raw for raw in reversed(way) if permitted(checks, unrepaired, raw)), None)

    result, _ = checks.check(here.request(proposal(wanted, here.heater, here.mixer)))

    if best is None:
        assert isinstance(result.verdict, Refused)
    else:
        assert isinstance(result.verdict, Repaired)
        found = {v.tag: v.raw for v in result.verdict.setpoints}
        assert found == {PUMP: best, HEATER: here.heater, MIXER: here.mixer}


# S12: the same question gets the same answer.
def test_s12_ties_are_settled_the_same_way_every_time(checks: Checks) -> None:
    answers = {
        checks.check(Situation().request(proposal("55", heater=1, mixer=0)))[0].verdict.setpoints  # type: ignore[union-attr]
        for _ in range(5)
    }

    assert len(answers) == 1


def test_s12_the_heater_is_switched_off_where_heating_on_would_overheat(checks: Checks) -> None:
    hot = Situation(temp=74.8, heater=1)

    result, _ = checks.check(hot.request(proposal("40", heater=1, mixer=1)))

    assert isinstance(result.verdict, Repaired)
    assert {v.tag: v.raw for v in result.verdict.setpoints} == {PUMP: 400, HEATER: 0, MIXER: 1}
