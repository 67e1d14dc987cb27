"""The quadruple tank: two pumps, each feeding one lower tank and the upper one above the other; two aims.

Physics and values in cm, s, V of K. H. Johansson, "The Quadruple-Tank Process" (IEEE Trans. Control Systems
Technology 8(3), 2000), at its minimum-phase setting; tank i has area Ai, outlet ai, pump j gives kj*vj:

    A1 dh1/dt = -a1 sqrt(2 g h1) + a3 sqrt(2 g h3) + y1 k1 v1    A3 dh3/dt = -a3 sqrt(2 g h3) + (1-y2) k2 v2
    A2 dh2/dt = -a2 sqrt(2 g h2) + a4 sqrt(2 g h4) + y2 k2 v2    A4 dh4/dt = -a4 sqrt(2 g h4) + (1-y1) k1 v1

Limits: no tank above 19 cm (they are 20 cm high), pumps 0 to 6 V, at most 1 V a cycle of 5 s.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import sqrt
from types import MappingProxyType

import numpy as np

from gateway.inference.decoding.decode import OutputRange
from gateway.inference.training.linear import Matrix, observer, regulator
from gateway.inference.training.plant import ContinuousSpell, Controller, Draw, PlantKind, Row, Values

CYCLE_S, FULL_V, RAMP_V = 5.0, 6.0, 1.0
HEIGHT_CM, HIGHEST_CM = 20.0, 19.0
_BACKED_OFF_CM = 18.5  # the expert's limit: parameters and readings are not exact
_GRAVITY = 981.0
_SUBSTEPS = 5
_SHAKE, _BEYOND = 0.06, 0.12  # of every outlet and pump in training; plants unlike them are 6 to 12 % off
_NOISE_CM = 0.1
_HIGHEST_AIM_CM = 16.5
_MOST_BIAS_V = 0.6  # what a pump of a disturbed run gives beside what it is told


@dataclass(frozen=True, slots=True, kw_only=True)
class Tanks:
    """Parameters of one plant."""

    areas: Values = (28.0, 32.0, 28.0, 32.0)
    outlets: Values = (0.071, 0.057, 0.071, 0.057)
    pumps: tuple[float, float] = (3.33, 3.35)
    shares: tuple[float, float] = (0.7, 0.6)

    def step(self, levels: Values, volts: Values, added: Values = (0.0, 0.0)) -> Values:
        """Levels a cycle later; `added` is flow into the lower tanks in cm3/s."""
        (a1, a2, a3, a4), (o1, o2, o3, o4) = self.areas, self.outlets
        one, two = self.pumps[0] * volts[0], self.pumps[1] * volts[1]
        y1, y2 = self.shares
        h1, h2, h3, h4 = levels
        dt = CYCLE_S / _SUBSTEPS
        for _ in range(_SUBSTEPS):
            f1, f2, f3, f4 = (
                outlet * sqrt(2 * _GRAVITY * max(level, 0.0))
                for outlet, level in zip((o1, o2, o3, o4), (h1, h2, h3, h4), strict=True)
            )
            h1 += dt * (f3 - f1 + y1 * one + added[0]) / a1
            h2 += dt * (f4 - f2 + y2 * two + added[1]) / a2
            h3 += dt * ((1 - y2) * two - f3) / a3
            h4 += dt * ((1 - y1) * one - f4) / a4
            h1, h2, h3, h4 = (min(max(level, 0.0), HEIGHT_CM) for level in (h1, h2, h3, h4))
        return h1, h2, h3, h4

    def rest(self, volts: Values) -> Values:
        """Levels that these pumps hold."""
        one, two = self.pumps[0] * volts[0], self.pumps[1] * volts[1]
        y1, y2 = self.shares
        flows = (y1 * one + (1 - y2) * two, y2 * two + (1 - y1) * one, (1 - y2) * two, (1 - y1) * one)
        return tuple(
            (flow / outlet) ** 2 / (2 * _GRAVITY) for flow, outlet in zip(flows, self.outlets, strict=True)
        )

    def holding(self, aims: Values) -> Values:
        """Pumps that hold both lower tanks there."""
        out = [
            outlet * sqrt(2 * _GRAVITY * max(aim, 0.0))
            for outlet, aim in zip(self.outlets[:2], aims, strict=True)
        ]
        y1, y2 = self.shares
        one, two = np.linalg.solve(np.array([[y1, 1 - y2], [1 - y1, y2]]), np.array(out))
        return float(one) / self.pumps[0], float(two) / self.pumps[1]


class TanksRun:
    """A run of one plant: unmeasured flows wander into the lower tanks, aims change every 3 to 6 minutes.

    In a disturbed one each pump gives some more or less than it is told, always: what an integral is for.
    """

    def __init__(self, seed: int, dice: random.Random, draw: Draw) -> None:
        self._dice = random.Random(seed + 3_000_003)  # noqa: S311  # a reproducible plant, not a secret
        self._tanks = _drawn(self._dice, draw)
        self._levels: Values = Tanks().rest((3.0, 3.0))
        self._added = (0.0, 0.0)
        self._bias = (0.0, 0.0)
        self.in_force: Values = (3.0, 3.0)
        if draw == "disturbed":
            self._levels = tuple(dice.uniform(0.5, 18.5) for _ in range(2)) + tuple(
                dice.uniform(0.2, 8.0) for _ in range(2)
            )
            self.in_force = round(dice.uniform(0, FULL_V), 2), round(dice.uniform(0, FULL_V), 2)
            self._bias = dice.uniform(-_MOST_BIAS_V, _MOST_BIAS_V), dice.uniform(-_MOST_BIAS_V, _MOST_BIAS_V)
        self._left = 0
        self._new_aims()

    def measure(self) -> Values:
        """Four levels and both aims."""
        h1, h2, h3, h4 = (
            round(level + self._dice.uniform(-_NOISE_CM, _NOISE_CM), 2) for level in self._levels
        )
        return h1, h2, h3, h4, *self._aims

    def advance(self, acted: Values) -> None:
        """5 s."""
        one, two = (
            min(1.5, max(-1.5, 0.995 * value + self._dice.uniform(-0.15, 0.15))) for value in self._added
        )
        self._added = one, two
        given = tuple(max(0.0, volt + more) for volt, more in zip(acted, self._bias, strict=True))
        self._levels = self._tanks.step(self._levels, given, self._added)
        self._left -= 1
        if self._left <= 0:
            self._new_aims()

    def errors(self) -> Values:
        """Of the lower tanks in cm."""
        return abs(self._levels[0] - self._aims[0]), abs(self._levels[1] - self._aims[1])

    def _new_aims(self) -> None:
        self._left = self._dice.randint(36, 72)
        while True:
            pair = self._dice.uniform(1.8, 3.7), self._dice.uniform(1.8, 3.7)
            h1, h2 = Tanks().rest(pair)[:2]
            if max(h1, h2) <= _HIGHEST_AIM_CM:
                self._aims = round(h1, 1), round(h2, 1)
                return


def _drawn(dice: random.Random, draw: Draw) -> Tanks:
    def off() -> float:
        if draw == "beyond":
            return 1 + dice.choice((-1, 1)) * dice.uniform(_SHAKE, _BEYOND)
        return 1 + dice.uniform(-_SHAKE, _SHAKE)

    nominal = Tanks()
    return Tanks(
        outlets=tuple(outlet * off() for outlet in nominal.outlets),
        pumps=(nominal.pumps[0] * off(), nominal.pumps[1] * off()),
    )


@lru_cache
def _design(move_cost: float, drift: float) -> tuple[Matrix, Matrix]:
    """Regulator `[2, 4]` and observer `[6, 4]` near 3 V; its last two states are volts that are added."""
    tanks, volts = Tanks(), (3.0, 3.0)
    rest = tanks.rest(volts)
    a, b = np.zeros((4, 4)), np.zeros((4, 2))
    for at in range(4):
        moved = tuple(level + 0.1 * (at == other) for other, level in enumerate(rest))
        a[:, at] = (np.array(tanks.step(moved, volts)) - np.array(rest)) / 0.1
    for at in range(2):
        pumped = tuple(volt + 0.1 * (at == other) for other, volt in enumerate(volts))
        b[:, at] = (np.array(tanks.step(rest, pumped)) - np.array(rest)) / 0.1
    whole, seen = np.eye(6), np.eye(4, 6)
    whole[:4, :4], whole[:4, 4:] = a, b
    noise = np.eye(4) * _NOISE_CM**2 / 3
    watch = observer(whole, seen, np.diag([2e-3, 2e-3, 2e-3, 2e-3, drift, drift]), noise)
    return regulator(a, b, np.diag([1.0, 1.0, 0.0, 0.0]), np.eye(2) * move_cost), watch


class TanksExpert:
    """Linear-quadratic control towards the levels that rest at the aims, with estimated added volts.

    What it asks for is moved towards the ramp down until the nominal plant, given that and then the ramp down
    to nothing, keeps every tank below 18.5 cm.
    """

    free = True

    def __init__(self, move_cost: float = 0.05, drift: float = 3e-3) -> None:
        self._gain, self._watch = _design(move_cost, drift)
        self._tanks = Tanks()
        self._levels: Values | None = None
        self._added = np.zeros(2)

    def decide(self, measured: Values, before: Values) -> Values:
        """See `Controller`."""
        read = measured[:4]
        if self._levels is None:
            self._levels = read
        else:
            volts = tuple(volt + float(more) for volt, more in zip(before, self._added, strict=True))
            expected = np.array(self._tanks.step(self._levels, volts))
            change = self._watch @ (np.array(read) - expected)
            self._levels = tuple(float(level) for level in expected + change[:4])
            self._added = np.clip(self._added + change[4:], -1.5, 1.5)
        aims = min(measured[4], _HIGHEST_AIM_CM), min(measured[5], _HIGHEST_AIM_CM)
        hold = tuple(max(volt, 0.0) for volt in self._tanks.holding(aims))
        rest = (*aims, *self._tanks.rest(hold)[2:])
        off = np.array(self._levels) - np.array(rest)
        return self._limited(np.array(hold) - self._added - self._gain @ off, before)

    def _limited(self, wanted: Matrix, before: Values) -> Values:
        low = [max(0.0, volt - RAMP_V) for volt in before]
        high = [min(FULL_V, volt + RAMP_V) for volt in before]
        asked = [min(max(float(volt), lo), hi) for volt, lo, hi in zip(wanted, low, high, strict=True)]
        share = 1.0
        while share > 0.0 and not self._stays_below(_between(low, asked, share)):
            share -= 0.125
        one, two = _between(low, asked, share)
        return round(one, 2), round(two, 2)

    def _stays_below(self, volts: Values) -> bool:
        assert self._levels is not None, "estimated a moment ago"  # noqa: S101  # an invariant
        levels = self._levels
        if max(levels) < 12.0:  # noqa: PLR2004  # a pump at full power takes longer than its way down
            return True
        for _ in range(9):
            levels = self._tanks.step(levels, volts)
            if max(levels) > _BACKED_OFF_CM:
                return False
            volts = tuple(max(0.0, volt - RAMP_V) for volt in volts)
        return True


class TanksPi:
    """Two PI loops, each pump for the tank it feeds most; gains by grid search, seeds 100 to 103."""

    free = True

    def __init__(self, gains: tuple[float, float] = (3.0, 3.0), reset_cycles: float = 30.0) -> None:
        self._gains, self._reset = gains, reset_cycles
        self._sums = [3.0, 3.0]

    def decide(self, measured: Values, before: Values) -> Values:
        """See `Controller`."""
        given: list[float] = []
        for at in range(2):
            error = min(measured[4 + at], _HIGHEST_AIM_CM) - measured[at]
            asked = self._gains[at] * error + self._sums[at]
            volt = min(FULL_V, max(0.0, min(before[at] + RAMP_V, max(before[at] - RAMP_V, asked))))
            self._sums[at] += (self._gains[at] * error + 0.5 * (volt - asked)) / self._reset
            given.append(round(volt, 2))
        return given[0], given[1]


def _between(low: list[float], asked: list[float], share: float) -> Values:
    return tuple(lo + share * (to - lo) for lo, to in zip(low, asked, strict=True))


def _spell(dice: random.Random) -> ContinuousSpell:
    return ContinuousSpell(dice, (FULL_V, FULL_V), (RAMP_V, RAMP_V), 2)


def _expert() -> Controller:
    return TanksExpert()


def _pi() -> Controller:
    return TanksPi()


_LEVELS = "-1 0 0.5 " + " ".join(str(1 + at) for at in range(20)) + " 21"
_VOLTS = " ".join(f"{0.15 * at:g}" for at in range(41))
_CENTIVOLTS = OutputRange(Fraction(1, 100), Fraction(0), 0, 600)

FOUR_TANK = PlantKind(
    cycle_s="5",
    inputs=(
        *(Row(tag=f"QT.H{at}", unit="cm", knots=_LEVELS, places=2) for at in (1, 2, 3, 4)),
        *(Row(tag=f"QT.H{at}.AIM", unit="cm", knots=_LEVELS, places=1, told=True) for at in (1, 2)),
    ),
    outputs=(
        Row(tag="QT.V1.SP", unit="V", knots=_VOLTS, places=2),
        Row(tag="QT.V2.SP", unit="V", knots=_VOLTS, places=2),
    ),
    ranges=(_CENTIVOLTS, _CENTIVOLTS),
    error_names=("h1", "h2"),
    start=TanksRun,
    spell=_spell,
    controllers=MappingProxyType({"constraint-aware": _expert, "pi": _pi}),
    cycles=360,
    settling=20,
    agreement=(0.18, 0.18),
    modules=("inference/training/four_tank", "inference/training/linear"),
    beyond=True,
)
