"""Judged by the thousand in floats, a module says what the exact judge says one by one."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from gateway.core.decision import CheckRequest, Violated
from gateway.core.quality import StatusCode
from gateway.solver.backtest.sweep import HOLDS, UNKNOWN, VIOLATED, Sweep, Sweeper
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.backtest_log import asked, assert_as_one_by_one, evidence, random_request
from tests.unit.solver_demo import (
    BUFFER_TANK,
    LEVEL,
    LOWER_LEVEL,
    NOW,
    PUMP,
    Situation,
    module,
    proposal,
    rule_set,
)

TANK, LOWER = module(), module(LOWER_LEVEL)


def swept(rules: RuleSet, name: str, requests: list[CheckRequest]) -> tuple[Sweeper, Sweep]:
    sweeper = Sweeper(rules, name)
    return sweeper, sweeper.sweep(evidence(requests), lambda row: asked(requests[row]))


def compared(rules: RuleSet, name: str, requests: list[CheckRequest]) -> dict[int, int]:
    """Both judges on the same; how many of each verdict there were."""
    return assert_as_one_by_one(*swept(rules, name, requests), requests)


@pytest.mark.parametrize("seed", [1, 2])
def test_random_records_are_judged_as_the_exact_judge_judges_them_one_by_one(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311  # repeatable
    requests = [random_request(dice) for _ in range(400)]
    counted = compared(rule_set(TANK), "buffer-tank", requests)
    assert min(counted[HOLDS], counted[VIOLATED], counted[-1]) > 50


def test_a_module_beside_others_is_judged_as_it_would_be_in_force_with_them() -> None:
    dice = random.Random(3)  # noqa: S311  # repeatable
    requests = [random_request(dice) for _ in range(250)]
    counted = compared(rule_set(TANK, LOWER), "lower-level-limit", requests)
    assert min(counted[HOLDS], counted[VIOLATED]) > 30


# A ramp used to the full lies on its limit in every decision: floats alone would be in doubt each time.
def test_a_value_on_its_limit_needs_no_exact_judge_and_one_step_beyond_is_violated() -> None:
    requests = [
        Situation(pump=f"{before / 10}").request(proposal(f"{(before + change) / 10}"))
        for before in range(0, 900, 7)
        for change in (100, 101, 99)
    ]
    _, found = swept(rule_set(TANK), "buffer-tank", requests)
    assert not found.asked.any()
    assert found.verdict["pump-ramp"].reshape(-1, 3).tolist() == [[HOLDS, VIOLATED, HOLDS]] * (
        len(requests) // 3
    )


# The check rounds states outward to 1e-6: which side of a limit a state is on depends on it.
def test_states_within_the_rounding_of_a_limit_are_judged_as_the_exact_judge_rounds_them() -> None:
    sweeper = Sweeper(rule_set(TANK), "buffer-tank")

    def at(level: float) -> CheckRequest:
        return Situation(level=level, inflow=20.0, pump="40").request(proposal("40"))

    def overflows(level: float) -> bool:
        findings = sweeper.exact(asked(at(level)))
        return any(isinstance(f, Violated) and f.constraint == "no-overflow" for f in findings)

    low, high = 3.0, 3.6
    while high - low > 1e-8:
        middle = (low + high) / 2
        low, high = (low, middle) if overflows(middle) else (middle, high)
    requests = [at(round(low + step * 1e-7, 9)) for step in range(-40, 41)]
    found = sweeper.sweep(evidence(requests), lambda row: asked(requests[row]))
    counted = assert_as_one_by_one(sweeper, found, requests)
    assert min(counted[HOLDS], counted[VIOLATED]) > 30


def test_s3_s13_what_cannot_be_used_is_never_permitted_and_says_why() -> None:
    fine = Situation().request(proposal())
    level = fine.inputs[LEVEL]
    unusable = [
        replace(fine, inputs={**fine.inputs, LEVEL: replace(level, status=StatusCode.Bad)}),
        replace(fine, inputs={**fine.inputs, LEVEL: replace(level, confirmed_at=NOW - 2.5)}),
        replace(fine, inputs={**fine.inputs, LEVEL: replace(level, value=4.995)}),
        replace(fine, history={**fine.history, PUMP: ()}),
    ]
    _, found = swept(rule_set(TANK), "buffer-tank", [fine, *unusable])
    assert found.reason.tolist()[0] == -1
    said = [found.reasons[number] for number in found.reason[1:]]
    for reason, words in zip(said, ("not Good", "too old", "inside its range", "not known"), strict=True):
        assert words in reason
    assert (np.stack([found.verdict[name][1:] for name in found.verdict]) == UNKNOWN).all()


def test_what_only_the_exact_judge_follows_is_asked_of_it_for_every_record() -> None:
    slow = module(BUFFER_TANK, ('"require": "pump <= 80"', '"require": "not (level >= 3 for 5 s)"'))
    requests = [Situation(level=level).request(proposal()) for level in (2.0, 3.2)]
    sweeper, found = swept(rule_set(slow), "buffer-tank", requests)
    assert "for" in sweeper.one_by_one
    assert found.asked.all()
    compared(rule_set(slow), "buffer-tank", requests)
