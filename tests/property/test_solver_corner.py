"""S1, S2: a check that looks five seconds ahead without memory walks into a corner; ours never does."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import pytest

from gateway.core.decision import CheckResult, Counterexample, Permitted, Refused, Repaired, Verdict
from gateway.core.ports import CheckRequest, StateSet
from gateway.core.tag import TagId
from gateway.solver.workers.check import Checks
from tests.unit.solver_demo import INFLOW, LEVEL, MIXER, PATIENT, PUMP, proposal, rule_set
from tests.unit.solver_loop import Tally, flooding, run

AHEAD_S = 5
FULL_M, MOST_INFLOW, RAMP = 3.6, 36.0, 10.0
COUNTS = 1000  # of the pump's register


@dataclass
class Memoryless:
    """Permits what keeps the level for five seconds from the raw reading, or the nearest that does.

    Ramp, disturbance and sensor errors are those of the demo module. It has no backup and no memory.
    """

    stuck: int = 0

    def check(self, request: CheckRequest) -> tuple[CheckResult, StateSet | None]:
        """What it permits; nothing to carry."""
        if request.proposal is None:
            return _result(request, _refused()), None
        wanted = float(next(v.value for v in request.proposal.values if v.tag == PUMP))
        now = float(request.history[PUMP][0].value)
        level, inflow = _read(request, LEVEL) + 0.01, _read(request, INFLOW) + 0.3
        grid = (count / 10 for count in range(COUNTS + 1))
        fine = [pump for pump in grid if abs(pump - now) <= RAMP and _keeps(level, inflow, pump)]
        if not fine:
            self.stuck += 1
            return _result(request, _refused()), None
        pump = min(fine, key=lambda value: abs(value - wanted))
        values = proposal(f"{pump:.1f}", 0, int(request.history[MIXER][0].value)).values
        return _result(request, Permitted(values) if pump == wanted else Repaired(values, _why())), None


def _read(request: CheckRequest, tag: TagId) -> float:
    value = request.inputs[tag].value
    assert isinstance(value, float)
    return value


def _keeps(level: float, inflow: float, pump: float) -> bool:
    for _ in range(AHEAD_S):
        after = min(MOST_INFLOW, inflow + 2)
        level += 0.000138889 * (inflow + after) / 2 - 0.0000625 * pump + 0.00051
        inflow = after
    return level <= FULL_M


def _why() -> Counterexample:
    return Counterexample(module="none", constraint="level", margin=Fraction(-1), assignment={}, text="no")


def _refused() -> Refused:
    return Refused(_why())


def _result(request: CheckRequest, verdict: Verdict) -> CheckResult:
    return CheckResult(verdict=verdict, findings=(), generation=request.generation, rule_set_digest="")


def ours_and_the_memoryless(seeds: range, steps: int) -> tuple[Tally, Tally, int]:
    ours, theirs, cornered = Tally(), Tally(), 0
    checks = Checks(rule_set(), PATIENT)
    for seed in seeds:
        found = run(checks, flooding, 2.8, seed, steps)
        ours.broken, ours.stuck = ours.broken + found.broken, ours.stuck + found.stuck
        ours.silent, ours.undetermined = ours.silent + found.silent, ours.undetermined + found.undetermined
        blind = Memoryless()
        theirs.broken += run(blind, flooding, 2.8, seed, steps).broken
        cornered += blind.stuck
    return ours, theirs, cornered


def test_s1_a_memoryless_check_walks_into_the_corner_and_ours_never_does() -> None:
    ours, theirs, cornered = ours_and_the_memoryless(range(2), 200)

    assert theirs.broken > 0
    assert cornered > 0
    assert (ours.broken, ours.silent, ours.undetermined) == (0, 0, 0)
    assert ours.stuck <= 0.01 * 2 * 200


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_s1_in_ten_runs_of_600_steps_the_memoryless_check_overflows_and_ours_never_does() -> None:
    ours, theirs, cornered = ours_and_the_memoryless(range(10), 600)

    assert theirs.broken > 0
    assert cornered > 0
    assert (ours.broken, ours.silent, ours.undetermined) == (0, 0, 0)
    assert ours.stuck <= 0.01 * 10 * 600
