"""Recordings of plants whose physics is known: the demo tank, and the `tclab` twin with heaters logged."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from gateway.core.tag import TagId
from gateway.plantsim.controllers import ExpertController, Memory
from gateway.plantsim.tank import Disturbances, Sensors, TankState, step
from gateway.solver.identify.series import Channel, Floats, Recording, Samples
from gateway.solver.identify.windows import Model
from tests.bench.tclab_twin import T1, T2, Tally, Twin

TANK = (
    Channel(name="level", tag=TagId("L"), sort="real", unit="m", action=False, error=Fraction("0.01")),
    Channel(name="inflow", tag=TagId("F"), sort="real", unit="m3/h", action=False, error=Fraction("0.3")),
    Channel(name="temp", tag=TagId("T"), sort="real", unit="degC", action=False, error=Fraction("0.1")),
    Channel(name="pump", tag=TagId("P"), sort="real", unit="%", action=True),
    Channel(name="heater", tag=TagId("H"), sort="bool", unit="", action=True),
)
_TWIN_NAMES = ("t1", "t2", "h1", "h2", "ta", "q1", "q2")
_SUBSTEPS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """A recording and what was true at each step."""

    recording: Recording
    true: Mapping[str, Floats]

    def unexplained(self, model: Model) -> Floats:
        """What moved the plant beside the model, from its true states."""
        y = self.true[model.target]
        drive = sum(effect * self.true[name][:-1] for name, effect in model.effects.items())
        found: Floats = y[1:] - model.keep * y[:-1] - model.constant - drive
        return found


def recording(channels: tuple[Channel, ...], values: Mapping[str, Floats], step_s: float) -> Recording:
    """One good sample of everything at each step."""
    samples = {}
    for channel in channels:
        value = np.asarray(values[channel.name], dtype=np.float64)
        at = step_s * np.arange(len(value), dtype=np.float64)
        samples[channel.name] = Samples(at=at, value=value.copy(), good=np.ones(len(value), dtype=np.bool_))
    return Recording(channels=channels, samples=samples)


@lru_cache(maxsize=4)
def tank(steps: int = 8_000, seed: int = 1) -> Plant:
    """The demo tank, its pump moved at random around what the inflow asks for."""
    disturbances, sensors, dice = Disturbances(seed), Sensors(seed), random.Random(seed)  # noqa: S311  # reproducible, not a secret
    state, pump, heater, aim = TankState(), 30.0, False, 30.0
    read: dict[str, list[float]] = {c.name: [] for c in TANK}
    true: dict[str, list[float]] = {c.name: [] for c in TANK}
    for k in range(steps):
        inflow = disturbances.now.inflow_m3h
        seen = sensors.measure(state, inflow)
        if k % 20 == 0:
            wanted = 2.222 * seen.inflow_m3h + 60.0 * (seen.level_m - 2.0) + dice.uniform(-40.0, 40.0)
            aim = min(100.0, max(0.0, wanted))
        pump = round(min(max(aim, pump - 10.0), pump + 10.0), 1)
        if k % 60 == 0:
            heater = seen.temperature_c < 60.0 and dice.random() < 0.55
        rows = zip(
            TANK,
            (seen.level_m, seen.inflow_m3h, seen.temperature_c, pump, heater),
            (state.level_m, inflow, state.temperature_c, pump, heater),
            strict=True,
        )
        for channel, reading, truth in rows:
            read[channel.name].append(float(reading))
            true[channel.name].append(float(truth))
        for _ in range(_SUBSTEPS):
            now = disturbances.advance(1.0 / _SUBSTEPS)
            state = step(state, pump, heater, 1, 1.0 / _SUBSTEPS, now)
    known = {name: np.array(values) for name, values in read.items()}
    return Plant(
        recording=recording(TANK, known, 1.0), true={name: np.array(values) for name, values in true.items()}
    )


@lru_cache(maxsize=2)
def led_tank(steps: int = 8_000, seed: int = 1) -> Plant:
    """The demo tank under its expert controller alone, which follows the inflow closely."""
    disturbances, sensors, state = Disturbances(seed), Sensors(seed), TankState()
    controller, memory = ExpertController(), Memory()
    rows: list[tuple[tuple[float, ...], tuple[float, ...]]] = []
    for _ in range(steps):
        inflow = disturbances.now.inflow_m3h
        seen = sensors.measure(state, inflow)
        memory = controller.decide(seen, memory)
        pump, heater = memory.outputs.pump_pct, memory.outputs.heater
        read = seen.level_m, seen.inflow_m3h, seen.temperature_c, pump, float(heater)
        rows.append((read, (state.level_m, inflow, state.temperature_c, pump, float(heater))))
        for _ in range(_SUBSTEPS):
            state = step(state, pump, heater, 1, 1.0 / _SUBSTEPS, disturbances.advance(1.0 / _SUBSTEPS))
    read_, true = (np.array([row[k] for row in rows]).T for k in (0, 1))
    names = [c.name for c in TANK]
    return Plant(
        recording=recording(TANK, dict(zip(names, read_, strict=True)), 1.0),
        true=dict(zip(names, true, strict=True)),
    )


def twin_channels(*names: str) -> tuple[Channel, ...]:
    """Of the twin: temperatures as its converter tells them, the heaters' and the room's as a probe would."""
    return tuple(
        Channel(
            name=name,
            tag=TagId(f"TCL.{name}"),
            sort="real",
            unit="%" if name.startswith("q") else "degC",
            action=name.startswith("q"),
            error=None if name.startswith("q") else Fraction("0.258" if name.startswith("t") else "0.1"),
            rounding=Fraction("0.16115") if name in {"t1", "t2"} else Fraction(0),
        )
        for name in names
    )


@lru_cache(maxsize=4)
def twin(steps: int = 6_000, seed: int = 1, names: tuple[str, ...] = _TWIN_NAMES) -> Plant:
    """The twin with its heat set anew every minute; `names` are what was logged."""
    plant, dice = Twin(seed), random.Random(seed + 5)  # noqa: S311  # reproducible, not a secret
    heat, tally = (30.0, 30.0), Tally()
    read: dict[str, list[float]] = {name: [] for name in _TWIN_NAMES}
    true: dict[str, list[float]] = {name: [] for name in _TWIN_NAMES}
    for k in range(steps):
        if k % 6 == 0:
            heat = round(dice.uniform(0.0, 60.0), 1), round(dice.uniform(0.0, 60.0), 1)
        readings, state = plant.readings(), plant.state
        plant.advance(heat, tally)
        for name, value in (*state.items(), ("ta", plant.ambient), ("q1", heat[0]), ("q2", heat[1])):
            true[name].append(value)
            probed = value if name.startswith("q") else value + dice.uniform(-0.1, 0.1)
            read[name].append(readings[{"t1": T1, "t2": T2}[name]] if name in {"t1", "t2"} else probed)
    known = {name: np.array(values) for name, values in read.items()}
    return Plant(
        recording=recording(twin_channels(*names), known, 10.0),
        true={name: np.array(values) for name, values in true.items()},
    )


LAG = (
    Channel(name="y", tag=TagId("Y"), sort="real", unit="m", action=False, error=Fraction("0.02")),
    Channel(name="u", tag=TagId("U"), sort="real", unit="%", action=True),
    Channel(name="v", tag=TagId("V"), sort="bool", unit="", action=True),
)


def lag(steps: int = 4_000, *, still_until: int = 0, at: float = 0.0) -> Recording:
    """`y(next) = 0.95*y + 0.01*u + 0.3*v` within 0.02; `v` stands at `at` for the first steps."""
    dice = np.random.default_rng(1)
    u = np.round(np.repeat(dice.uniform(0, 100, steps // 20 + 1), 20)[:steps], 1)
    v = np.repeat(dice.integers(0, 2, steps // 40 + 1), 40)[:steps].astype(np.float64)
    v[:still_until] = at
    y = np.zeros(steps)
    for k in range(steps - 1):
        y[k + 1] = 0.95 * y[k] + 0.01 * u[k] + 0.3 * v[k] + dice.uniform(-0.02, 0.02)
    return recording(LAG, {"y": y + dice.uniform(-0.02, 0.02, steps), "u": u, "v": v}, 1.0)
