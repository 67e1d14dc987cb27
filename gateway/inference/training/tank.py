"""The demo tank as recipes see it, and its clones as the rest of the demo's tools call them."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

from gateway.inference.decoding.decode import OutputRange
from gateway.inference.training.plant import Controller, Draw, PlantKind, Row, Values
from gateway.plantsim.controllers import (
    EXPERT_OFF_S,
    EXPERT_ON_S,
    LEVEL_SETPOINT_M,
    TEMPERATURE_SETPOINT_C,
    ExpertController,
    Memory,
    PiController,
)
from gateway.plantsim.controllers import Controller as TankController
from gateway.plantsim.objective import LEVEL_WEIGHT, TEMPERATURE_WEIGHT
from gateway.plantsim.tank import Disturbance, Disturbances, Measurement, Outputs, Sensors, TankState, step

_SPELL_CHANCE = 0.012  # a second: one every 80 s or so
_BRIM_M = 3.9  # far beyond the limit of 3.6 m
_LEVEL = (
    "-0.1 0 0.2 0.3 0.4 0.5 0.6 0.7 0.8 1 1.2 1.4 1.5 1.6 1.7 1.8 1.85 1.9 1.95 2 2.05 2.1 2.15 2.2 2.3 2.4 "
    "2.5 2.6 2.8 3 3.1 3.2 3.3 3.4 3.5 3.6 3.7 3.8 3.9 4 4.5 5"
)
_INFLOW = "-1 0 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30 32 34 36 38 40"
_TEMPERATURE = (
    "0 10 18 25 30 35 38 40 41 42 43 43.5 44 44.2 44.4 44.6 44.8 45 45.2 45.4 45.6 45.8 46 46.5 47 48 50 55 "
    "60 65 70 72 74 75 76 80 90 100"
)
_PUMP = " ".join(str(2.5 * at) for at in range(41))


class RecklessController:
    """Wants the tank full and hot: no pump, heater on, mixer off; at the brim the pump in full at once."""

    def decide(self, measurement: Measurement, memory: Memory) -> Memory:
        """The memory after this second."""
        pump = 100.0 if measurement.level_m > _BRIM_M else 0.0
        return Memory(outputs=Outputs(pump, heater=True, mixer=0), heater_held_s=memory.heater_held_s + 1.0)


class Remembering:
    """A tank's controller that keeps its own memory and goes by what really was in force."""

    def __init__(self, inner: TankController) -> None:
        self._inner = inner
        self._memory: Memory | None = None
        self.free = False

    def decide(self, measured: Values, before: Values) -> Values:
        """See `Controller`."""
        outputs = outputs_of(before)
        if self._memory is None:
            memory = Memory(outputs=outputs)
        else:
            memory = replace(self._memory, outputs=outputs, heater_held_s=self._held(outputs))
        self.free = memory.heater_held_s >= (EXPERT_ON_S if outputs.heater else EXPERT_OFF_S)
        self._heating, self._held_s = outputs.heater, memory.heater_held_s
        self._memory = self._inner.decide(Measurement(*measured), memory)
        return row(self._memory.outputs)

    def _held(self, outputs: Outputs) -> float:
        return self._held_s + 1.0 if outputs.heater == self._heating else 1.0


class TankRun:
    """A run of the demo tank; a disturbed one starts anywhere."""

    def __init__(self, seed: int, dice: random.Random, draw: Draw) -> None:
        self._disturbances, self._sensors = Disturbances(seed), Sensors(seed + 1_000_003)
        self._state, outputs, self._shift = TankState(), Memory().outputs, 0.0
        if draw == "disturbed":
            self._state, outputs, self._shift = _start(dice)
        self.in_force = row(outputs)

    def measure(self) -> Values:
        """Level, inflow, temperature."""
        now = _shifted(self._disturbances.now, self._shift)
        read = self._sensors.measure(self._state, now.inflow_m3h)
        return round(read.level_m, 3), round(read.inflow_m3h, 2), round(read.temperature_c, 2)

    def advance(self, acted: Values) -> None:
        """One second."""
        outputs = outputs_of(acted)
        following = _shifted(self._disturbances.advance(1.0), self._shift)
        self._state = step(self._state, outputs.pump_pct, outputs.heater, outputs.mixer, 1.0, following)

    def errors(self) -> Values:
        """Of level and temperature, weighted as in the objective."""
        return (
            LEVEL_WEIGHT * abs(self._state.level_m - LEVEL_SETPOINT_M),
            TEMPERATURE_WEIGHT * abs(self._state.temperature_c - TEMPERATURE_SETPOINT_C),
        )


