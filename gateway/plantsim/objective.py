"""What running the tank well means, as one number: smaller is better.

    objective = 10 * mean |level - 2.0 m| + 1 * mean |temperature - 45 degC|
              + 0.02 * mean |pump change in %| + 0.5 * mean heater switches + 0.1 * mean mixer stage changes

Means are per second of the run, on true states: 0.1 m costs as much as 1 K.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from gateway.plantsim.controllers import (
    LEVEL_SETPOINT_M,
    PERIOD_S,
    TEMPERATURE_SETPOINT_C,
    Controller,
    Memory,
)
from gateway.plantsim.tank import Disturbances, Measurement, Outputs, Sensors, TankState, step

LEVEL_WEIGHT = 10.0  # per m
TEMPERATURE_WEIGHT = 1.0  # per K
PUMP_MOVE_WEIGHT = 0.02  # per %
HEATER_MOVE_WEIGHT = 0.5  # per switch
MIXER_MOVE_WEIGHT = 0.1  # per stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One second of a run: the state and reading the outputs were decided on."""

    state: TankState
    measurement: Measurement
    outputs: Outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The parts of the objective, each a mean per second, and their weighted sum."""

    level_iae_m: float
    temperature_iae_k: float
    pump_move_pct: float
    heater_moves: float
    mixer_moves: float

    @property
    def iae(self) -> float:
        """The weighted absolute errors without the movement."""
        return LEVEL_WEIGHT * self.level_iae_m + TEMPERATURE_WEIGHT * self.temperature_iae_k

    @property
    def objective(self) -> float:
        """The whole objective; smaller is better."""
        return (
            self.iae
            + PUMP_MOVE_WEIGHT * self.pump_move_pct
            + HEATER_MOVE_WEIGHT * self.heater_moves
            + MIXER_MOVE_WEIGHT * self.mixer_moves
        )


def score(run: list[Moment]) -> Score:
    """The objective of a run, one `Moment` a second; an empty run is a ValueError."""
    if not run:
        raise ValueError("an empty run has no score")
    seconds = len(run)
    pairs = [(before.outputs, after.outputs) for before, after in itertools.pairwise(run)]
    return Score(
        level_iae_m=sum(abs(moment.state.level_m - LEVEL_SETPOINT_M) for moment in run) / seconds,
        temperature_iae_k=sum(abs(moment.state.temperature_c - TEMPERATURE_SETPOINT_C) for moment in run)
        / seconds,
        pump_move_pct=sum(abs(after.pump_pct - before.pump_pct) for before, after in pairs) / seconds,
        heater_moves=sum(after.heater != before.heater for before, after in pairs) / seconds,
        mixer_moves=sum(abs(after.mixer - before.mixer) for before, after in pairs) / seconds,
    )


def simulate(
    controller: Controller,
    *,
    seed: int,
    seconds: int,
    start: TankState | None = None,
    memory: Memory | None = None,
) -> list[Moment]:
    """A seeded closed loop, one decision a second that acts at once."""
    state = TankState() if start is None else start
    memory = Memory() if memory is None else memory
    disturbances, sensors = Disturbances(seed), Sensors(seed + 1_000_003)
    run = []
    for _ in range(seconds):
        measurement = sensors.measure(state, disturbances.now.inflow_m3h)
        memory = controller.decide(measurement, memory)
        outputs = memory.outputs
        run.append(Moment(state=state, measurement=measurement, outputs=outputs))
        state = step(
            state, outputs.pump_pct, outputs.heater, outputs.mixer, PERIOD_S, disturbances.advance(PERIOD_S)
        )
    return run
