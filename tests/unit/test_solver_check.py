from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from gateway.core.decision import (
    Holds,
    Permitted,
    Proposal,
    Refused,
    RegisterValue,
    Repaired,
    Undetermined,
    Violated,
)
from gateway.core.ports import InForce, StateInterval, StateSet
from gateway.core.quality import StatusCode
from gateway.core.tag import TagValue
from gateway.solver.checking.terms import Budget
from gateway.solver.modules.module import Module
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from tests.unit.solver_demo import (
    BUFFER_TANK,
    HEATER,
    INFLOW,
    LEVEL,
    LOWER_LEVEL,
    MIXER,
    NOW,
    PATIENT,
    PUMP,
    TEMP,
    Situation,
    good,
    module,
    proposal,
    register,
    rule_set,
)


@pytest.fixture(scope="module")
def checks() -> Checks:
    return Checks(rule_set(), PATIENT)


def test_an_ordinary_proposal_is_permitted_unchanged_with_the_nearest_margin_first(checks: Checks) -> None:
    result, state = checks.check(Situation().request(proposal("45")))

    assert result.verdict == Permitted(proposal("45").values)
    margins = [f.margin for f in result.findings if isinstance(f, Holds) and f.margin is not None]
    assert margins
    assert margins == sorted(margins)
    assert state is not None
    assert state.at == NOW


def test_a_violation_is_told_in_plant_terms_with_its_place_in_the_file(checks: Checks) -> None:
    result, _ = checks.check(
        Situation(level=3.5985, pump="0", inflow=36.0, may_repair=False).request(proposal("0"))
    )

    assert isinstance(result.verdict, Refused)
    found = result.verdict.counterexample
    assert found.constraint == "no-overflow"
    assert found.margin is not None
    assert found.margin < 0
    assert found.text.startswith("`no-overflow` (buffer-tank.json:17): tank would overflow: level ")
    assert "limit 3.6 m" in found.text
    assert "pump 0 %" in found.text


# S15: everything but plain Good is somebody's guess.
@pytest.mark.parametrize("status", [s for s in StatusCode if s is not StatusCode.Good])
def test_s15_no_quality_but_good_is_used(checks: Checks, status: StatusCode) -> None:
    inputs = Situation().inputs() | {LEVEL: good(2.0, status=status)}

    result, _ = checks.check(Situation().request(proposal(), inputs))

    assert isinstance(result.verdict, Undetermined)
    assert status.name in result.verdict.reason
    assert LEVEL in result.verdict.reason


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (good(2.0, age=2.1), "2.100 s old"),
        (good(float("nan")), "not a number"),
        (good(float("inf")), "not a number"),
        (good(4.995), "not wholly inside its range"),
        (replace(good(2.0), value=None), "has no value"),
        (replace(good(2.0), value="2"), "not a number"),
        (replace(good(2.0), confirmed_at=float("-inf")), "never confirmed"),
    ],
)
def test_s3_an_unusable_input_is_undetermined_and_named(checks: Checks, value: TagValue, said: str) -> None:
    result, _ = checks.check(Situation().request(proposal(), Situation().inputs() | {LEVEL: value}))

    assert isinstance(result.verdict, Undetermined)
    assert said in result.verdict.reason
    assert LEVEL in result.verdict.reason


def test_s3_a_reading_outside_the_vouched_physical_bounds_is_a_broken_assumption(checks: Checks) -> None:
    result, _ = checks.check(Situation(inflow=-0.6).request(proposal()))

    assert isinstance(result.verdict, Undetermined)
    assert "broken assumption" in result.verdict.reason


# S2: noise alone must not make a state look worse than the last check and the physics allow.
def test_s2_the_state_checked_is_what_was_predicted_and_measured_at_once(checks: Checks) -> None:
    known = StateSet(
        at=NOW - 1,
        intervals={
            LEVEL: StateInterval(Fraction("1.999"), Fraction("2.001")),
            INFLOW: StateInterval(Fraction("11.9"), Fraction("12.1")),
            TEMP: StateInterval(Fraction("39.9"), Fraction("40.1")),
        },
    )

    _, alone = checks.check(Situation().request(proposal()))
    _, met = checks.check(Situation(carried=known).request(proposal()))

    assert alone is not None
    assert met is not None
    assert met.intervals[LEVEL].high - met.intervals[LEVEL].low < Fraction("0.005")
    assert alone.intervals[LEVEL].high - alone.intervals[LEVEL].low > Fraction("0.02")


def test_s2_a_reading_that_contradicts_the_prediction_is_undetermined(checks: Checks) -> None:
    known = StateSet(
        at=NOW - 1,
        intervals={
            LEVEL: StateInterval(Fraction("2.5"), Fraction("2.51")),
            INFLOW: StateInterval(Fraction(12), Fraction(12)),
            TEMP: StateInterval(Fraction(40), Fraction(40)),
        },
    )

    result, _ = checks.check(Situation(carried=known).request(proposal()))

    assert isinstance(result.verdict, Undetermined)
    assert "broken assumption" in result.verdict.reason


