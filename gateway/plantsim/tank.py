"""The buffer tank: heated, mixed, pumped out, fed by an inflow nobody controls. Physics and bounded noise.

    dL/dt = inflow/7200 - 0.0000625*pump + leak                                     [m/s, m3/h, %]
    dT/dt = 0.1*heater/max(L, 0.3) + inflow/(7200*max(L, 0.3))*(18 - T) - 0.0002*(T - ambient)   [K/s]

The heater heats only while the mixer runs. 7200 = 3600 s/h times the area of 2 m2.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TankParameters:
    """Constants of the demo tank."""

    area_m2: float = 2.0
    height_m: float = 5.0  # a fuller tank spills
    pump_m_per_s_percent: float = 0.0000625
    heating_k_m_per_s: float = 0.1
    least_thermal_level_m: float = 0.3  # below it the heater sees the sump, not the level
    inflow_temperature_c: float = 18.0
    loss_per_s: float = 0.0002


@dataclass(frozen=True, slots=True)
class TankState:
    """What is true of the tank, whatever the instruments say."""

    level_m: float = 2.0
    temperature_c: float = 40.0


@dataclass(frozen=True, slots=True)
class Outputs:
    """Working values of the three actuators."""

    pump_pct: float = 0.0
    heater: bool = False
    mixer: int = 0


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What acts on the tank and no one set."""

    inflow_m3h: float = 12.0
    leak_m_s: float = 0.0
    ambient_c: float = 20.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """What the three transmitters say."""

    level_m: float
    inflow_m3h: float
    temperature_c: float


TANK = TankParameters()


def step(
    state: TankState,
    pump_pct: float,
    heater: bool,  # noqa: FBT001  # a physical input, as the equation has it
    mixer: int,
    dt_s: float,
    disturbance: Disturbance,
    parameters: TankParameters = TANK,
) -> TankState:
    """The state `dt_s` seconds later (one Euler step, good to 1 s); level stays in [0, height]."""
    feed = disturbance.inflow_m3h / (_SECONDS_PER_HOUR * parameters.area_m2)  # m/s
    depth = max(state.level_m, parameters.least_thermal_level_m)
    level = state.level_m + dt_s * (feed - parameters.pump_m_per_s_percent * pump_pct + disturbance.leak_m_s)
    warming = parameters.heating_k_m_per_s / depth if heater and mixer >= 1 else 0.0
    mixing = feed / depth * (parameters.inflow_temperature_c - state.temperature_c)
    losing = parameters.loss_per_s * (state.temperature_c - disturbance.ambient_c)
    return TankState(
        level_m=min(max(level, 0.0), parameters.height_m),
        temperature_c=state.temperature_c + dt_s * (warming + mixing - losing),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DisturbanceLimits:
    """Bounds no generated disturbance leaves."""

    inflow_m3h: tuple[float, float] = (0.0, 36.0)
    inflow_rate: float = 2.0  # m3/h per s
    # The stated bound is 0.0005. An inflow rising at its full rate inside a 1 s step moves the level by
    # another 1 * 1/7200 m that a model holding the inflow for the step books as leak: room is left for it.
    leak_m_s: float = 0.00035
    ambient_c: tuple[float, float] = (18.0, 22.0)


class Disturbances:
    """A seeded walk of inflow, leak and ambient temperature inside `DisturbanceLimits`.

    Knots are one second apart with straight lines between them, so a run is the same whatever the scan time.
    """

    def __init__(self, seed: int, limits: DisturbanceLimits | None = None) -> None:
        self._random = random.Random(seed)  # noqa: S311  # a reproducible plant, not a secret
        self._limits = DisturbanceLimits() if limits is None else limits
        self._target = self._new_target()
        self._knot = Disturbance(
            inflow_m3h=12.0 + self._random.uniform(-2.0, 2.0), ambient_c=self._random.uniform(19.0, 21.0)
        )
        self._next = self._after(self._knot)
        self._share = 0.0  # how far from this knot to the next

    @property
    def now(self) -> Disturbance:
        """The disturbance at this instant."""
        share, here, there = self._share, self._knot, self._next
        return Disturbance(
            inflow_m3h=here.inflow_m3h + share * (there.inflow_m3h - here.inflow_m3h),
            leak_m_s=here.leak_m_s + share * (there.leak_m_s - here.leak_m_s),
            ambient_c=here.ambient_c + share * (there.ambient_c - here.ambient_c),
        )

    def advance(self, dt_s: float) -> Disturbance:
        """The disturbance `dt_s` seconds later, which is then `now`."""
        self._share += dt_s
        while self._share >= 1.0 - 1e-9:
            self._share = max(0.0, self._share - 1.0)
            self._knot = self._next
            self._next = self._after(self._knot)
        return self.now

    def _new_target(self) -> float:
        return self._random.triangular(1.0, 27.0, 8.0)  # mean 12

    def _after(self, here: Disturbance) -> Disturbance:
        draw, limits = self._random.uniform, self._limits
        if self._random.random() < 1 / 150:
            self._target = self._new_target()
        change = 0.1 * (self._target - here.inflow_m3h) + draw(-0.4, 0.4)
        return Disturbance(
            inflow_m3h=_clip(
                here.inflow_m3h + _clip(change, -limits.inflow_rate, limits.inflow_rate), *limits.inflow_m3h
            ),
            leak_m_s=_clip(0.98 * here.leak_m_s + draw(-4e-5, 4e-5), -limits.leak_m_s, limits.leak_m_s),
            ambient_c=_clip(here.ambient_c + draw(-0.02, 0.02), *limits.ambient_c),
        )


@dataclass(slots=True)
class Sensors:
    """Transmitters whose noise is uniform, seeded and bounded by the errors the module states."""

    seed: int
    level_error_m: float = 0.01
    inflow_error_m3h: float = 0.3
    temperature_error_k: float = 0.1
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311  # a reproducible plant, not a secret

    def measure(self, state: TankState, inflow_m3h: float) -> Measurement:
        """One noisy reading of each quantity."""
        draw = self._random.uniform
        return Measurement(
            level_m=state.level_m + draw(-self.level_error_m, self.level_error_m),
            inflow_m3h=inflow_m3h + draw(-self.inflow_error_m3h, self.inflow_error_m3h),
            temperature_c=state.temperature_c + draw(-self.temperature_error_k, self.temperature_error_k),
        )


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
