"""S16 in the loop of the soft PLC and the true checker: health never trips, a broken plant always does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from gateway.core.decision import CheckResult
from gateway.core.ports import CheckRequest, StateSet
from gateway.core.residual import WINDOWS, broken
from gateway.plantsim.tank import TankState
from gateway.solver.monitor.residuals import Monitor
from gateway.solver.workers.check import Checks
from tests.bench.closed_loop import checks
from tests.bench.policies import policy
from tests.bench.simulator import LEVEL, simulate


@dataclass
class Watching:
    """The true checker, measurements judged beside it; `drift` a step of the level's transmitter."""

    checks: Checks = field(default_factory=checks)
    monitor: Monitor = field(default_factory=Monitor)
    drift: float = 0.0
    drifts_from: int = 80
    steps: int = 0
    tripped: list[tuple[int, str]] = field(default_factory=list)
    shares: dict[int, float] = field(default_factory=dict)
    _at: float = -1.0

    def check(self, request: CheckRequest) -> tuple[CheckResult, StateSet | None]:
        """One check; the first of an instant is the decision's."""
        first, self._at = request.taken_at != self._at, request.taken_at
        self.steps += first
        request = self._drifted(request)
        result, state = self.checks.check(request)
        if first:
            found = self.monitor.take(self.checks.rules, request, state)
            for residual in found:
                if residual.tag == LEVEL:
                    known = self.shares.get(residual.window, 0.0)
                    self.shares[residual.window] = max(known, residual.used_share)
            if why := broken(found):
                self.tripped.append((self.steps, why))
        return result, state

    def _drifted(self, request: CheckRequest) -> CheckRequest:
        steps = max(0, self.steps - self.drifts_from)
        if not (self.drift and steps):
            return request
        sample = request.inputs[LEVEL]
        assert isinstance(sample.value, float)
        off = replace(sample, value=round(sample.value + self.drift * steps, 3))
        return replace(request, inputs={**request.inputs, LEVEL: off})


async def watched(name: str, seed: int, steps: int, drift: float = 0.0) -> Watching:
    watching = Watching(drift=drift)
    start = TankState(level_m=1.5 + 0.3 * (seed % 5), temperature_c=40.0)
    await simulate(policy(name, seed), seed=seed, steps=steps, check=watching, start=start)
    return watching


async def test_s16_the_demo_plant_in_health_never_trips() -> None:
    found = await watched("wandering", 1, 80)
    assert found.tripped == []
    assert found.shares.keys() == set(WINDOWS)
    assert max(found.shares.values()) < 1


async def test_s16_a_drift_of_2_mm_a_second_trips_though_the_checker_carries_its_state_on() -> None:
    found = await watched("wandering", 2, 140, drift=0.002)
    assert found.tripped
    at, why = found.tripped[0]
    assert 80 < at <= 140
    assert "`TK1.LT101`" in why


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["reckless", "reference", "fill_and_heat", "brink", "wandering"])
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_s16_hundreds_of_steps_of_every_proposer_never_trip(name: str, seed: int) -> None:
    found = await watched(name, seed, 400)
    assert found.tripped == []
    assert max(found.shares.values()) < 1
