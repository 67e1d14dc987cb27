"""How near to the best possible the expert of the demo tank is; a part of `python -m tests.bench.optimum`.

The search knows what no controller can: the disturbance to come and true measurements without noise. The pump
carries off what is to come, so that the level stays at its aim as far as ramp and range allow. Along that
level the heater's best course under the module's minimum times is found by dynamic programming over
temperature, heater and how long it has held; temperatures between the grid's are interpolated. The figure
is what that course really reaches on the true plant; a better one, which trades level for temperature, may
exist.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.inference.training.tank import TANK as KIND
from gateway.inference.training.tank import TankRun
from gateway.plantsim.controllers import (
    HEATER_MIN_OFF_S,
    HEATER_MIN_ON_S,
    LEVEL_SETPOINT_M,
    PERIOD_S,
    PUMP_RAMP_PCT_S,
    TEMPERATURE_SETPOINT_C,
    Memory,
)
from gateway.plantsim.objective import LEVEL_WEIGHT, TEMPERATURE_WEIGHT
from gateway.plantsim.tank import TANK, Disturbance, TankState, step

ON, OFF = int(HEATER_MIN_ON_S / PERIOD_S), int(HEATER_MIN_OFF_S / PERIOD_S)  # cycles at least
_MIXER = 1  # the heater heats with any stage
_GRID = np.arange(36.0, 54.0, 0.01)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Found:
    """A course: states that were acted on, pump and heater, each `[cycles]`, and what was expected of it."""

    states: list[TankState]
    pump: list[float]
    heater: list[bool]
    expected: float  # mean temperature error, by interpolation

    def error(self, settling: int) -> float:
        """The mean weighted error a cycle after settling, as `evaluate` counts it."""
        counted = self.states[settling:]
        return sum(
            LEVEL_WEIGHT * abs(state.level_m - LEVEL_SETPOINT_M)
            + TEMPERATURE_WEIGHT * abs(state.temperature_c - TEMPERATURE_SETPOINT_C)
            for state in counted
        ) / len(counted)


def disturbed(seed: int, cycles: int) -> list[Disturbance]:
    """What acts in each cycle of a held-out run."""
    run = TankRun(seed, random.Random(seed), "plain")  # noqa: S311  # as in training
    return [run._disturbances.advance(PERIOD_S) for _ in range(cycles)]


def found(disturbances: list[Disturbance], settling: int) -> Found:
    """The best course that the search knows of, from the start of a plain run."""
    pump, levels = _pumped(disturbances)
    values = _values(disturbances, levels, settling)
    states, heater, held = [TankState()], list[bool](), min(int(Memory().heater_held_s), OFF)
    heating = Memory().outputs.heater
    expected = 0.0
    for cycle, (now, wanted) in enumerate(zip(disturbances, pump, strict=True)):
        chosen = heating
        if held >= (ON if heating else OFF):
            costs = {}
            for each in (False, True):
                there = step(states[-1], wanted, each, _MIXER, PERIOD_S, now)
                row = _row(heating=each, held=held + 1 if each == heating else 1)
                costs[each] = _at(values[cycle + 1][row], there.temperature_c)
            chosen = costs[True] < costs[False]
        held, heating = (held + 1 if chosen == heating else 1), chosen
        heater.append(heating)
        states.append(step(states[-1], wanted, heating, _MIXER, PERIOD_S, now))
        if cycle == 0:  # not counted, and how long the heater held before has no row
            expected = _at(values[1][_row(heating=heating, held=held)], states[-1].temperature_c)
    return Found(states[:-1], pump, heater, expected / (len(disturbances) - settling))


def _pumped(disturbances: list[Disturbance]) -> tuple[list[float], list[float]]:
    """The pump that brings the next level to its aim, and the level before each cycle."""
    before, state, pump, levels = Memory().outputs.pump_pct, TankState(), list[float](), list[float]()
    for now in disturbances:
        levels.append(state.level_m)
        idle = step(state, 0.0, False, _MIXER, PERIOD_S, now)  # noqa: FBT003  # a physical input
        wanted = (idle.level_m - LEVEL_SETPOINT_M) / (TANK.pump_m_per_s_percent * PERIOD_S)
        reach = PUMP_RAMP_PCT_S * PERIOD_S
        before = round(min(max(wanted, before - reach, 0.0), before + reach, 100.0), 1)
        pump.append(before)
        state = step(state, before, False, _MIXER, PERIOD_S, now)  # noqa: FBT003  # a physical input
    return pump, levels


def _values(disturbances: list[Disturbance], levels: list[float], settling: int) -> list[Floats]:
    """Least temperature error to come, by cycle: `[ON + OFF, grid]`, in the order of `_row`."""
    after = np.zeros((ON + OFF, len(_GRID)))
    values = [after]
    for cycle in range(len(disturbances) - 1, -1, -1):
        to = {each: _moved(after, disturbances[cycle], levels[cycle], heating=each) for each in (False, True)}
        value = np.empty_like(after)
        for heating, first, most in ((True, 0, ON), (False, ON, OFF)):
            value[first : first + most - 1] = to[heating][first + 1 : first + most]  # must stay as it is
            stays, switches = to[heating][first + most - 1], to[not heating][ON if heating else 0]
            value[first + most - 1] = np.minimum(stays, switches)
        if cycle >= settling:
            value += TEMPERATURE_WEIGHT * np.abs(_GRID - TEMPERATURE_SETPOINT_C)
        after = value
        values.append(after)
    return values[::-1]


def _moved(after: Floats, now: Disturbance, level_m: float, *, heating: bool) -> Floats:
    """Values a cycle later, at the temperatures that the grid's become."""
    ends = [
        step(TankState(level_m, float(at)), 0.0, heating, _MIXER, PERIOD_S, now).temperature_c
        for at in (_GRID[0], _GRID[-1])
    ]
    there = np.linspace(ends[0], ends[1], len(_GRID))  # the step is linear in temperature
    place = np.clip((there - _GRID[0]) / (_GRID[1] - _GRID[0]), 0, len(_GRID) - 1.001)
    below = place.astype(np.int64)
    share = place - below
    return np.asarray(after[:, below] * (1 - share) + after[:, below + 1] * share)


def _row(*, heating: bool, held: int) -> int:
    """Heating for 1 to `ON` cycles and more, then off for 1 to `OFF` cycles and more."""
    return min(held, ON) - 1 if heating else ON + min(held, OFF) - 1


def _at(values: Floats, temperature_c: float) -> float:
    return float(np.interp(temperature_c, _GRID, values))


def least_error(seed: int) -> float:
    """What the best course found of a held-out run reaches."""
    return found(disturbed(seed, KIND.cycles), KIND.settling).error(KIND.settling)
