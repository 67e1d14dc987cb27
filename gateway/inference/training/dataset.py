"""Runs of the plant under an expert, with disturbed actions so that the clone sees states off its path."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gateway.inference.bundle import Manifest
from gateway.inference.tokenizer import TagCodec, Tokenizer
from gateway.plantsim.controllers import EXPERT_OFF_S, EXPERT_ON_S, Controller, Memory
from gateway.plantsim.tank import Disturbance, Disturbances, Measurement, Outputs, Sensors, TankState, step

Array = NDArray[np.float64]
Policy = Callable[[Measurement, Outputs], Outputs]

_CHANGE_WEIGHT = 3.0
_SPELL_CHANCE = 0.012  # a second: one every 80 s or so


@dataclass(frozen=True, slots=True)
class Runs:
    """`[runs, cycles, 3]` each; cycle 0 is not measured: it says what was in force before the first."""

    measured: Array
    in_force: Array
    wanted: Array
    free: Array  # [runs, cycles]: 1 where no minimum time binds the heater, so that this cycle decides alone

    def joined(self, other: Runs) -> Runs:
        """Both."""
        return Runs(
            np.concatenate([self.measured, other.measured]),
            np.concatenate([self.in_force, other.in_force]),
            np.concatenate([self.wanted, other.wanted]),
            np.concatenate([self.free, other.free]),
        )


def record(
    expert: Controller, seeds: range, cycles: int, policy: Callable[[], Policy] | None = None, *, noise: bool
) -> Runs:
    """Runs acted by the expert, or by a `policy` (the clone) while the expert says what it would want.

    With `noise`, starts are anywhere, and in spells something else is in force: held, ramped, shaken, off.
    """
    runs = [_run(expert, seed, cycles, policy() if policy else None, noise=noise) for seed in seeds]
    return Runs(*(np.array([run[at] for run in runs]) for at in range(4)))


def read(measurement: Measurement) -> Measurement:
    """A measurement as its registers hold it."""
    return Measurement(
        level_m=round(measurement.level_m, 3),
        inflow_m3h=round(measurement.inflow_m3h, 2),
        temperature_c=round(measurement.temperature_c, 2),
    )


def _run(
    expert: Controller, seed: int, cycles: int, policy: Policy | None, *, noise: bool
) -> tuple[list[list[float]], list[list[float]], list[list[float]], list[float]]:
    dice = random.Random(seed)  # noqa: S311 - a reproducible recipe, not a secret
    disturbances, sensors = Disturbances(seed), Sensors(seed + 1_000_003)
    state, memory, shift = TankState(), Memory(), 0.0
    if noise:
        state, memory, shift = _start(dice)
    spell = _Spell(dice)
    measured, in_force, wanted = [[0.0, 0.0, 0.0]], [_row(memory.outputs)], [_row(memory.outputs)]
    free = [0.0]
    for _ in range(cycles - 1):
        now = _shifted(disturbances.now, shift)
        measurement = read(sensors.measure(state, now.inflow_m3h))
        before, held_before = memory.outputs, memory.heater_held_s
        wish = expert.decide(measurement, memory)
        acted = policy(measurement, before) if policy else wish.outputs
        acted = spell.over(acted, before) if noise else acted
        held = memory.heater_held_s + 1.0 if acted.heater == before.heater else 1.0
        memory = replace(wish, outputs=acted, heater_held_s=held)
        measured.append([measurement.level_m, measurement.inflow_m3h, measurement.temperature_c])
        in_force.append(_row(acted))
        wanted.append(_row(wish.outputs))
        shortest = EXPERT_ON_S if before.heater else EXPERT_OFF_S
        free.append(float(held_before >= shortest))
        following = _shifted(disturbances.advance(1.0), shift)
        state = step(state, acted.pump_pct, acted.heater, acted.mixer, 1.0, following)
    return measured, in_force, wanted, free


def _start(dice: random.Random) -> tuple[TankState, Memory, float]:
    """Anywhere in the tank for half of the runs, near the setpoints for the others."""
    wide = dice.random() < 0.5  # noqa: PLR2004 - half
    level = dice.uniform(0.25, 3.9) if wide else dice.gauss(2.0, 0.2)
    temperature = dice.uniform(18, 76) if wide else dice.gauss(45, 2)
    outputs = Outputs(round(dice.uniform(0, 100), 1), dice.random() < 0.5, dice.randrange(4))  # noqa: PLR2004
    return (
        TankState(max(level, 0.2), temperature),
        Memory(outputs=outputs),
        dice.choice((0.0, 0.0, -8.0, 8.0, 14.0)),
    )


def _shifted(disturbance: Disturbance, shift: float) -> Disturbance:
    return replace(disturbance, inflow_m3h=min(max(disturbance.inflow_m3h + shift, 0.0), 36.0))


def _row(outputs: Outputs) -> list[float]:
    return [outputs.pump_pct, float(outputs.heater), float(outputs.mixer)]


class _Spell:
    """A while in which something else than the proposal is in force: held, repaired, a person, the backup."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._kind, self._left, self._target = "", 0, 0.0

    def over(self, acted: Outputs, before: Outputs) -> Outputs:
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
                ramped = min(max(self._target, before.pump_pct - 10), before.pump_pct + 10)
                return replace(acted, pump_pct=round(ramped, 1))
            case "shaken":
                shaken = min(max(acted.pump_pct + dice.gauss(0, 4), 0.0), 100.0)
                return replace(acted, pump_pct=round(shaken, 1))
            case "heater held":
                return replace(acted, heater=before.heater)
            case _:
                return replace(acted, heater=False)


