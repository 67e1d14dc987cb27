"""A plate with two heaters and two sensors, two aims that somebody sets; expert and PI beside it.

Physics in steps of 0.2 s, the same as the plant of `constraints/tclab-twin.json`: heaters H1, H2 that nobody
measures, sensors T1, T2 that follow them.

    dH1/dt = P1*Q1/5720 + (Ta - H1)/20 - (H1 - H2)/100     dT1/dt = (H1 - T1)/140     and so for 2

Limits: T1, T2 below 60 degC, each heater at most 20 % a step of 10 s, 200*Q1 + 100*Q2 at most 20000.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from gateway.inference.decoding.decode import OutputRange
from gateway.inference.training.linear import Matrix, observer, regulator
from gateway.inference.training.plant import ContinuousSpell, Controller, Draw, PlantKind, Row, Values

RAMP, POWER = 20.0, 20_000.0  # % a step; 200*Q1 + 100*Q2
AMBIENT_C = 21.0  # the middle of 18 to 24
HIGHEST_AIM_C = 57.0
_WARMEST_C = 59.3  # 59.77 is the module's limit at whole steps; the rest is the expert's back-off
_SUBSTEPS, _EULER_S = 50, 0.2
_SENSOR_STEP_K = 0.3223
_TINY = 1e-6
_SHAKE = 0.08  # of every parameter in training; plants unlike them are 8 to 15 % off
_BEYOND = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Plate:
    """Parameters of one plate."""

    power: tuple[float, float] = (200.0, 100.0)
    cooling_s: float = 20.0
    between_s: float = 100.0
    lag_s: float = 140.0

    def step(self) -> tuple[Matrix, Matrix]:
        """`x+ = A x + B (q1, q2, ta)` over 10 s for `x = (h1, h2, t1, t2)`."""
        cool, pass_on, follow = 1 / self.cooling_s, 1 / self.between_s, 1 / self.lag_s
        rate = np.array(
            [
                [-cool - pass_on, pass_on, 0.0, 0.0],
                [pass_on, -cool - pass_on, 0.0, 0.0],
                [follow, 0.0, -follow, 0.0],
                [0.0, follow, 0.0, -follow],
            ]
        )
        heat = np.zeros((4, 3))
        heat[0, 0], heat[1, 1] = self.power[0] / 5720, self.power[1] / 5720
        heat[:2, 2] = cool
        a, b = np.eye(4), np.zeros((4, 3))
        once = np.eye(4) + _EULER_S * rate
        for _ in range(_SUBSTEPS):
            b = once @ b + _EULER_S * heat
            a = once @ a
        return a, b


class PlateRun:
    """A run of one plate: ambient wanders in its band, aims change every 7 to 15 minutes."""

    def __init__(self, seed: int, dice: random.Random, draw: Draw) -> None:
        self._dice = random.Random(seed + 2_000_003)  # noqa: S311  # a reproducible plant, not a secret
        self._a, self._b = _drawn(self._dice, draw).step()
        self._ambient = self._dice.uniform(18, 24)
        self._state = np.full(4, self._ambient)
        self.in_force: Values = (0.0, 0.0)
        if draw == "disturbed":
            warm = [dice.uniform(18, 60), dice.uniform(18, 60)]
            heater = [warm[0] + dice.uniform(-8, 25), warm[1] + dice.uniform(-8, 15)]
            self._state = np.array([max(18.0, heater[0]), max(18.0, heater[1]), *warm])
            self.in_force = (round(dice.uniform(0, 100), 1), round(dice.uniform(0, 100), 1))
        self._left = 0
        self._new_aims()

    def measure(self) -> Values:
        """T1, T2 in steps of the converter, and both aims."""
        read = [
            round(self._state[2 + at] / _SENSOR_STEP_K + self._dice.uniform(-0.3, 0.3)) * _SENSOR_STEP_K
            + _SENSOR_STEP_K / 2
            for at in range(2)
        ]
        return round(read[0], 3), round(read[1], 3), *self._aims

    def advance(self, acted: Values) -> None:
        """10 s."""
        self._ambient = min(24.0, max(18.0, self._ambient + self._dice.uniform(-0.5, 0.5)))
        self._state = self._a @ self._state + self._b @ np.array([*acted, self._ambient])
        self._left -= 1
        if self._left <= 0:
            self._new_aims()

    def errors(self) -> Values:
        """Of T1 and T2 in K."""
        return abs(self._state[2] - self._aims[0]), abs(self._state[3] - self._aims[1])

    def _new_aims(self) -> None:
        self._left = self._dice.randint(42, 90)
        self._aims = round(self._dice.uniform(35, HIGHEST_AIM_C), 1), round(self._dice.uniform(30, 42), 1)


def _drawn(dice: random.Random, draw: Draw) -> Plate:
    def off() -> float:
        if draw == "beyond":
            return 1 + dice.choice((-1, 1)) * dice.uniform(_SHAKE, _BEYOND)
        return 1 + dice.uniform(-_SHAKE, _SHAKE)

    return Plate(
        power=(200.0 * off(), 100.0 * off()),
        cooling_s=20.0 * off(),
        between_s=100.0 * off(),
        lag_s=140.0 * off(),
    )


@dataclass(frozen=True, slots=True)
class _Design:
    a: Matrix  # [4, 4]
    b: Matrix  # [4, 2]
    ambient: Matrix  # [4]
    whole: Matrix  # [6, 6]: the state and what is added to either heater
    watch: Matrix  # [6, 2]
    gain: Matrix  # [2, 4]


@lru_cache
def _design(move_cost: float, drift: float) -> _Design:
    a, b = Plate().step()
    heat, ambient = b[:, :2], b[:, 2]
    whole = np.eye(6)
    whole[:4, :4], whole[:4, 4:] = a, heat
    seen = np.zeros((2, 6))
    seen[0, 2] = seen[1, 3] = 1.0
    watch = observer(whole, seen, np.diag([0.02, 0.02, 0.002, 0.002, drift, drift]), np.eye(2) * 0.04)
    gain = regulator(a, heat, np.diag([0.0, 0.0, 1.0, 1.0]), np.eye(2) * move_cost)
    return _Design(a, heat, ambient, whole, watch, gain)


class PlateExpert:
    """Linear-quadratic control of an estimated state with estimated added heat, inside the limits.

    What it asks for is moved towards the ramp down until the nominal plate, given that and then the ramp
    down to nothing, stays below 59.3 degC.
    """

    free = True

    def __init__(self, move_cost: float = 6e-4, drift: float = 2.0) -> None:
        self._design = _design(move_cost, drift)
        self._state: Matrix | None = None

    def decide(self, measured: Values, before: Values) -> Values:
        """See `Controller`."""
        design, read = self._design, np.array(measured[:2])
        acted = np.array(before)
        if self._state is None:
            self._state = np.concatenate([read + 20.0 * (acted > 0), read, np.zeros(2)])
            self._state[:2] = np.minimum(self._state[:2], read + 0.2 * acted)
        else:
            self._state = design.whole @ self._state
            self._state[:4] += design.b @ acted + design.ambient * AMBIENT_C
            self._state += design.watch @ (read - self._state[2:4])
        return self._limited(self._wanted(np.array(measured[2:])), before)

    def _wanted(self, aims: Matrix) -> Matrix:
        """Heat that holds the aims, and what the way there asks for."""
        assert self._state is not None, "estimated a moment ago"  # noqa: S101  # an invariant
        design, added = self._design, self._state[4:]
        aims = np.minimum(aims, HIGHEST_AIM_C)
        still = np.linalg.inv(np.eye(4) - design.a)
        per_heat = (still @ design.b)[2:]
        idle = (still @ design.ambient)[2:] * AMBIENT_C
        heat = np.linalg.solve(per_heat, aims - idle)
        rest = still @ (design.b @ heat + design.ambient * AMBIENT_C)
        wanted: Matrix = heat - added - design.gain @ (self._state[:4] - rest)
        return wanted

    def _limited(self, wanted: Matrix, before: Values) -> Values:
        low = [max(0.0, value - RAMP) for value in before]
        high = [min(100.0, value + RAMP) for value in before]
        q1 = min(max(float(wanted[0]), low[0]), high[0])
        q2 = min(max(float(wanted[1]), low[1]), high[1])
        q1 = max(low[0], min(q1, (POWER - 100 * low[1]) / 200))  # the second gives way as fast as it may
        q2 = max(low[1], min(q2, (POWER - 200 * q1) / 100))
        share = 1.0
        while share > 0.0 and not self._stays_cool(
            (low[0] + share * (q1 - low[0]), low[1] + share * (q2 - low[1]))
        ):
            share -= 0.125
        heat = low[0] + share * (q1 - low[0]), low[1] + share * (q2 - low[1])
        return int(heat[0] * 10 + _TINY) / 10, int(heat[1] * 10 + _TINY) / 10

    def _stays_cool(self, heat: Values) -> bool:
        assert self._state is not None, "estimated a moment ago"  # noqa: S101  # an invariant
        design, state, acting = self._design, self._state[:4], np.array(heat)
        if max(state[0], state[1]) + 0.2 * max(heat) < _WARMEST_C:
            return True  # no heater is warm enough
        for _ in range(12):
            state = design.a @ state + design.b @ (acting + self._state[4:]) + design.ambient * AMBIENT_C
            if max(state[2], state[3]) > _WARMEST_C:
                return False
            acting = np.maximum(acting - RAMP, 0.0)
        return True


class PlatePi:
    """Two PI loops that keep ramps and supply; gains by grid search of the error, seeds 100 to 103."""

    free = True

    def __init__(
        self, gains: tuple[float, float] = (12.0, 16.0), reset_steps: tuple[float, float] = (28.0, 28.0)
    ) -> None:
        self._gains, self._reset = gains, reset_steps
        self._sums = [0.0, 0.0]

    def decide(self, measured: Values, before: Values) -> Values:
        """See `Controller`."""
        given: list[float] = []
        for at, (read, aim) in enumerate(zip(measured[:2], measured[2:], strict=True)):
            error = min(aim, HIGHEST_AIM_C) - read
            asked = self._gains[at] * error + self._sums[at]
            value = min(100.0, max(0.0, min(before[at] + RAMP, max(before[at] - RAMP, asked))))
            self._sums[at] += (self._gains[at] * error + 0.5 * (value - asked)) / self._reset[at]
            given.append(value)
        q1 = min(given[0], (POWER - 100 * max(0.0, before[1] - RAMP)) / 200)
        q2 = min(given[1], max(0.0, (POWER - 200 * q1) / 100, before[1] - RAMP))
        return int(q1 * 10 + _TINY) / 10, int(q2 * 10 + _TINY) / 10


def _spell(dice: random.Random) -> ContinuousSpell:
    return ContinuousSpell(dice, (100.0, 100.0), (RAMP, RAMP), 1)


def _expert() -> Controller:
    return PlateExpert()


def _pi() -> Controller:
    return PlatePi()


_DEGREES = "0 10 16 18 " + " ".join(str(20 + 2 * at) for at in range(21)) + " 62 65 70 80 100"
_AIMS = "0 20 " + " ".join(str(30 + 2 * at) for at in range(15)) + " 60 100"
_HEAT = " ".join(f"{2.5 * at:g}" for at in range(41))
_PER_MILLE = OutputRange(Fraction(1, 10), Fraction(0), 0, 1000)

TWO_HEATER = PlantKind(
    cycle_s="10",
    inputs=(
        Row(tag="TCL.T1", unit="degC", knots=_DEGREES, places=3),
        Row(tag="TCL.T2", unit="degC", knots=_DEGREES, places=3),
        Row(tag="TCL.T1.AIM", unit="degC", knots=_AIMS, places=1, told=True),
        Row(tag="TCL.T2.AIM", unit="degC", knots=_AIMS, places=1, told=True),
    ),
    outputs=(
        Row(tag="TCL.Q1.SP", unit="%", knots=_HEAT, places=1),
        Row(tag="TCL.Q2.SP", unit="%", knots=_HEAT, places=1),
    ),
    ranges=(_PER_MILLE, _PER_MILLE),
    error_names=("t1", "t2"),
    start=PlateRun,
    spell=_spell,
    controllers=MappingProxyType({"constraint-aware": _expert, "pi": _pi}),
    cycles=360,
    settling=30,  # the first warming up, which every controller does alike
    agreement=(3.0, 3.0),
    modules=("inference/training/two_heater", "inference/training/linear"),
    beyond=True,
)
