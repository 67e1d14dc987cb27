"""A bundle acting on the simulated plant, as a `gateway.plantsim.controllers.Controller` and as a policy."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from gateway.inference.bundle import load_bundle
from gateway.inference.decode import OutputRange
from gateway.inference.engine import Engine
from gateway.inference.messages import Answer, Cycle, Propose
from gateway.plantsim.controllers import Memory
from gateway.plantsim.tank import Measurement, Outputs

DEMO_OUTPUTS = (
    OutputRange(Fraction(1, 10), Fraction(0), 0, 1000),
    OutputRange(Fraction(1), Fraction(0), 0, 1),
    OutputRange(Fraction(1), Fraction(0), 0, 3),
)


def engine_of(bundle: Path) -> Engine:
    """An engine in this process for the demo's three outputs."""
    return Engine(load_bundle(bundle), DEMO_OUTPUTS)


class Clone:
    """One run of a model: make a new one for every run."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._cycle = engine, 0
        self.answers: list[Answer] = []

    def decide(self, measurement: Measurement, memory: Memory) -> Memory:
        """The memory after this second."""
        return replace(memory, outputs=self.act(measurement, memory.outputs))

    def act(self, measurement: Measurement, before: Outputs) -> Outputs:
        """The outputs for this second."""
        in_force = (f"{before.pump_pct:g}", str(int(before.heater)), str(before.mixer))
        request = Propose(
            session="clone",
            cycle=self._cycle,
            inputs=(
                f"{measurement.level_m:.3f}",
                f"{measurement.inflow_m3h:.2f}",
                f"{measurement.temperature_c:.2f}",
            ),
            in_force=in_force,
            history=(Cycle((), in_force),) if self._cycle == 0 else None,
        )
        answer = self._engine.propose(request)
        assert isinstance(answer, Answer), "one session is never evicted"  # noqa: S101 - an invariant
        self._cycle += 1
        self.answers.append(answer)
        pump, heater, mixer = answer.raws
        return Outputs(pump / 10, bool(heater), mixer)