@dataclass(frozen=True, slots=True)
class Encoded:
    """`tokens` and `fractions` `[runs, cycles * 6]`; targets `[runs, cycles, outputs]`."""

    tokens: NDArray[np.int64]
    fractions: NDArray[np.float32]
    target_tokens: NDArray[np.int64]
    target_fractions: NDArray[np.float32]
    target_values: NDArray[np.float32]
    weights: NDArray[np.float32]  # changes count more: persistence is right 99 times of 100 and useless
    free: NDArray[np.bool_]


def encode(runs: Runs, manifest: Manifest) -> Encoded:
    """Tokens of whole runs, cycle by cycle."""
    tokenizer = Tokenizer(manifest)
    columns = [_encode(codec, runs.measured[:, :, at]) for at, codec in enumerate(tokenizer.inputs)]
    columns += [_encode(codec, runs.in_force[:, :, at]) for at, codec in enumerate(tokenizer.outputs)]
    tokens = np.stack([column[0] for column in columns], axis=2)
    fractions = np.stack([column[1] for column in columns], axis=2)
    targets = [_encode(codec, runs.wanted[:, :, at]) for at, codec in enumerate(tokenizer.outputs)]
    return Encoded(
        tokens.reshape(len(tokens), -1),
        fractions.reshape(len(tokens), -1),
        np.stack([target[0] for target in targets], axis=2),
        np.stack([target[1] for target in targets], axis=2),
        runs.wanted.astype(np.float32),
        _weights(runs),
        runs.free > 0,
    )


def _weights(runs: Runs) -> NDArray[np.float32]:
    before = np.concatenate([runs.in_force[:, :1], runs.in_force[:, :-1]], axis=1)
    weights: NDArray[np.float32] = (1.0 + _CHANGE_WEIGHT * (runs.wanted != before)).astype(np.float32)
    return weights


def _encode(codec: TagCodec, values: Array) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """`TagCodec.encode` over an array."""
    knots = np.array(codec.knots)
    inside = np.clip(values, knots[0], knots[-1])
    at = np.clip(np.searchsorted(knots, inside, side="right") - 1, 0, len(knots) - 1)
    following = np.minimum(at + 1, len(knots) - 1)
    width = np.where(following > at, knots[following] - knots[at], 1.0)
    return at + codec.first_token, ((inside - knots[at]) / width).astype(np.float32)
