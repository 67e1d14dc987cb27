"""S7: premises that the solver works out are held against the facts, and rules between two instants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from gateway.core.decision import CheckRequest, Examination, InForce, Permitted
from gateway.core.tag import TagId
from gateway.recheck.bounds import Bounds, misproved
from gateway.recheck.evidence import recorded_of
from gateway.recheck.recorded import premises, question
from gateway.recheck.source import Range
from gateway.solver.certificates.bounds import bounds
from gateway.solver.certificates.claims import Claim, Scene, scene_of
from gateway.solver.certificates.smtlib import script_symbols
from gateway.solver.checking import condense
from gateway.solver.language.affine import symbols
from gateway.solver.modules.module import Module
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from tests.unit.solver_small import NOW, PATIENT, Plant, rule, small

SINKING: Mapping[str, Any] = {
    "dynamics": {"l": "l - 0.5 + 0.001*p + 0.001*q + w", "disturbance": {"w": ["-0.01", "0.01"]}},
    "variables": {"h": {"min_on": "30 s", "min_off": "60 s"}},
}
EVERYTHING = (
    rule("10*l + q <= 60", "mixed", always=True),
    rule("n <= 30", "whole", always=True),
    rule("abs(rate(p)) <= 20 and p + prev(p) <= 190 and q <= 39", "ramp"),
    rule("l - prev(l) <= 3", "step"),
    rule("age(q) <= 2 and (good(q) or l < 9)", "told"),
)


def told(module: Module, request: CheckRequest) -> tuple[Scene, Bounds]:
    """The claim that what is asked holds, with its bounds and the facts they are held against."""
    rules = RuleSet.of([module], 1)
    result, _ = Checks(rules, PATIENT).check(request)
    assert isinstance(result.verdict, Permitted)
    action = {v.tag: v.value for v in result.verdict.setpoints}
    examination = Examination(request=request, result=result)
    scene = scene_of(Claim(says="holds", of="p", examination=examination, action=action), rules)
    facts = recorded_of(request, {str(t): v for t, v in action.items()}, as_backup=False, kept=None)
    named = {name for duty in scene.duties for name in symbols(duty.formula)}
    return scene, Bounds(
        premises=scene.premises(script_symbols(scene) | named),
        lines=bounds(scene),
        hold_s=scene.plan.hold,
        effect_delay_s=scene.plan.delay,
        asked=question(facts, premises([module.text], facts)),
    )


@pytest.fixture(scope="module")
def module() -> Module:
    return small(*EVERYTHING, **SINKING)


@pytest.fixture(scope="module")
def known(module: Module) -> Bounds:
    checks = Checks(RuleSet.of([module], 1), PATIENT)
    _, carried = checks.check(Plant(at=NOW - 1, l=2.4).request())
    plant = Plant(l=1.94, carried=carried, ages={"Q": 1.0}, old={"H": "1"}, held_s=10.0, new={"P": "42"})
    request = plant.request()
    past = (InForce(Fraction(40), 0.0), InForce(Fraction(30), 1.5))
    return told(module, replace(request, history={**request.history, TagId("P"): past}))[1]


def test_true_premises_leave_nothing_out(module: Module, known: Bounds) -> None:
    assert misproved([module.text], known) == []


def narrowed(ends: Range) -> Range:
    """Without its upper half; a single value is another one."""
    low, high = ends
    return (low, (low + high) / 2) if low < high else (low + 1, high + 1)


KINDS = ("x:L", "x:Q", "new:P", "old:P", "rate:P", "was:L", "age:Q", "good:Q", "kept_on:H", "d0:w", "m0:Q")
LATER = ("p1:Q", "p1:N", "e0:P")


@pytest.mark.parametrize("name", [*KINDS, *LATER])
def test_a_premise_that_leaves_out_what_may_be_is_found(module: Module, known: Bounds, name: str) -> None:
    assert name in known.premises, sorted(known.premises)
    changed = {**known.premises, name: narrowed(known.premises[name])}

    found = misproved([module.text], replace(known, premises=changed, lines=[]), samples=0)

    assert f"the premise of `{name}` leaves out values that it may have" in found


def test_what_holds_at_instants_only_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flow may rise before the level has sunk: a checker that looks at instants alone permits that."""
    thin = small(rule("10*l + q <= 40.7", always=True), **SINKING)
    assert not isinstance(
        Checks(RuleSet.of([thin], 1), PATIENT).check(Plant().request())[0].verdict, Permitted
    )
    monkeypatch.setattr(condense._Course, "_drift", lambda _course, _rule, instant: instant)

    scene, found = told(thin, Plant().request())

    assert {duty.drift for duty in scene.duties} == {-1}
    problems = misproved([thin.text], found, samples=64)
    assert any("it does not hold until the next instant" in problem for problem in problems), problems


# `vote` chooses among readings of now: while the old values act, such a rule must hold with them, too.
def test_a_rule_with_a_vote_is_owed_with_the_values_in_force() -> None:
    voted = small(rule("vote(max, l, l) + 0.01*p <= 9", always=True), **SINKING)
    _, found = told(voted, Plant().request())
    new_only = [line for line in found.lines if line["values"] != "old"]

    assert misproved([voted.text], found, samples=0) == []
    assert any(
        "small/r has no bound at instant 0, values old" in problem
        for problem in misproved([voted.text], replace(found, lines=new_only), samples=0)
    )