def test_s2_after_a_gap_only_the_measurement_counts(checks: Checks) -> None:
    old = StateSet(
        at=NOW - 11,
        intervals={t: StateInterval(Fraction(1), Fraction(1)) for t in (LEVEL, INFLOW, TEMP)},
    )

    result, _ = checks.check(Situation(carried=old).request(proposal()))

    assert isinstance(result.verdict, Permitted)


# S4: at 3.6 m exactly the limit is met only without sensor error, half a count and the way ahead.
@pytest.mark.parametrize(("level", "permitted"), [(3.5995, False), (3.58, True)])
def test_s4_the_sensor_error_and_half_a_count_count(checks: Checks, *, level: float, permitted: bool) -> None:
    result, _ = checks.check(Situation(level=level, inflow=0.0, pump="100").request(proposal("100")))

    assert isinstance(result.verdict, Permitted) is permitted


# A mutant without the error is caught by few random cases; here it is caught at the boundary.
def test_s4_a_rule_set_that_forgets_the_error_permits_what_the_true_one_refuses() -> None:
    careless = Checks(rule_set(module_with_error("0.000001")), PATIENT)
    careful = Checks(rule_set(module_with_error("0.01")), PATIENT)
    near = Situation(level=3.5945, inflow=0.0, pump="100")

    assert isinstance(careless.check(near.request(proposal("100")))[0].verdict, Permitted)
    assert not isinstance(careful.check(near.request(proposal("100")))[0].verdict, Permitted)


def module_with_error(error: str) -> Module:
    return module(BUFFER_TANK, ('"error": "0.01"', f'"error": "{error}"'))


def test_s4_an_older_reading_may_have_moved_further(checks: Checks) -> None:
    _, fresh = checks.check(Situation().request(proposal()))
    aged = {t: replace(v, confirmed_at=NOW - 1.5) for t, v in Situation().inputs().items()}
    _, old = checks.check(Situation().request(proposal(), aged))

    assert fresh is not None
    assert old is not None
    for tag in (LEVEL, INFLOW):
        assert old.intervals[tag].high > fresh.intervals[tag].high
        assert old.intervals[tag].low < fresh.intervals[tag].low


# S6: twenty requests a second must not move a valve 100 % in half a second.
def test_s6_ramps_are_per_time_and_not_per_decision(checks: Checks) -> None:
    value, now = Fraction(40), 0.0
    past: list[tuple[Fraction, float]] = []
    for _ in range(10):
        older = tuple(InForce(v, now - ceased) for v, ceased in reversed(past))
        here = Situation(pump=str(float(value)), older={PUMP: older})
        result, _ = checks.check(here.request(proposal("100")))
        assert isinstance(result.verdict, Repaired)
        moved = next(v.value for v in result.verdict.setpoints if v.tag == PUMP)
        past.append((value, now))
        value, now = moved, now + 0.05

    assert value - 40 <= 10 * (1 + Fraction(1, 2))


# S18: while a write is unconfirmed both values may be in force, and the ramp holds against both.
def test_s18_while_a_write_is_unconfirmed_the_ramp_holds_against_both_values(checks: Checks) -> None:
    request = Situation(older={PUMP: (InForce(Fraction(50), 0.0),)}).request(proposal("55"))

    result, _ = checks.check(request)

    assert isinstance(result.verdict, Repaired)
    assert next(v.value for v in result.verdict.setpoints if v.tag == PUMP) <= 50


# S23: unknown history is the worst history.
def test_s23_with_unknown_dwell_the_heater_may_not_be_switched_on(checks: Checks) -> None:
    result, _ = checks.check(Situation(held_s=0.0, may_repair=False).request(proposal(heater=1)))

    assert isinstance(result.verdict, Refused)
    assert result.verdict.counterexample.constraint == "heater.min_off"


# S1, S10: the backup is computed and checked like any other action.
def test_s10_without_a_proposal_the_backups_own_action_is_checked(checks: Checks) -> None:
    high, _ = checks.check(Situation(level=2.5).request(None))
    low, _ = checks.check(Situation(level=1.5).request(None))

    assert isinstance(high.verdict, Permitted)
    assert isinstance(low.verdict, Permitted)
    assert high.proposal is not None
    assert high.proposal.by == "backup"
    assert high.verdict.setpoints == proposal("50").values
    assert low.verdict.setpoints == proposal("30").values


# S1: a proposal that keeps every limit for its own second but leaves the backup no way out is refused.
def test_s1_a_proposal_that_leads_into_a_corner_is_refused(checks: Checks) -> None:
    result, _ = checks.check(
        Situation(level=3.57, inflow=36.0, pump="0", may_repair=False).request(proposal("0"))
    )

    assert isinstance(result.verdict, Refused)
    assert result.verdict.counterexample.constraint == "safe_set[1]"
    assert "backup" in result.verdict.counterexample.text


