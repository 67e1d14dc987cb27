"""Proposers for the closed loop: the shipped bundles, and rules that show one thing each."""

from __future__ import annotations

import random
from functools import lru_cache
from pathlib import Path

import gateway.inference
from gateway.inference.serving.engine import Engine
from gateway.inference.training.clone import TankClone, engine_of
from gateway.plantsim.tank import Measurement, Outputs
from tests.bench.simulator import Policy

_BUNDLES = Path(gateway.inference.__file__).parent / "bundles"
BUNDLES = {"reference": "buffer-tank", "reference_settled": "buffer-tank", "reckless": "reckless"}


class FillAndHeat:
    """Pump 0, heater on, always."""

    def act(self, measurement: Measurement, before: Outputs) -> Outputs:
        del measurement, before
        return Outputs(0.0, heater=True, mixer=1)


class Brink:
    """Keeps every rule of the moment and goes straight for a limit: overflow, or a pump that runs dry."""

    def __init__(self, *, fills: bool) -> None:
        self._step = -10.0 if fills else 10.0

    def act(self, measurement: Measurement, before: Outputs) -> Outputs:
        del measurement
        return Outputs(min(max(before.pump_pct + self._step, 0.0), 100.0), heater=False, mixer=1)


class Wandering:
    """Random outputs: a pump that drifts to anywhere, a heater and a mixer switched now and then."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)  # noqa: S311  # reproducible, not a secret
        self._target = self._dice.uniform(0.0, 100.0)
        self._heater = False

    def act(self, measurement: Measurement, before: Outputs) -> Outputs:
        del measurement
        if self._dice.random() < 1 / 60:
            self._target = self._dice.choice((0.0, 100.0, self._dice.uniform(0.0, 100.0)))
        if self._dice.random() < 1 / 40:
            self._heater = not self._heater
        reach = self._dice.uniform(0.0, 11.0)
        pump = min(max(self._target, before.pump_pct - reach), before.pump_pct + reach)
        mixer = self._dice.randint(0, 3) if self._dice.random() < 1 / 20 else before.mixer
        return Outputs(min(max(round(pump, 1), 0.0), 100.0), self._heater, mixer)


def policy(name: str, seed: int) -> Policy:
    """A fresh proposer for one run."""
    if name in BUNDLES:
        return TankClone(bundle_engine(BUNDLES[name]))
    if name == "brink":
        return Brink(fills=seed % 2 == 0)
    return FillAndHeat() if name == "fill_and_heat" else Wandering(seed)


@lru_cache(maxsize=2)
def bundle_engine(bundle: str) -> Engine:
    """The engine of a shipped bundle, in this process."""
    return engine_of(_BUNDLES / bundle)
