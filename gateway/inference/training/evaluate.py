"""Measures a bundle and writes the figures into its `bundle.json`.

`python -m gateway.inference.training.evaluate DIRECTORY`. No torch: the shipped graph acts in the shipped
engine, on seeds training never had, and where a plant has relatives on plants unlike all that training had.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import numpy as np

from gateway.inference.accuracy_gate import measure
from gateway.inference.bundle.described import Confidence
from gateway.inference.bundle.manifest import GOLDEN_FILE, Bundle, Manifest, load_bundle
from gateway.inference.bundle.twin import twin_of
from gateway.inference.golden import written
from gateway.inference.serving.engine import Engine
from gateway.inference.training.calibrate import CYCLES, FITTED, alarms, answers, calibration, familiarity
from gateway.inference.training.calibrate import HELD_OUT as CHECKED
from gateway.inference.training.cards import write_card
from gateway.inference.training.clone import Clone, engine_of
from gateway.inference.training.dataset import Runs, record
from gateway.inference.training.export import GATES, write_manifest
from gateway.inference.training.paired import Length, objective
from gateway.inference.training.plant import Controller, Draw, PlantKind, Row, Values
from gateway.inference.training.recipes import RECIPES
from gateway.inference.training.reliability import RELIABILITY_FILE, picture

HELD_OUT = range(900, 910)
TUNED = "constraint-aware"  # no other expert means to run the plant well

Make = Callable[[int], Controller]  # for a seed


class Shuffled:
    """A model that sees one input as it was in another run's order."""

    free = True

    def __init__(self, inner: Controller, at: int, seed: int) -> None:
        self._inner, self._at = inner, at
        self._dice = random.Random(seed)  # noqa: S311 - a reproducible figure, not a secret
        self._seen: list[float] = []

    def decide(self, measured: Values, before: Values) -> Values:
        """The inner model's decision on a measurement with one value drawn from those seen so far."""
        self._seen.append(measured[self._at])
        changed = list(measured)
        changed[self._at] = self._dice.choice(self._seen)
        return self._inner.decide(tuple(changed), before)


def mean_errors(
    kind: PlantKind, make: Make, seeds: range = HELD_OUT, cycles: int = 0, draw: Draw = "plain"
) -> Values:
    """The mean of each error a cycle over seeds, after settling."""
    runs = [_errors(kind, make(seed), seed, cycles or kind.cycles, draw) for seed in seeds]
    return tuple(float(value) for value in np.mean(runs, axis=(0, 1)))


def _errors(kind: PlantKind, controller: Controller, seed: int, cycles: int, draw: Draw) -> list[Values]:
    plant = kind.start(seed, random.Random(seed), draw)  # noqa: S311 - as in training
    before, errors = plant.in_force, []
    for cycle in range(cycles):
        before = controller.decide(plant.measure(), before)
        if cycle >= kind.settling:
            errors.append(plant.errors())
        plant.advance(before)
    return errors


def closed_loop(kind: PlantKind, engine: Engine, seeds: range = HELD_OUT) -> dict[str, float]:
    """Mean errors of clone, expert and tuned PI, and the clone's with each input shuffled."""
    makers: dict[str, Make] = {
        "clone": lambda _: Clone(engine, kind),
        "expert": lambda _: kind.controllers[TUNED](),
        "pi": lambda _: kind.controllers["pi"](),
    }
    figures = {"seeds": float(len(seeds)), "cycles": float(kind.cycles)}
    draws: list[tuple[str, Draw]] = [("", "plain"), ("unlike_", "beyond")]
    for prefix, draw in draws if kind.beyond else draws[:1]:
        sums = {}
        for name, make in makers.items():
            errors = mean_errors(kind, make, seeds, draw=draw)
            sums[name] = figures[f"{prefix}{name}_iae"] = sum(errors)
            parts = zip(kind.error_names, errors, strict=True)
            figures |= {f"{prefix}{name}_{part}_iae": error for part, error in parts}
        figures[f"{prefix}iae_over_expert"] = sums["clone"] / sums["expert"]
        figures[f"{prefix}iae_over_pi"] = sums["clone"] / sums["pi"]
    for at, row in enumerate(kind.inputs):

        def shuffled(seed: int, at: int = at) -> Controller:
            return Shuffled(Clone(engine, kind), at, seed)

        figures[f"shuffled_{row.tag}_iae"] = sum(mean_errors(kind, shuffled, seeds))
    return figures


