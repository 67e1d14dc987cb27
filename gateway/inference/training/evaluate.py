"""Measures a bundle and writes the figures into its `bundle.json`.

`python -m gateway.inference.training.evaluate DIRECTORY`. No torch: the shipped graph acts in the shipped
engine, on seeds training never had.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from gateway.inference.accuracy_gate import measure
from gateway.inference.bundle import Confidence, Manifest, load_bundle
from gateway.inference.engine import Engine
from gateway.inference.training.clone import Clone, engine_of
from gateway.inference.training.expert import EXPERTS
from gateway.inference.training.export import recipe_digest, write_manifest
from gateway.plantsim.controllers import Controller, ExpertController, Memory, PiController
from gateway.plantsim.objective import Score, score, simulate
from gateway.plantsim.tank import Measurement

HELD_OUT = range(900, 910)
SECONDS = 900
_SETTLING_S = 120  # from 40 to 45 degC every controller heats alike
_QUANTILES = 6


class Shuffled:
    """A model that sees one input as it was in another run's order."""

    def __init__(self, inner: Clone, name: str, seed: int) -> None:
        self._inner, self._name = inner, name
        self._dice = random.Random(seed)  # noqa: S311 - a reproducible figure, not a secret
        self._seen: list[float] = []

    def decide(self, measurement: Measurement, memory: Memory) -> Memory:
        """The inner model's decision on a measurement with one field drawn from those seen so far."""
        self._seen.append(getattr(measurement, self._name))
        return self._inner.decide(replace(measurement, **{self._name: self._dice.choice(self._seen)}), memory)


def mean_score(make: Callable[[int], Controller], seeds: range = HELD_OUT, seconds: int = SECONDS) -> Score:
    """The mean of the parts of the objective over seeds, after settling."""
    scores = [score(simulate(make(seed), seed=seed, seconds=seconds)[_SETTLING_S:]) for seed in seeds]
    return Score(
        **{
            field.name: float(np.mean([getattr(one, field.name) for one in scores]))
            for field in dataclasses.fields(Score)
        }
    )


def closed_loop(engine: Engine, seeds: range = HELD_OUT, seconds: int = SECONDS) -> dict[str, float]:
    """IAE and objective of clone, expert and tuned PI, and the clone's with each input shuffled."""
    clone = mean_score(lambda _: Clone(engine), seeds, seconds)
    expert = mean_score(lambda _: ExpertController(), seeds, seconds)
    pi = mean_score(lambda _: PiController(), seeds, seconds)
    figures = {
        "seeds": float(len(seeds)),
        "seconds": float(seconds),
        "clone_iae": clone.iae,
        "clone_level_iae_m": clone.level_iae_m,
        "clone_temperature_iae_k": clone.temperature_iae_k,
        "expert_iae": expert.iae,
        "expert_level_iae_m": expert.level_iae_m,
        "expert_temperature_iae_k": expert.temperature_iae_k,
        "pi_iae": pi.iae,
        "clone_objective": clone.objective,
        "expert_objective": expert.objective,
        "pi_objective": pi.objective,
        "iae_over_expert": clone.iae / expert.iae,
        "iae_over_pi": clone.iae / pi.iae,
    }
    for name in ("level_m", "inflow_m3h", "temperature_c"):

        def make(seed: int, name: str = name) -> Controller:
            return Shuffled(Clone(engine), name, seed)

        figures[f"shuffled_{name}_iae"] = mean_score(make, seeds, seconds).iae
    return figures


def calibration(engine: Engine, expert: Controller) -> Confidence:
    """How often answers of like concentration agreed with the expert (pump within 1 %)."""
    certainty, agreed = [], []
    for seed in range(920, 926):
        clone, memory = Clone(engine), Memory()
        for moment in simulate(expert, seed=seed, seconds=600):
            outputs = clone.act(moment.measurement, memory.outputs)
            certainty.append(clone.answers[-1].concentration)
            wanted = moment.outputs
            agreed.append(
                abs(outputs.pump_pct - wanted.pump_pct) <= 1.0
                and (outputs.heater, outputs.mixer) == (wanted.heater, wanted.mixer)
            )
            memory = replace(memory, outputs=wanted)
    values, hits = np.array(certainty), np.array(agreed)
    edges = np.unique(np.quantile(values, np.arange(1, _QUANTILES) / _QUANTILES).round(6))
    group = np.searchsorted(edges, values, side="right")
    rates = [float(hits[group == at].mean()) if (group == at).any() else 0.0 for at in range(len(edges) + 1)]
    rising = np.maximum.accumulate(rates)  # a surer answer is never trusted less
    return Confidence(
        edges=tuple(float(edge) for edge in edges), hit_rate=tuple(round(float(r), 4) for r in rising)
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure, write, print; 1 when a bar of the bundle is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    options = parser.parse_args(arguments)
    bundle = load_bundle(options.directory)
    manifest = evaluated(bundle.manifest, options.directory)
    write_manifest(options.directory, manifest)
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
    assert manifest.training is not None, "our own recipe writes it"  # noqa: S101 - an invariant
    engine, bundle = engine_of(directory), load_bundle(directory)
    accuracy = {name: round(value, 6) for name, value in dataclasses.asdict(measure(bundle)).items()}
    tuned = manifest.training.expert == "constraint-aware"  # no other expert means to run the plant well
    loop = {name: round(value, 5) for name, value in closed_loop(engine).items()} if tuned else {}
    gates = {name: limit for name, limit in manifest.gates.items() if name in accuracy | loop}
    return msgspec.structs.replace(
        manifest,
        gates=gates,
        accuracy=accuracy,
        closed_loop=loop,
        confidence=calibration(engine, EXPERTS[manifest.training.expert]),
        training=msgspec.structs.replace(manifest.training, recipe_digest=recipe_digest()),
    )


if __name__ == "__main__":
    sys.exit(main())
