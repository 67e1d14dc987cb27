from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from gateway.core.decision import Holds, Refused
from gateway.core.ports import InForce
from gateway.solver.check import Checks
from gateway.solver.condense import Plan, condense
from gateway.solver.query import Query
from gateway.solver.shelf import Shelf
from gateway.solver.terms import Budget
from tests.unit.solver_demo import HEATER, INFLOW, NOW, PATIENT, Situation, proposal, rule_set

DELAY, HOLD = Fraction("0.3"), Fraction("1.2")


@pytest.fixture(scope="module")
def checks() -> Checks:
    return Checks(rule_set(), PATIENT)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return condense(rule_set(), DELAY, HOLD)


def instants(plan: Plan, name: str, *, old: bool) -> list[Fraction]:
    return [
        plan.instant(d.instant)
        for d in plan.duties
        if plan.rules[d.rule].constraint.id == name and d.old is old
    ]


# S1: every rule holds until the proposal can be replaced, and a decision may come at any moment before.
def test_s1_what_must_hold_always_is_asked_at_every_instant_with_whatever_may_be_in_force(plan: Plan) -> None:
    assert instants(plan, "no-overflow", old=False) == [0, DELAY, 1, HOLD]
    assert instants(plan, "no-overflow", old=True) == [0, DELAY]
    assert instants(plan, "safe_set[1]", old=False) == [DELAY, 1, HOLD]
    assert instants(plan, "safe_set[1]", old=True) == []
    assert instants(plan, "pump-ramp", old=False) == [0]


@pytest.mark.parametrize(
    ("delay", "hold", "end"), [("0", "0.2", 1), ("0.3", "2.5", "2.5"), ("1.5", "1", "1.5")]
)
def test_a_plan_ends_no_sooner_than_a_step_and_no_sooner_than_the_proposal_acts(
    delay: str, hold: str, end: str | int
) -> None:
    plan = condense(rule_set(), Fraction(delay), Fraction(hold))

    assert plan.segments[-1].end == Fraction(end)
    assert all(s.end - s.start <= 1 for s in plan.segments)
    assert all(s.mixed is (s.start < Fraction(delay)) for s in plan.segments)


# S4: until the new values act, the old ones do; nobody knows when in between.
def test_s4_the_old_value_acts_until_the_new_one_surely_does(checks: Checks) -> None:
    def margin(here: Situation) -> Fraction:
        result, _ = checks.check(here.request(proposal("50")))
        found = next(f for f in result.findings if f.constraint == "no-overflow")
        assert isinstance(found, Holds)
        assert found.margin is not None
        return found.margin

    rising = replace(Situation(level=3.4), inflow=36.0)
    difference = margin(replace(rising, pump="50")) - margin(replace(rising, pump="40"))

    assert difference == Fraction("0.0000625") * 10 * DELAY


# The heater in force goes on heating for a moment, whatever is proposed.
def test_s4_the_values_in_force_must_keep_the_rules_until_they_are_replaced(checks: Checks) -> None:
    dry = Situation(level=0.505, pump="0", heater=1, may_repair=False)

    verdict = checks.check(dry.request(proposal("0", heater=0)))[0].verdict

    assert isinstance(verdict, Refused)
    assert verdict.counterexample.constraint == "no-dry-fire"
    assert verdict.counterexample.assignment[HEATER] == 1


def test_s4_the_skew_of_the_snapshot_counts_for_what_has_no_dynamics(checks: Checks) -> None:
    together = Situation().inputs()
    apart = {t: v if t == INFLOW else replace(v, confirmed_at=NOW - 1) for t, v in together.items()}

    widths = []
    for inputs in (together, apart):
        _, state = checks.check(Situation().request(proposal(), inputs))
        assert state is not None
        widths.append(state.intervals[INFLOW].high - state.intervals[INFLOW].low)

    assert widths[1] - widths[0] == 4  # 2 m3/h/s for a second, either way


# S18: {before, after} while a write is unconfirmed: the heater may be neither switched on nor off too soon.
def test_s18_with_an_unconfirmed_heater_both_minimum_times_hold(checks: Checks) -> None:
    here = Situation(heater=1, held_s=5.0, may_repair=False, older={HEATER: (InForce(Fraction(0), 0.0),)})

    for wanted, rule in ((0, "heater.min_on"), (1, "heater.min_off")):
        verdict = checks.check(here.request(proposal(heater=wanted)))[0].verdict
        assert isinstance(verdict, Refused)
        assert verdict.counterexample.constraint == rule


# S3: from premises that cannot be met anything follows; so nothing may.
def test_s3_premises_that_cannot_be_met_are_noticed(plan: Plan) -> None:
    query = Query(Shelf(), plan, Budget())
    fine = dict.fromkeys(plan.symbols, (0, 0))

    assert query.open(fine, {})
    query.close()
    assert not query.open({**fine, plan.symbols[0]: (1, 0)}, {})
    query.close()
    assert not query.open(fine, {"old:TK1.P101.SP": (Fraction(1), Fraction(2))})
