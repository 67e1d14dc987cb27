"""The course found for the demo tank keeps every limit, is the true plant's, and none near it is better."""

from __future__ import annotations

from itertools import groupby

import pytest

from gateway.inference.training.evaluate import mean_errors
from gateway.inference.training.tank import TANK
from gateway.plantsim.tank import Disturbance, TankState, step
from tests.bench.optimum_tank import OFF, ON, Found, disturbed, found

CYCLES = 400


@pytest.fixture(scope="module")
def course() -> tuple[list[Disturbance], Found]:
    acting = disturbed(900, CYCLES)
    return acting, found(acting, TANK.settling)


def reached(acting: list[Disturbance], pump: list[float], heater: list[bool]) -> list[TankState]:
    states = [TankState()]
    for now, wanted, heating in zip(acting, pump, heater, strict=True):
        states.append(step(states[-1], wanted, heating, 1, 1.0, now))
    return states[:-1]


def spells(heater: list[bool]) -> list[tuple[bool, int]]:
    return [(heating, len(list(cycles))) for heating, cycles in groupby(heater)]


def test_the_expert_is_no_better_than_what_knows_everything(
    course: tuple[list[Disturbance], Found],
) -> None:
    make = TANK.controllers["constraint-aware"]
    expert = sum(mean_errors(TANK, lambda _: make(), range(900, 901), CYCLES))

    assert course[1].error(TANK.settling) < expert


def test_it_is_a_course_of_the_true_plant_within_minimum_times_ramp_and_range(
    course: tuple[list[Disturbance], Found],
) -> None:
    acting, best = course

    assert best.states == reached(acting, best.pump, best.heater)
    for heating, cycles in spells(best.heater)[:-1]:  # at the start it has held for no time at all
        assert cycles >= (ON if heating else OFF)
    assert all(abs(b - a) <= 10 + 1e-9 for a, b in zip(best.pump, best.pump[1:], strict=False))
    assert 0 <= min(best.pump) <= max(best.pump) <= 100


def test_the_level_stays_at_its_aim_and_the_grid_is_fine_enough(
    course: tuple[list[Disturbance], Found],
) -> None:
    best = course[1]
    counted = best.states[TANK.settling :]
    temperature = sum(abs(state.temperature_c - 45) for state in counted) / len(counted)

    assert max(abs(state.level_m - 2) for state in counted) < 1e-4
    assert best.expected == pytest.approx(temperature, rel=0.01)


def test_no_course_with_a_switch_moved_is_better(course: tuple[list[Disturbance], Found]) -> None:
    """Any switch, by one to five cycles either way, where the minimum times let it."""
    acting, best = course
    parts, tried = spells(best.heater), 0
    for at in range(1, len(parts)):
        for by in (-5, -2, -1, 1, 2, 5):
            lengths = [cycles for _, cycles in parts]
            lengths[at - 1] += by
            lengths[at] -= by
            if (
                any(
                    length < (ON if heating else OFF)
                    for (heating, _), length in list(zip(parts, lengths, strict=True))[:-1]
                )
                or lengths[-1] < 1
            ):
                continue
            moved = [
                heating for (heating, _), length in zip(parts, lengths, strict=True) for _ in range(length)
            ]
            other = Found(reached(acting, best.pump, moved), best.pump, moved, 0.0)
            tried += 1
            assert other.error(TANK.settling) >= best.error(TANK.settling) - 1e-4
    assert tried > 5
