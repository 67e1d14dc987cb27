"""S7: what is let out on the `tclab` twin, under a terminal set, stands before the independent judge."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from gateway.core.decision import CheckResult, Permitted, Repaired
from gateway.core.ports import CheckRequest, StateSet
from gateway.recheck.check import Question, Report, recheck
from gateway.solver.checking.terms import Budget
from gateway.solver.workers.check import Checks
from tests.bench.tclab_proposers import PROPOSERS
from tests.bench.tclab_twin import MODULE, STEP_S, Loop, rule_set

TEXT = MODULE.read_text(encoding="utf-8")
HOLD = Fraction(round(STEP_S))


class Remembering(Checks):
    """The true checker; what it lets out is kept with the state that it was shown from."""

    def __init__(self) -> None:
        super().__init__(rule_set(), Budget(timeout_ms=10_000))
        self.let_out: list[tuple[CheckRequest, CheckResult, StateSet]] = []

    def check(
        self, request: CheckRequest, late: Callable[[], bool] = lambda: False
    ) -> tuple[CheckResult, StateSet | None]:
        result, state = super().check(request, late)
        if isinstance(result.verdict, Permitted | Repaired) and state is not None:
            self.let_out.append((request, result, state))
        return result, state


def judged(request: CheckRequest, proposal: dict[str, Fraction], state: StateSet, samples: int) -> Report:
    """What the judge that shares nothing with the solver finds."""
    question = Question(
        inputs={tag: (i.low, i.high) for tag, i in state.intervals.items()},
        previous={
            str(tag): [e.value for e in past if not e.ceased_s_ago] for tag, past in request.history.items()
        },
        proposal=proposal,
        hold_s=HOLD,
        effect_delay_s=Fraction(0),
    )
    return recheck([TEXT], question, samples=samples, seed=1)


def let_out(name: str, steps: int) -> list[tuple[CheckRequest, dict[str, Fraction], StateSet]]:
    checks = Remembering()
    Loop(PROPOSERS[name](7), 7, checks).run(steps)
    found = []
    for request, result, state in checks.let_out:
        assert isinstance(result.verdict, Permitted | Repaired)
        found.append((request, {str(v.tag): v.value for v in result.verdict.setpoints}, state))
    return found


@pytest.mark.parametrize("name", ["rising", "full", "wandering"])
def test_s7_nothing_that_is_let_out_is_refuted(name: str) -> None:
    for request, proposal, state in let_out(name, 60)[30::10]:
        found = judged(request, proposal, state, samples=6)

        assert found.violated == frozenset()
        assert found.runs > 6


def test_s7_a_hotter_proposal_than_the_repaired_one_is_refuted() -> None:
    repaired = [found for found in let_out("full", 60) if found[0].proposal is not None]
    request, proposal, state = repaired[-1]
    hotter = {tag: value + 20 for tag, value in proposal.items()}

    assert "tclab-twin/hot1" in judged(request, hotter, state, samples=12).violated