def main(arguments: list[str] | None = None) -> int:
    """Measure, write, print; 1 when a bar of the bundle is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    options = parser.parse_args(arguments)
    bundle = load_bundle(options.directory)
    manifest = evaluated(bundle.manifest, options.directory)
    write_card(options.directory, write_manifest(options.directory, manifest))
    figures = manifest.accuracy | manifest.closed_loop
    failures = [
        f"{name} is {figures[name]:.4g}, over {limit:g}"
        for name, limit in manifest.gates.items()
        if not figures[name] <= limit
    ]
    sys.stdout.write("\n".join([f"{name} {value:.5g}" for name, value in figures.items()] + failures) + "\n")
    return 1 if failures else 0


def evaluated(manifest: Manifest, directory: Path) -> Manifest:
    """The manifest with its figures."""
    recipe = RECIPES[manifest.id]
    engine, bundle = engine_of(directory), load_bundle(directory)
    accuracy = {name: round(value, 6) for name, value in dataclasses.asdict(measure(bundle)).items()}
    loop = closed_loop(recipe.plant, engine) if recipe.expert == TUNED else {}
    loop |= over_twin(bundle, recipe.plant)
    loop = {name: round(value, 5) for name, value in loop.items()}
    known = familiarity(_like_training(recipe.plant, recipe.expert, range(950, 1010)), recipe.plant)
    strange = alarms(known, _like_training(recipe.plant, recipe.expert, range(1010, 1030)), recipe.plant)
    strange = {name: round(value, 5) for name, value in strange.items()}
    manifest = msgspec.structs.replace(manifest, familiarity=msgspec.structs.replace(known, figures=strange))
    trust = confidence(recipe.plant, engine, manifest, recipe.expert)
    assert trust.calibration is not None, "fitted a moment ago"  # noqa: S101 - an invariant
    (directory / RELIABILITY_FILE).write_text(picture(manifest.id, trust.calibration))
    write_golden(bundle, recipe.plant, recipe.expert)
    gates = {name: limit for name, limit in GATES.items() if name in accuracy | loop}
    return msgspec.structs.replace(
        manifest,
        gates=gates,
        accuracy=accuracy,
        closed_loop=loop,
        confidence=trust,
    )


def over_twin(bundle: Bundle, kind: PlantKind) -> dict[str, float]:
    """The closed-loop objective of the shipped graph and of its float32 twin on the same seeds."""
    length = Length(len(HELD_OUT))
    with twin_of(bundle) as twin:
        ours, theirs = objective(bundle, kind, length), objective(twin, kind, length)
    return {"objective": ours, "twin_objective": theirs, "objective_over_twin": ours / theirs}


def _like_training(kind: PlantKind, expert: str, seeds: range) -> Runs:
    """Runs of all kinds that training had, by seeds it had not."""
    disturbed = record(kind, expert, seeds, CYCLES, noise=True)
    return disturbed.joined(record(kind, expert, seeds, CYCLES, noise=False))


def confidence(kind: PlantKind, engine: Engine, manifest: Manifest, expert: str) -> Confidence:
    """How far answers to what is like training agree with the expert, by their concentration."""
    fitted = answers(kind, engine, manifest, expert, FITTED)
    table = Confidence(edges=(), hit_rate=(round(float(fitted.agreed.mean()), 4),))
    held_out = answers(kind, engine, manifest, expert, CHECKED)
    return msgspec.structs.replace(table, calibration=calibration(fitted, held_out))


def write_golden(bundle: Bundle, kind: PlantKind, expert: str) -> None:
    """Golden answers over held-out runs: one long enough for any window, and two that are disturbed."""
    cycles = min(bundle.history_cycles + 30, 200)
    runs = record(kind, expert, range(940, 941), cycles, noise=False)
    disturbed = record(kind, expert, range(941, 943), 60, noise=True)
    asked = [
        [
            (_texts(kind.inputs, measured), tuple(f"{value:g}" for value in before))
            for measured, before in zip(measured_run[1:], acting[:-1], strict=True)
        ]
        for found in (runs, disturbed)
        for measured_run, acting in zip(found.measured, found.in_force, strict=True)
    ]
    golden = written(bundle, kind.ranges, asked)
    (bundle.directory / GOLDEN_FILE).write_bytes(msgspec.json.encode(golden) + b"\n")


def _texts(rows: tuple[Row, ...], values: Iterable[float]) -> tuple[str, ...]:
    return tuple(f"{value:.{row.places}f}" for value, row in zip(values, rows, strict=True))


if __name__ == "__main__":
    sys.exit(main())
