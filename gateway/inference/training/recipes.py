"""Everything that decides the weights of the shipped bundles."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.inference.bundle.manifest import Window
from gateway.inference.training.four_tank import FOUR_TANK
from gateway.inference.training.plant import PlantKind
from gateway.inference.training.tank import TANK
from gateway.inference.training.two_heater import TWO_HEATER


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
    "buffer-tank-hop": Recipe(
        revision=1,
        description="The reference model of the demo buffer tank for a window that hops: no band.",
        plant=TANK,
        expert="constraint-aware",
        window=Window(mode="hop", length=733),  # 61 cycles in each half, and the begin token
        seed=20_260_104,
        runs=480,
        cycles=256,
        short=Crop(24, 32),
        long=Crop(121, 8),
        short_steps=0,
        long_steps=500,
        rounds=1,
        round_steps=200,
        first="buffer-tank",
    ),
    "two-heater": Recipe(
        revision=1,
        description="Leads both temperatures of a plate with two heaters to their aims, inside its limits.",
        plant=TWO_HEATER,
        expert="constraint-aware",
        window=Window(mode="swa", length=192),  # 32 cycles in each layer, more than two time constants
        seed=20_260_103,
        runs=400,
        cycles=160,
        short=Crop(12, 32),
        long=Crop(48, 12),
        short_steps=800,
        long_steps=900,
        rounds=2,
        round_steps=300,
    ),
    "four-tank": Recipe(
        revision=2,
        description="Leads the lower levels of the quadruple tank to their aims, inside its limits.",
        plant=FOUR_TANK,
        expert="constraint-aware",
        window=Window(mode="swa", length=192),  # 24 cycles in each layer
        seed=20_260_105,
        runs=400,
        cycles=160,
        short=Crop(12, 32),
        long=Crop(40, 16),
        short_steps=800,
        long_steps=1400,
        rounds=2,
        round_steps=400,
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
