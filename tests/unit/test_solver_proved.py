"""S17: what a check proved of its inputs' readings, and which newer readings contradict it."""

from __future__ import annotations

import timeit
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.decision import CheckResult, Examination, ProvedBand, Undetermined
from gateway.core.ports import StateInterval, StateSet
from gateway.core.tag import TagId, TagValue
from gateway.pipeline.proved import outside_proof
from gateway.solver.wire import Checked, answers, checked, encoder, result
from gateway.solver.workers.check import Checks
from tests.unit.solver_demo import (
    INFLOW,
    LEVEL,
    NOW,
    PATIENT,
    TAGS,
    TEMP,
    Situation,
    good,
    proposal,
    rule_set,
)


@pytest.fixture(scope="module")
def checks() -> Checks:
    return Checks(rule_set(), PATIENT)


def examined(checks: Checks, situation: Situation) -> Examination:
    request = situation.request(proposal())
    return Examination(request=request, result=checks.check(request)[0])


def newest(examination: Examination, tag: TagId, value: float, after: float) -> dict[TagId, TagValue]:
    return {**examination.request.inputs, tag: replace(good(value), confirmed_at=NOW + after)}


def test_s17_the_readings_that_were_checked_agree_with_their_own_proof(checks: Checks) -> None:
    found = examined(checks, Situation())
    assert found.result.proved.keys() == {LEVEL, INFLOW, TEMP}
    assert not outside_proof(found, found.request.inputs, TAGS)


def test_s17_the_ends_of_what_was_proved_agree_with_it_and_a_reading_that_nobody_has_contradicts_nothing(
    checks: Checks,
) -> None:
    found = examined(checks, Situation(level=2.0))
    band = ProvedBand(((0.0, 1.5, 2.5), (1.0, 1.5, 2.5)))
    found = replace(found, result=replace(found.result, proved={LEVEL: band}))

    for end in (1.5, 2.5):
        assert not outside_proof(found, newest(found, LEVEL, end, 0.5), TAGS)
    for wrong in (1.4999999, 2.5000001):
        assert "broken assumption" in outside_proof(found, newest(found, LEVEL, wrong, 0.5), TAGS)
    assert not outside_proof(found, {}, TAGS)


def test_s17_a_reading_that_agrees_within_its_error_is_accepted_and_one_beyond_is_not(
    checks: Checks,
) -> None:
    found = examined(checks, Situation(level=2.0))
    # 2 m was read within 0.0105; another reading of the same truth lies within twice that.
    assert not outside_proof(found, newest(found, LEVEL, 2.02, 0.05), TAGS)
    assert not outside_proof(found, newest(found, LEVEL, 1.98, 0.05), TAGS)
    for wrong in (2.03, 1.97):
        why = outside_proof(found, newest(found, LEVEL, wrong, 0.05), TAGS)
        assert f"`{LEVEL}` now reads {wrong:g} m" in why
        assert "proved it between 1.97" in why
        assert "and 2.02" in why


def test_s17_the_carried_set_makes_the_proof_narrower_than_one_reading(checks: Checks) -> None:
    known = StateSet(
        at=NOW,
        intervals={
            LEVEL: StateInterval(Fraction("1.992"), Fraction("1.994")),
            INFLOW: StateInterval(Fraction(12), Fraction("12.1")),
            TEMP: StateInterval(Fraction(40), Fraction("40.1")),
        },
    )
    found = examined(checks, Situation(level=2.0, carried=known))
    assert not outside_proof(found, newest(found, LEVEL, 2.003, 0.01), TAGS)
    assert "broken assumption" in outside_proof(found, newest(found, LEVEL, 2.008, 0.01), TAGS)


def test_s17_what_has_no_dynamics_may_move_at_its_rate_from_acquisition_on(checks: Checks) -> None:
    found = examined(checks, Situation(inflow=12.0, effect_delay_s=0.3))
    low, high = found.result.proved[INFLOW].at(0.2) or (0.0, 0.0)
    assert high == pytest.approx(12 + 2 * 0.305 + 2 * 0.2)
    assert low == pytest.approx(12 - 2 * 0.305 - 2 * 0.2)
    fast = newest(found, INFLOW, 12.9, 0.2)
    assert not outside_proof(found, fast, TAGS)
    assert outside_proof(found, newest(found, INFLOW, 12.9, 0.05), TAGS), "0.9 m3/h need 0.15 s and more"


