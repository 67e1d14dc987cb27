"""S1, S11: a PLC that falls back in the middle of a proposal's time, by its local switch or by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from gateway.cli.certificate.checks import Wanted, verify
from gateway.cli.certificate.export import export
from gateway.core.decision import Permitted, Refused
from gateway.core.ports import CheckRequest, StateSet
from gateway.recheck.check import Question, recheck
from gateway.recheck.exactly import VIOLATED, recheck_exactly
from gateway.solver.modules.module import Module
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.certificate_demo import decided, kept
from tests.unit.solver_small import Plant, checks, rule, small

# A pump drains what flows in; at 25 % the level stands. The backup stops the pump, and the level rises.
RATE, FLOW, PER_CENT = 10.0, 0.05, 0.002
HOLD_S = 8.0


def drained(limit: str = "2.6") -> Module:
    return small(
        rule(f"l <= {limit}", "high", always=True),
        dynamics={"l": f"l + {FLOW} - {PER_CENT}*p"},
        backup=[{"p": f"ramp(0, {RATE:g})"}, {"h": False}, {"s": "hold"}],
        terminal=["p <= 100"],
        horizon=6,
    )


def level_at_its_highest(start: float, pump: float, falls_s: float, step_s: float = 0.01) -> float:
    """A plant in fine steps, the PLC ramping the pump down from `falls_s` on, as long as the check looks."""
    level = highest = start
    for k in range(round((HOLD_S + 6) / step_s)):
        if k * step_s >= falls_s:
            pump = max(0.0, pump - RATE * step_s)
        level += (FLOW - PER_CENT * pump) * step_s
        highest = max(highest, level)
    return highest


START = Plant(l=2.3, old={"P": "50"}, hold_s=HOLD_S, effect_delay_s=0.0)


def test_s1_s11_a_proposal_that_a_fallback_in_its_middle_turns_bad_is_refused() -> None:
    module = drained()
    result, _ = checks(module).check(START.request())

    assert level_at_its_highest(2.31, 50.0, falls_s=HOLD_S) < 2.4
    assert level_at_its_highest(2.31, 50.0, falls_s=HOLD_S + 4) < 2.4
    assert level_at_its_highest(2.31, 50.0, falls_s=HOLD_S / 8) > 2.6
    assert isinstance(result.verdict, Refused)
    assert result.verdict.counterexample.constraint == "high"
    text = result.verdict.counterexample.text
    assert "after 14 s, the backup acting by then or not yet, with p " in text


@pytest.mark.parametrize(("falls_s", "above"), [(2.0, True), (3.0, True), (8.0, False)])
def test_s1_s11_no_moment_of_the_proposals_time_is_left_out(*, falls_s: float, above: bool) -> None:
    limit = 2.42
    module = drained(f"{limit}")

    assert (level_at_its_highest(2.31, 50.0, falls_s) > limit) is above
    assert isinstance(checks(module).check(START.request())[0].verdict, Refused)


def test_s1_s11_where_every_moment_is_survived_a_proposal_is_permitted() -> None:
    # In moves of a step, each at once: 40, 30, 20, 10 and 0 % from the start on, until 14 s are over.
    highest = 2.3105 + sum(FLOW - PER_CENT * max(0, 40 - 10 * k) for k in range(14))

    assert highest > max(level_at_its_highest(2.3105, 50.0, at / 4) for at in range(48))
    assert isinstance(checks(drained(f"{highest:.4f}")).check(START.request())[0].verdict, Permitted)
    assert isinstance(checks(drained(f"{highest - 0.001:.4f}")).check(START.request())[0].verdict, Refused)


def question(request: CheckRequest, state: StateSet) -> Question:
    assert request.proposal is not None
    return Question(
        inputs={str(tag): (i.low, i.high) for tag, i in state.intervals.items()},
        previous={
            str(tag): [e.value for e in past if not e.ceased_s_ago] for tag, past in request.history.items()
        },
        proposal={str(tag): value for tag, value in request.proposal.engineering().items()},
        hold_s=Fraction(str(request.hold_s)) - Fraction(str(request.effect_delay_s)),
        effect_delay_s=Fraction(str(request.effect_delay_s)),
    )


def test_s7_the_judges_that_share_nothing_with_the_solver_find_it_too() -> None:
    module = drained()
    _, state = checks(module).check(START.request())
    assert state is not None
    asked = question(START.request(), state)

    assert "small/high" in recheck([module.text], asked).violated
    assert recheck_exactly([module.text], asked)["small/high"].says == VIOLATED


def witnesses() -> Iterator[Plant]:
    yield START
    yield replace(START, hold_s=1.2, effect_delay_s=0.3)
    yield replace(START, l=2.2, old={"P": "60"}, new={"P": "20"}, hold_s=2.5, effect_delay_s=1.3)


@pytest.mark.parametrize("limit", ["2.5", "2.7"])
def test_s7_a_certificate_of_it_stands_before_both_solvers_and_both_judges(
    limit: str, tmp_path: Path
) -> None:
    rules = RuleSet.of([drained(limit)], 1)
    judge = checks(*rules.modules)
    made = [decided(rules, p.request(), f"d-{n}", checks=judge) for n, p in enumerate(witnesses())]
    state = asyncio.run(kept(tmp_path, rules, made))

    said = {type(record.outcome).__name__ for record in made}
    assert said == ({"Refused"} if limit == "2.5" else {"Permitted", "Refused"})
    for record in made:
        data = export(state.folder, record.id).data
        found = verify(data, Wanted(solvers=("z3", "cvc5"), audit=state.audit))
        assert found.good, found
