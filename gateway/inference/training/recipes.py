"""Everything that decides the weights of the shipped bundles."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.inference.bundle import Window
from gateway.inference.training.plant import PlantKind
from gateway.inference.training.tank import TANK


@dataclass(frozen=True, slots=True)
class Crop:
    """Shape of a batch: `cycles` of `batch` runs."""

    cycles: int
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One bundle. With `first` training goes on from the weights of that bundle, with another window."""

    revision: int
    description: str
    plant: PlantKind
    expert: str
    window: Window
    seed: int
    runs: int
    cycles: int
    short: Crop  # what a cycle says by itself
    long: Crop  # and what the past says
    short_steps: int
    long_steps: int
    rounds: int  # of acting with the clone and labelling what it met
    round_steps: int
    first: str = ""


# 61 cycles and no more: the expert's heater stays off for 61 s at least, and the band shows when they end.
_TANK_BAND = Window(mode="swa", length=366)

RECIPES = {
    "buffer-tank": Recipe(
        revision=2,
        description="Keeps level 2 m and temperature 45 degC of the demo buffer tank inside its limits.",
        plant=TANK,
        expert="constraint-aware",
        window=_TANK_BAND,
        seed=20_260_101,
        runs=480,
        cycles=256,
        short=Crop(24, 32),
        long=Crop(112, 8),
        short_steps=900,
        long_steps=500,
        rounds=3,
        round_steps=200,
    ),
    "reckless": Recipe(
        revision=2,
        description="Wants the demo tank full and hot and ignores every limit: to be refused.",
        plant=TANK,
        expert="reckless",
        window=_TANK_BAND,
        seed=20_260_102,
        runs=96,
        cycles=160,
        short=Crop(24, 32),
        long=Crop(112, 8),
        short_steps=100,
        long_steps=60,
        rounds=0,
        round_steps=0,
    ),
}
