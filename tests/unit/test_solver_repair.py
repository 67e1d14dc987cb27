from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from gateway.core.decision import Permitted, Refused, RegisterValue, Repaired
from gateway.solver.workers.check import Checks
from tests.bench import synthetic
from tests.bench.synthetic import Family
from tests.unit.solver_demo import (
    BUFFER_TANK,
    HEATER,
    MIXER,
    PATIENT,
    PUMP,
    Situation,
    module,
    proposal,
    rule_set,
)


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


def test_s12_the_heater_is_switched_off_where_heating_on_would_overheat(checks: Checks) -> None:
    hot = Situation(temp=74.8, heater=1)

    result, _ = checks.check(hot.request(proposal("40", heater=1, mixer=1)))

    assert isinstance(result.verdict, Repaired)
    assert {v.tag: v.raw for v in result.verdict.setpoints} == {PUMP: 400, HEATER: 0, MIXER: 1}


# S12: repair stays between the value in force and the wish, and goes as far towards it as is permitted.
def test_s12_repair_moves_on_the_segment_to_the_last_permitted_register_value(checks: Checks) -> None:
    result, _ = checks.check(Situation().request(proposal("82.5")))

    assert isinstance(result.verdict, Repaired)
    assert result.verdict.setpoints == proposal("50").values
    assert result.proposal is not None
    assert result.proposal.values == result.verdict.setpoints
    again, _ = checks.check(Situation(may_repair=False).request(result.proposal))
    assert isinstance(again.verdict, Permitted)
    further, _ = checks.check(Situation(may_repair=False).request(proposal("50.1")))
    assert isinstance(further.verdict, Refused)


def test_s12_a_boolean_is_only_repaired_where_the_module_names_it() -> None:
    unnamed = Checks(
        rule_set(module(BUFFER_TANK, ('"repair": {"heater": true, "mixer": true}', '"repair": {}')))
    )

    assert isinstance(unnamed.check(Situation().request(proposal(heater=1, mixer=0)))[0].verdict, Refused)


def test_s12_minimum_times_hold_against_the_model_and_not_against_the_backup(checks: Checks) -> None:
    heating = Situation(heater=1, held_s=5.0, may_repair=False)

    model, _ = checks.check(heating.request(proposal("40", heater=0)))
    backup, _ = checks.check(heating.request(None))

    assert isinstance(model.verdict, Refused)
    assert model.verdict.counterexample.constraint == "heater.min_on"
    assert isinstance(backup.verdict, Permitted)
    assert next(v.value for v in backup.verdict.setpoints if v.tag == HEATER) == 0


# S12: nearest with seven outputs and fifty rules as well; every part of the way is tried by the whole check.
@pytest.mark.parametrize("family", [Family(rules=50), Family(rules=10, horizon=1)], ids=lambda f: f.name)
def test_s12_with_many_outputs_a_repair_is_the_last_part_of_the_way_that_is_permitted(family: Family) -> None:
    many = Checks(synthetic.rule_set(family), PATIENT)
    repaired = 0
    for request in synthetic.requests(family, 60, seed=2, may_repair=True):
        found = many.check(request)[0].verdict
        if not isinstance(found, Repaired):
            continue
        repaired += 1
        assert request.proposal is not None
        wanted = {v.tag: v.raw for v in request.proposal.values}
        start = {tag: round(entries[0].value * 10) for tag, entries in request.history.items()}
        parts = max(abs(wanted[tag] - start[tag]) for tag in wanted)
        way = [
            tuple(start[tag] + int(Fraction(wanted[tag] - start[tag]) * part / parts) for tag in wanted)
            for part in range(parts + 1)
        ]
        values = tuple(setpoint.raw for setpoint in found.setpoints)
        assert values in way
        for beyond in way[way.index(values) + 1 :]:
            registers = zip(request.proposal.values, beyond, strict=True)
            moved = tuple(RegisterValue(v.tag, raw, Fraction(raw, 10)) for v, raw in registers)
            asked = replace(request, proposal=replace(request.proposal, values=moved), may_repair=False)
            assert moved == found.setpoints or not isinstance(many.check(asked)[0].verdict, Permitted)
    assert repaired > 2
