"""The best course found for a run keeps the limits, and no expert is better."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gateway.inference.training.evaluate import mean_errors
from gateway.inference.training.two_heater import POWER, RAMP, TWO_HEATER
from tests.bench.optimum import Course, _best, least_error, plate, tanks

CYCLES = 90


def short(course: Course) -> Course:
    return replace(course, aims=course.aims[:CYCLES])


def test_no_expert_is_better_than_what_knows_everything() -> None:
    known = short(plate(900))

    expert = sum(
        mean_errors(
            TWO_HEATER, lambda _: TWO_HEATER.controllers["constraint-aware"](), range(900, 901), CYCLES
        )
    )
    as_set = least_error(known, TWO_HEATER.settling, foresees=False)
    foreseen = least_error(known, TWO_HEATER.settling, foresees=True)

    assert foreseen <= as_set + 1e-9
    assert foreseen < expert


def test_the_course_found_keeps_ramp_supply_and_heat() -> None:
    known = short(plate(901))

    states, heat = _best(known, 0, CYCLES, known.start, known.outputs)

    moves = np.diff(np.vstack([known.outputs, heat]), axis=0)
    assert np.abs(moves).max() <= RAMP + 1e-6
    assert (heat @ np.array([200.0, 100.0])).max() <= POWER + 1e-3
    assert states[:, 2:].max() <= 60.0 + 1e-6


def test_the_course_found_for_the_tanks_is_one_of_the_true_plant() -> None:
    known = replace(tanks(900), aims=tanks(900).aims[:30])

    states, volts = _best(known, 0, 30, known.start, known.outputs)

    state = known.start
    for cycle, acted in enumerate(volts):
        state = known.step(state, acted, cycle)
        assert state == pytest.approx(states[cycle + 1])
    assert volts.min() >= -1e-9
    assert volts.max() <= 6.0 + 1e-9
