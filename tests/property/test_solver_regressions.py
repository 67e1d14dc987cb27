"""What the plant must never be exposed to again, each by its rule."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest

from gateway.core.decision import Permitted, Refused, Repaired, Undetermined
from gateway.pipeline.history import OutputHistory
from gateway.solver.workers.check import Checks
from tests.unit.solver_demo import HEATER, MIXER, NOW, PATIENT, PUMP, Situation, proposal, rule_set
from tests.unit.solver_loop import Loop, anything

EACH_S = 0.05  # twenty requests a second
RAMP = 10  # % a second
TINY = 1e-9


@pytest.fixture(scope="module")
def checks() -> Checks:
    return Checks(rule_set(), PATIENT)


def test_s6_twenty_requests_a_second_move_the_pump_no_further_than_its_ramp(checks: Checks) -> None:
    history, began = OutputHistory(), NOW - 100
    history.observe(Fraction(40), began - 10)
    values = [Fraction(40)]
    for number in range(80):
        now = began + number * EACH_S
        here = Situation(level=2.5)
        request = here.request(proposal("100"))
        asked = replace(request, history={**request.history, PUMP: history.in_force(now)})
        verdict = checks.check(asked)[0].verdict
        assert isinstance(verdict, Permitted | Repaired)
        values.append(next(v.value for v in verdict.setpoints if v.tag == PUMP))
        history.confirm(values[-1], now)

    assert values[-1] > 60
    for first, low in enumerate(values):
        for later, high in enumerate(values[first:]):
            assert high - low <= RAMP * (1 + Fraction(later) * Fraction("0.05")), (first, later)


def test_s9_a_plant_that_starts_outside_is_brought_back_by_the_backup_alone(checks: Checks) -> None:
    loop = Loop(checks, seed=4, start=3.66)
    pumps, heaters = [40.0], set[int]()
    while loop.tank.level_m > 3.6 and len(pumps) < 60:
        loop.advance(lambda _, now: (now[0] - 5, 1, 1))  # what would fill it further
        pumps.append(loop.acting[0])
        heaters.add(loop.acting[1])
    outside = loop.tally.broken
    for _ in range(60):
        loop.advance(anything)

    assert all(later == 100 or 9 <= later - now <= 10 + TINY for now, later in pairwise(pumps)), pumps
    assert heaters == {0}
    assert 0 < outside < 30
    assert loop.tally.broken == outside
    assert loop.tally.silent == 0


# S23: a daemon that has just started knows neither what was in force nor for how long.
def test_s23_before_the_plc_was_read_nothing_is_permitted_and_afterwards_dwell_times_begin_anew(
    checks: Checks,
) -> None:
    for heater in (0, 1):
        history = OutputHistory()
        request = Situation(heater=heater).request(proposal(heater=1 - heater))
        unread = {**request.history, HEATER: history.in_force(NOW)}
        verdict = checks.check(replace(request, history=unread))[0].verdict
        assert isinstance(verdict, Undetermined)

        history.observe(Fraction(heater), NOW)
        held = {**request.held_s, HEATER: history.held_s(NOW)}
        read = {**request.history, HEATER: history.in_force(NOW)}
        verdict = checks.check(replace(request, history=read, held_s=held, may_repair=False))[0].verdict
        assert isinstance(verdict, Refused)
        assert verdict.counterexample.constraint == ("heater.min_on" if heater else "heater.min_off")


def test_s3_no_reading_at_or_beyond_the_end_of_its_range_is_ever_permitted(checks: Checks) -> None:
    ends = {"level": (-0.1, 5.0), "inflow": (-1.0, 40.0), "temp": (0.0, 100.0)}
    for name, (low, high) in ends.items():
        for value in (low - 1, low - 0.001, low, high, high + 0.001, high + 1):
            here = replace(Situation(), **{name: value})  # type: ignore[arg-type]  # a field by its name
            verdict = checks.check(here.request(proposal()))[0].verdict
            assert isinstance(verdict, Undetermined), (name, value)
    assert {HEATER, MIXER, PUMP} == set(Situation().request(None).history)
