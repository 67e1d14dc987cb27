"""A bundle acting on its simulated plant, as a `Controller`, and in the words of the demo tank."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gateway.inference.bundle.manifest import load_bundle
from gateway.inference.messages import Answer, Cycle, Propose
from gateway.inference.serving.engine import Engine
from gateway.inference.training.plant import PlantKind, Values
from gateway.inference.training.recipes import RECIPES
from gateway.inference.training.tank import TANK, outputs_of, row
from gateway.plantsim.controllers import Memory
from gateway.plantsim.tank import Measurement, Outputs


def engine_of(directory: Path) -> Engine:
    """An engine in this process for a bundle of a recipe, with its plant's registers."""
    bundle = load_bundle(directory)
    return Engine(bundle, RECIPES[bundle.manifest.id].plant.ranges)


class Clone:
    """One run of a model: make a new one for every run."""

    free = True

    def __init__(self, engine: Engine, kind: PlantKind) -> None:
        self._engine, self._kind, self._cycle = engine, kind, 0
        self.answers: list[Answer] = []

    def decide(self, measured: Values, before: Values) -> Values:
        """The outputs for this cycle."""
        kind = self._kind
        in_force = tuple(f"{value:g}" for value in before)
        request = Propose(
            session="clone",
            cycle=self._cycle,
            inputs=tuple(
                f"{value:.{spec.places}f}" for value, spec in zip(measured, kind.inputs, strict=True)
            ),
            in_force=in_force,
            history=(Cycle((), in_force),) if self._cycle == 0 else None,
        )
        answer = self._engine.propose(request)
        assert isinstance(answer, Answer), "one session is never evicted"  # noqa: S101 - an invariant
        self._cycle += 1
        self.answers.append(answer)
        return tuple(float(limits.value(raw)) for limits, raw in zip(kind.ranges, answer.raws, strict=True))


class TankClone:
    """A clone of the demo tank's expert in the words of `gateway.plantsim.controllers`."""

    def __init__(self, engine: Engine) -> None:
        self._clone = Clone(engine, TANK)

    @property
    def answers(self) -> list[Answer]:
        """Of this run."""
        return self._clone.answers

    def decide(self, measurement: Measurement, memory: Memory) -> Memory:
        """The memory after this second."""
        return replace(memory, outputs=self.act(measurement, memory.outputs))

    def act(self, measurement: Measurement, before: Outputs) -> Outputs:
        """The outputs for this second."""
        measured = measurement.level_m, measurement.inflow_m3h, measurement.temperature_c
        return outputs_of(self._clone.decide(measured, row(before)))