# S9: already outside, only the backup may be written, and the verdict stays refused.
def test_s9_outside_the_limits_the_backup_may_be_written_to_recover(checks: Checks) -> None:
    result, _ = checks.check(Situation(level=3.7).request(None))

    assert isinstance(result.verdict, Refused)
    assert result.recovery
    assert result.proposal is not None
    assert result.proposal.values == proposal("50").values


def test_s9_a_backup_that_would_make_a_violation_worse_is_not_written() -> None:
    wrong = Checks(
        rule_set(module(BUFFER_TANK, ('{"when": "level >= 2", "pump"', '{"when": "level <= 2", "pump"')))
    )

    result, _ = wrong.check(Situation(level=3.7, inflow=20.0).request(None))

    assert isinstance(result.verdict, Refused)
    assert not result.recovery
    assert result.proposal is None


# The added module has no dynamics of its own; the tank's horizon serves its limit all the same.
def test_a_second_modules_limit_is_checked_through_the_dynamics_of_the_first() -> None:
    both = Checks(rule_set(module(), module(LOWER_LEVEL)), PATIENT)
    alone = Checks(rule_set(), PATIENT)
    near = Situation(level=3.185, inflow=36.0, pump="0", may_repair=False).request(proposal("0"))

    assert isinstance(alone.check(near)[0].verdict, Permitted)
    refused = both.check(near)[0].verdict
    assert isinstance(refused, Refused)
    assert refused.counterexample.module == "lower-level-limit"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (proposal().values[:2], "no value for `TK1.M101.STAGE`"),
        ((*proposal().values[:2], RegisterValue(MIXER, 1, Fraction(2))), "not what its register would hold"),
        (
            (*proposal().values, RegisterValue(LEVEL, 1, Fraction(1))),
            "no module in force governs `TK1.LT101`",
        ),
        ((RegisterValue(PUMP, 70_000, Fraction(7_000)), *proposal().values[1:]), "not what its register"),
    ],
)
def test_s18_only_the_whole_block_in_exact_register_values_is_checked(
    checks: Checks, values: tuple[RegisterValue, ...], said: str
) -> None:
    result, _ = checks.check(Situation().request(Proposal(values=values, by="model")))

    assert isinstance(result.verdict, Undetermined)
    assert said in result.verdict.reason


def test_a_value_outside_an_actions_range_is_refused(checks: Checks) -> None:
    request = Situation(pump="100", may_repair=False).request(proposal("100.1"))

    verdict = checks.check(request)[0].verdict

    assert isinstance(verdict, Refused)
    assert verdict.counterexample.constraint == "pump.range"


def test_s24_an_empty_rule_set_permits_nothing() -> None:
    result, _ = Checks(RuleSet.of((), 1)).check(Situation().request(proposal()))

    assert isinstance(result.verdict, Undetermined)
    assert "permits nothing" in result.verdict.reason


# Unknown is not a pass: a budget that is too small for any answer never permits.
def test_a_spent_budget_is_undetermined() -> None:
    starved = Checks(rule_set(), Budget(rlimit=1, timeout_ms=1))

    result, _ = starved.check(Situation(level=3.55, inflow=20.0).request(proposal("45")))

    assert isinstance(result.verdict, Undetermined)
    assert "budget" in result.verdict.reason


def test_an_informational_rule_is_reported_and_never_refuses(checks: Checks) -> None:
    result, _ = checks.check(Situation(pump="85").request(proposal("90")))

    assert isinstance(result.verdict, Permitted)
    assert any(isinstance(f, Violated) and f.constraint == "prefer-slow" for f in result.findings)


def test_fractions_do_not_grow_from_check_to_check(checks: Checks) -> None:
    state: StateSet | None = None
    for step in range(30):
        here = Situation(carried=state and replace(state, at=NOW - 1.003))
        result, state = checks.check(here.request(proposal(str(40 + step % 2))))
        assert isinstance(result.verdict, Permitted)
        assert state is not None
        for interval in state.intervals.values():
            assert interval.low.denominator <= 10**9
    assert register(PUMP, "40").raw == 400


# Nothing but what a request says may influence its check, so nothing that was prepared may either.
@pytest.mark.parametrize("wanted", ["40", "82.5", "0"])
def test_a_check_says_the_same_after_whatever_was_prepared_or_checked_before(wanted: str) -> None:
    here = Situation(level=3.2, inflow=30.0)
    others = (
        here,
        Situation(level=3.2, inflow=30.0, pump="41"),
        Situation(level=3.2, inflow=30.0, held_s=1.0),
        Situation(level=3.2, inflow=30.0, hold_s=2.0),
        Situation(level=3.2, inflow=30.0, older={HEATER: (InForce(Fraction(1), 0.0),)}),
        Situation(level=9.9),
    )
    request = here.request(proposal(wanted))
    alone, state = Checks(rule_set(), PATIENT).check(request)

    used = Checks(rule_set(), PATIENT)
    for other in others:
        used.prepare(other.request(None))
        used.check(other.request(proposal("60", heater=1)))
        used.prepare(other.request(None))
        again, carried = used.check(request)
        assert (again.verdict, again.findings, again.proved) == (alone.verdict, alone.findings, alone.proved)
        assert carried == state
