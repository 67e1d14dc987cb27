"""What is safe, found without the solver: one step and then the backup, in floats, from every vertex.

The tank is monotone in state and disturbance, so its worst cases lie at vertices with each disturbance at one
of its ends throughout. Limits and bands are written out here once more; nothing is read from the module.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.plantsim.tank import Outputs

LEAK_M_S = 0.00051
INFLOW_RATE, INFLOW = 2.0, (0.0, 36.0)  # m3/h/s, m3/h
DRIFT_K_S = (-1.1, 0.001)
PUMP_RAMP_PCT_S = 10.0
MIN_ON_S, MIN_OFF_S = 30.0, 60.0
BACKUP_STEPS = 30  # s; after 10 s the pump stands at its end
_TINY = 1e-9
_M_S_PER_M3H, _M_S_PER_PCT = 1 / 7200, 0.0000625

Interval = tuple[float, float]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known when a proposal is made: intervals of the true state and what the outputs did before."""

    level_m: Interval
    inflow_m3h: Interval
    temperature_c: Interval
    before: Outputs
    heater_held_s: float
    pump_history: Sequence[tuple[float, float]]  # %, seconds since it was in force (0: it is)
    delay_s: float  # the proposal acts after 0 to this
    hold_s: float  # the next decision comes after this at the latest


def unsafe_because(known: Known, wanted: Outputs) -> str:
    """The first constraint some vertex breaks, empty when none does."""
    return _at_once(known, wanted) or _later(known, wanted)


def _at_once(known: Known, wanted: Outputs) -> str:
    for pump, ago_s in known.pump_history:
        if abs(wanted.pump_pct - pump) > PUMP_RAMP_PCT_S * max(1.0, ago_s + 1.0) + _TINY:
            return "pump-ramp"
    if wanted.heater and wanted.mixer < 1:
        return "heater-needs-mixing"
    before = known.before.heater
    if wanted.heater != before and known.heater_held_s < (MIN_ON_S if before else MIN_OFF_S):
        return "minimum-times"
    return ""


def _later(known: Known, wanted: Outputs) -> str:
    tank = _Tank(known)
    for delay in sorted({0.0, known.delay_s}):
        tank.restart()
        found = tank.broken(known.before if delay else wanted)
        found = found or tank.phase(known.before, delay) or tank.phase(wanted, known.hold_s - delay)
        if found:
            return found
        # The heater, off from here, cannot break a rule again; the pump's target depends on the level.
        pump = np.full_like(tank.level, wanted.pump_pct)
        for _ in range(BACKUP_STEPS):
            reach = np.where(tank.level >= 2.0, PUMP_RAMP_PCT_S, -PUMP_RAMP_PCT_S)  # m
            pump = np.clip(pump + reach, 0.0, 100.0)
            found = tank.advance(pump, heater=False, seconds=1.0)
            if found:
                return found
    return ""


class _Tank:
    """All vertices side by side."""

    def __init__(self, known: Known) -> None:
        ends = itertools.product(
            known.level_m,
            known.inflow_m3h,
            known.temperature_c,
            (-LEAK_M_S, LEAK_M_S),
            (-INFLOW_RATE, 0.0, INFLOW_RATE),
            DRIFT_K_S,
        )
        vertices = np.array(list(ends)).T
        self._start = vertices[:3]
        self._leak, self._rate, self._drift = vertices[3:]
        self.restart()

    def restart(self) -> None:
        self.level, self._inflow, self._temperature = (row.copy() for row in self._start)

    def phase(self, outputs: Outputs, seconds: float) -> str:
        if seconds <= 0:
            return ""
        return self.advance(
            np.full_like(self.level, outputs.pump_pct), heater=outputs.heater, seconds=seconds
        )

    def advance(self, pump: Floats, *, heater: bool, seconds: float) -> str:
        after = np.clip(self._inflow + self._rate * seconds, *INFLOW)
        mean = (self._inflow + after) / 2
        found = self._broken(pump, heater=heater)
        self.level = self.level + seconds * (_M_S_PER_M3H * mean - _M_S_PER_PCT * pump + self._leak)
        heating = 0.2 * heater - 0.0002 * (self._temperature - 20.0)
        self._temperature = self._temperature + seconds * (heating + self._drift)
        self._inflow = after
        return found or self._broken(pump, heater=heater)

    def broken(self, outputs: Outputs) -> str:
        return self._broken(np.full_like(self.level, outputs.pump_pct), heater=outputs.heater)

    def _broken(self, pump: Floats, *, heater: bool) -> str:
        low, high = self.level.min(), self.level.max()
        if high > 3.6 + _TINY:
            return "no-overflow"
        if bool(((pump > 0) & (self.level < 0.3 - _TINY)).any()):
            return "no-dry-run"
        if heater and low < 0.5 - _TINY:
            return "no-dry-fire"
        return "max-temperature" if self._temperature.max() > 75.0 + _TINY else ""