def test_s17_an_old_reading_has_room_until_acquisition(checks: Checks) -> None:
    situation = Situation(inflow=12.0)
    inputs = {tag: replace(v, confirmed_at=NOW - 0.5) for tag, v in situation.inputs().items()}
    request = situation.request(proposal(), inputs)
    found = Examination(request=request, result=checks.check(request)[0])
    late = {**inputs, INFLOW: replace(good(13.2), confirmed_at=NOW - 0.1)}
    assert not outside_proof(found, late, TAGS)
    assert outside_proof(found, {**inputs, INFLOW: replace(good(14.0), confirmed_at=NOW - 0.1)}, TAGS)


def test_s17_a_sample_after_the_proposal_acts_is_not_covered(checks: Checks) -> None:
    found = examined(checks, Situation(effect_delay_s=0.3))
    assert "outside the time" in outside_proof(found, newest(found, LEVEL, 2.0, 0.31), TAGS)


def test_s17_a_reading_that_no_check_would_accept_is_not_accepted_late(checks: Checks) -> None:
    found = examined(checks, Situation(inflow=39.6))
    assert isinstance(found.result.verdict, Undetermined) or outside_proof(
        found, newest(found, INFLOW, 39.9, 0.1), TAGS
    )
    lost = {**found.request.inputs, LEVEL: replace(good(2.0), value=None, confirmed_at=NOW + 0.1)}
    assert "not a number" in outside_proof(examined(checks, Situation()), lost, TAGS)


def test_s17_an_input_that_no_rule_reads_contradicts_nothing(checks: Checks) -> None:
    found = examined(checks, Situation())
    assert not outside_proof(found, {**found.request.inputs, TagId("OTHER"): good(1e9)}, TAGS)


def test_s17_a_check_with_unusable_inputs_proves_nothing(checks: Checks) -> None:
    situation = Situation()
    request = situation.request(proposal(), {**situation.inputs(), LEVEL: good(float("nan"))})
    assert checks.check(request)[0].proved == {}


def test_s17_the_bands_come_back_from_the_worker_as_they_were_sent(checks: Checks) -> None:
    found, state = checks.check(Situation().request(proposal()))
    answer = answers.decode(encoder.encode(checked(found, state)))
    assert isinstance(answer, Checked)
    assert result(answer)[0].proved == found.proved


@given(
    start=st.fractions(Fraction(-1000), Fraction(1000), max_denominator=997),
    slope=st.fractions(Fraction(-10), Fraction(10), max_denominator=997),
    share=st.fractions(Fraction(0), Fraction(1), max_denominator=997),
)
def test_s17_no_reading_of_the_line_itself_is_lost_to_rounding(
    start: Fraction, slope: Fraction, share: Fraction
) -> None:
    band = ProvedBand(((0.0, float(start), float(start)), (3.0, float(start + slope), float(start + slope))))
    allowed = band.at(float(3 * share))
    assert allowed is not None
    truth = float(start + slope * share)
    assert allowed[0] <= truth + 1e-12
    assert truth - 1e-12 <= allowed[1]
    assert band.at(-0.001) is None
    assert band.at(3.001) is None


def test_s17_the_look_at_the_newest_samples_takes_less_than_50_microseconds(checks: Checks) -> None:
    found = examined(checks, Situation())
    fresh = {tag: replace(v, confirmed_at=NOW + 0.1) for tag, v in found.request.inputs.items()}
    assert not outside_proof(found, fresh, TAGS)
    best_s = min(timeit.repeat(lambda: outside_proof(found, fresh, TAGS), number=200, repeat=5)) / 200
    assert best_s < 50e-6


def test_s17_what_is_proved_is_no_part_of_what_is_compared() -> None:
    one = CheckResult(verdict=Undetermined("x"), findings=(), generation=1, rule_set_digest="")
    assert one == replace(one, proved={LEVEL: ProvedBand(((0.0, 0.0, 1.0),))})