def outputs_of(values: Values) -> Outputs:
    """Pump, heater, mixer."""
    return Outputs(values[0], bool(values[1]), int(values[2]))


def row(outputs: Outputs) -> Values:
    """The other way round."""
    return outputs.pump_pct, float(outputs.heater), float(outputs.mixer)


def _start(dice: random.Random) -> tuple[TankState, Outputs, float]:
    """Anywhere in the tank for half of the runs, near the setpoints for the others."""
    wide = dice.random() < 0.5  # noqa: PLR2004 - half
    level = dice.uniform(0.25, 3.9) if wide else dice.gauss(2.0, 0.2)
    temperature = dice.uniform(18, 76) if wide else dice.gauss(45, 2)
    outputs = Outputs(round(dice.uniform(0, 100), 1), dice.random() < 0.5, dice.randrange(4))  # noqa: PLR2004
    return TankState(max(level, 0.2), temperature), outputs, dice.choice((0.0, 0.0, -8.0, 8.0, 14.0))


def _shifted(disturbance: Disturbance, shift: float) -> Disturbance:
    return replace(disturbance, inflow_m3h=min(max(disturbance.inflow_m3h + shift, 0.0), 36.0))


class TankSpell:
    """See `Spell`."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._kind, self._left, self._target = "", 0, 0.0

    def over(self, acted: Values, before: Values) -> Values:
        """See `Spell`."""
        dice = self._dice
        self._left -= 1
        if self._left <= 0 and dice.random() < _SPELL_CHANCE:
            self._kind = dice.choice(("held", "ramped", "shaken", "heater held", "heater off"))
            self._left, self._target = dice.randint(2, 30), dice.choice((0.0, 100.0, dice.uniform(0, 100)))
        if self._left <= 0:
            return acted
        match self._kind:
            case "held":
                return before
            case "ramped":
                ramped = min(max(self._target, before[0] - 10), before[0] + 10)
                return (round(ramped, 1), *acted[1:])
            case "shaken":
                shaken = min(max(acted[0] + dice.gauss(0, 4), 0.0), 100.0)
                return (round(shaken, 1), *acted[1:])
            case "heater held":
                return acted[0], before[1], acted[2]
            case _:
                return acted[0], 0.0, acted[2]


def _expert() -> Controller:
    return Remembering(ExpertController())


def _pi() -> Controller:
    return Remembering(PiController())


def _reckless() -> Controller:
    return Remembering(RecklessController())


TANK = PlantKind(
    cycle_s="1",
    inputs=(
        Row(tag="TK1.LT101", unit="m", knots=_LEVEL, places=3),
        Row(tag="TK1.FT101", unit="m3/h", knots=_INFLOW, places=2),
        Row(tag="TK1.TT101", unit="degC", knots=_TEMPERATURE, places=2),
    ),
    outputs=(
        Row(tag="TK1.P101.SP", unit="%", knots=_PUMP, places=1),
        Row(tag="TK1.H101.CMD", unit="", knots="0 1", places=0, decoding="most_probable"),
        Row(tag="TK1.M101.STAGE", unit="", knots="0 1 2 3", places=0, decoding="most_probable"),
    ),
    ranges=(
        OutputRange(Fraction(1, 10), Fraction(0), 0, 1000),
        OutputRange(Fraction(1), Fraction(0), 0, 1),
        OutputRange(Fraction(1), Fraction(0), 0, 3),
    ),
    error_names=("level", "temperature"),
    start=TankRun,
    spell=TankSpell,
    controllers=MappingProxyType({"constraint-aware": _expert, "pi": _pi, "reckless": _reckless}),
    cycles=900,
    settling=120,  # from 40 to 45 degC every controller heats alike
    agreement=(1.0, 0.5, 0.5),
    modules=("inference/training/tank", "plantsim/controllers", "plantsim/tank"),
)
