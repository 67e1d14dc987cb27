"""What counts as a tightening is in force at once; everything else waits for a person (S24)."""

from __future__ import annotations

import pytest

from gateway.solver.weakening import weakens
from tests.unit.solver_demo import BUFFER_TANK, LOWER_LEVEL, module, rule_set

TANK = module()
LOWER = module(LOWER_LEVEL)
IN_FORCE = rule_set(TANK, LOWER)
REVISION = ('"revision": 1', '"revision": 2')
CONSTRAINT = '{"id": "lower-level", "kind": "critical", "require": "level <= 3.2", "always": true'
MORE = '{"id": "inflow-limit", "kind": "standard", "require": "pump <= 100"},\n    ' + CONSTRAINT


def changed(*changes: tuple[str, str]) -> str:
    return weakens(IN_FORCE, LOWER, module(LOWER_LEVEL, REVISION, *changes))


@pytest.mark.parametrize(
    "change",
    [
        (CONSTRAINT, MORE),
        ('"error": "0.01"', '"error": "0.02"'),
        ('"max_age": "2 s"}', '"max_age": "1 s"}'),
        ('"max_rate": "2 m3/h/s"', '"max_rate": "3 m3/h/s"'),
        ('"physical": ["0", "36"]', '"physical": ["-1", "38"]'),
        ('"range": ["-0.1", "5"]', '"range": ["0", "4.5"]'),
        ("tank would be fuller than agreed", "too full"),
        ('"priority": 8', '"priority": 3'),
    ],
)
def test_s24_what_demands_more_or_assumes_less_is_a_tightening(change: tuple[str, str]) -> None:
    assert changed(change) == ""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ((CONSTRAINT, CONSTRAINT.replace("3.2", "3.205")), "constraint `lower-level` changed or is gone"),
        ((CONSTRAINT, CONSTRAINT.replace("critical", "informational")), "would be informational"),
        ((CONSTRAINT, CONSTRAINT.replace("critical", "standard")), "would be standard, not critical"),
        ((', "always": true', ', "always": false'), "no longer hold `always`"),
        (('"id": "lower-level"', '"id": "renamed"'), "constraint `lower-level` changed or is gone"),
        (('"error": "0.01"', '"error": "0.009"'), "the error of `level` became smaller"),
        (('"max_age": "2 s"}', '"max_age": "3 s"}'), "`level` may be older"),
        (('"max_rate": "2 m3/h/s"', '"max_rate": "1 m3/h/s"'), "said to move more slowly"),
        (
            ('"physical": ["0", "36"]', '"physical": ["0", "30"]'),
            "physical limits of `inflow` became narrower",
        ),
        (('"range": ["-0.1", "5"]', '"range": ["-0.1", "6"]'), "the range of `level` became wider"),
        (('"range": ["0", "100"]', '"range": ["0", "110"]'), "the range of `pump` became wider"),
        (("ramp(100, 10)", "ramp(100, 20)"), "its backup changed"),
        (("level <= 3.2 - max(0, 0.05184", "level <= 3.2 - max(0, 0.05"), "its safe set changed"),
        (('"step": "1 s"', '"step": "2 s"'), "its step changed"),
    ],
)
def test_s24_what_may_permit_something_new_is_a_weakening_and_says_why(
    change: tuple[str, str], why: str
) -> None:
    case = '{"violated": ["lower-level"]}'
    cases = {"renamed": '{"violated": ["renamed"]}', "informational": '"permitted"'}  # as the change has them
    also = [(case, cases[word]) for word in cases if word in change[1]]
    assert why in changed(change, *also)


def test_s24_a_removal_is_a_weakening_and_an_addition_is_not() -> None:
    assert weakens(IN_FORCE, LOWER, None) == "it would be taken out"
    assert weakens(rule_set(TANK), None, LOWER) == ""
    assert weakens(None, None, LOWER) == ""


# S3: modules combine by conjunction of constraints, never of assumptions.
def test_s24_an_added_module_that_brings_an_assumption_the_others_lack_is_a_weakening() -> None:
    bare = module(LOWER_LEVEL, (', "max_rate": "2 m3/h/s", "physical": ["0", "36"]', ""))
    other = module(LOWER_LEVEL, ('"id": "lower-level-limit"', '"id": "other"'))
    assert "how fast `inflow` may move" in weakens(rule_set(bare), None, other)
    assert "has dynamics for `level`" in weakens(rule_set(LOWER), None, module(BUFFER_TANK))
