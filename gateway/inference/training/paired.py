"""Two models of one plant on the same seeds: what the plant loses by the other model, as one number.

    objective = mean of the plant's weighted errors + 0.02 * mean movement of the outputs in % of their spans

Smaller is better. Seeds decide disturbances and sensor noise, so two runs differ by the models alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from gateway.inference.bundle.manifest import Bundle
from gateway.inference.kv.ort_session import Provider
from gateway.inference.serving.engine import Engine
from gateway.inference.training.clone import Clone
from gateway.inference.training.plant import PlantKind
from gateway.inference.training.recipes import RECIPES

FIRST_SEED = 900  # training never has these
MOVE_WEIGHT = 0.02  # per % of an output's span


@dataclass(frozen=True, slots=True)
class Length:
    """How long models are compared: runs, and cycles in each; 0 cycles are the plant's own number.

    Confidence is fitted on `fitted` further runs and held against as many others; 0: it stays as it was.
    """

    seeds: int = 4
    cycles: int = 0
    fitted: int = 96


def plant_of(bundle: Bundle) -> PlantKind | None:
    """The simulated plant with a bundle's tags, None where none is known."""
    inputs = [spec.tag for spec in bundle.manifest.inputs]
    outputs = [spec.tag for spec in bundle.manifest.outputs]
    kinds = (recipe.plant for recipe in RECIPES.values())
    return next(
        (
            kind
            for kind in kinds
            if [row.tag for row in kind.inputs] == inputs and [row.tag for row in kind.outputs] == outputs
        ),
        None,
    )


def cycles_of(kind: PlantKind, length: Length) -> int:
    """How many cycles a run has."""
    return length.cycles or kind.cycles


def objective(
    bundle: Bundle,
    kind: PlantKind,
    length: Length,
    provider: Provider = "cpu",
    advance: Callable[[int], None] = lambda _: None,
) -> float:
    """The mean objective of a bundle over seeds; `advance` is told of cycles done, some at a time."""
    engine = Engine(bundle, kind.ranges, provider=provider)
    seeds: Iterable[int] = range(FIRST_SEED, FIRST_SEED + length.seeds)
    return float(np.mean([_run(engine, kind, seed, cycles_of(kind, length), advance) for seed in seeds]))


_TOLD = 50  # cycles


def _run(engine: Engine, kind: PlantKind, seed: int, cycles: int, advance: Callable[[int], None]) -> float:
    plant = kind.start(seed, random.Random(seed), "plain")  # noqa: S311 - a reproducible figure, not a secret
    controller, before, told = Clone(engine, kind), plant.in_force, 0
    settling = min(kind.settling, cycles // 2)
    spans = [float(abs(limits.value(limits.high) - limits.value(limits.low))) for limits in kind.ranges]
    cost = 0.0
    for cycle in range(cycles):
        outputs = controller.decide(plant.measure(), before)
        if cycle >= settling:
            moved = sum(abs(new - old) / span for new, old, span in zip(outputs, before, spans, strict=True))
            cost += sum(plant.errors()) + MOVE_WEIGHT * 100 * moved
        plant.advance(outputs)
        before = outputs
        if cycle % _TOLD == _TOLD - 1:
            advance(_TOLD)
            told += _TOLD
    advance(cycles - told)
    return cost / max(1, cycles - settling)
