"""What counts as a tightening is in force at once; everything else waits for a person (S24)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.decision import Permitted, Refused
from gateway.solver.in_force.weakening import _weaker, implies, weakens
from gateway.solver.language.affine import Affine, Atom, Every, Formula, Some
from gateway.solver.modules.compile import compile_module
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from tests.unit.solver_demo import (
    BUFFER_TANK,
    LOWER_LEVEL,
    PATIENT,
    TAGS,
    Situation,
    module,
    proposal,
    rule_set,
)
from tests.unit.solver_heaters import TERMINAL, heaters
from tests.unit.solver_small import TAGS as SMALL_TAGS
from tests.unit.solver_small import Plant, document, judged, rule, small

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
        (CONSTRAINT, CONSTRAINT.replace("3.2", "3.199")),  # the permitted case moves with it, below
        (CONSTRAINT, CONSTRAINT.replace("<=", "<")),
        ("level <= 3.2 - max(0, 0.05184", "level <= 3.19 - max(0, 0.05184"),
        ('"priority": 8', '"priority": 3'),
    ],
)
def test_s24_what_demands_more_or_assumes_less_is_a_tightening(change: tuple[str, str]) -> None:
    case = ('"level": "3.2", "inflow"', '"level": "3.1", "inflow"')
    assert changed(change, case) == ""


_atoms = st.builds(
    lambda limit, factor, strict: Atom(Affine(Fraction(limit), {"x": Fraction(factor)}), strict=strict),
    st.integers(-3, 3),
    st.sampled_from([-1, 1]),
    st.booleans(),
)
_formulas = st.recursive(
    _atoms,
    lambda inner: st.lists(inner, max_size=3).flatmap(
        lambda p: st.sampled_from([Every(tuple(p)), Some(tuple(p))])
    ),
)


@given(_formulas, _formulas, st.lists(st.integers(-2, 2), min_size=4, max_size=4))
def test_s24_what_is_taken_for_tighter_implies_what_was_there(
    one: Formula, other: Formula, moves: list[int]
) -> None:
    steps = iter(moves * 50)
    near = shifted(one, steps)
    for new, old in ((one, other), (near, one), (one, near)):
        if implies(new, old):
            assert all(truth(old, x) for x in range(-8, 9) if truth(new, x))
    assert implies(one, one)


def shifted(formula: Formula, steps: Iterator[int]) -> Formula:
    """The same with its limits moved."""
    match formula:
        case Atom(form, strict):
            assert isinstance(form, Affine)
            return Atom(Affine(form.constant + next(steps), form.terms), strict=strict)
        case _:
            return type(formula)(tuple(shifted(part, steps) for part in formula.parts))


def truth(formula: Formula, x: int) -> bool:
    match formula:
        case Atom(form, strict):
            assert isinstance(form, Affine)
            value = form.constant + form.terms["x"] * x
            return value < 0 if strict else value <= 0
        case Every(parts):
            return all(truth(part, x) for part in parts)
        case _:
            return any(truth(part, x) for part in formula.parts)


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
        ((', "always": true', ', "monitor": true, "always": true'), "would only be reported"),
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


# What no module limits is not widened by its age either: a limit near to the reading was refused until then.
def test_s24_without_max_rate_an_old_reading_counts_as_a_new_one_which_is_a_weakening() -> None:
    limit = rule("q <= 35")
    old = small(limit)
    shape = document(limit, revision=2)
    shape["variables"]["q"].pop("max_rate")
    new, other = (
        compile_module(json.dumps({**shape, "id": name}).encode(), "m.json", SMALL_TAGS)
        for name in ("small", "other")
    )
    plant = Plant(q=32.6, ages={"Q": 1.7})
    assert isinstance(judged(old, plant).verdict, Refused)
    assert isinstance(judged(new, plant).verdict, Permitted)
    assert isinstance(judged((old, other), plant).verdict, Permitted)
    in_force = RuleSet.of((old,), 1)
    assert "no longer says how fast `q` may move" in weakens(in_force, old, new)
    assert "it does not say how fast `q` may move" in weakens(in_force, None, other)


# Where nothing says how fast the inflow may change, it may come to any value of its range within the step.
def test_s24_a_narrower_range_of_what_may_move_anywhere_in_it_is_a_weakening() -> None:
    text = BUFFER_TANK.read_text(encoding="utf-8")
    data = json.loads(text, parse_float=str)
    inflow = data["variables"]["inflow"]
    del inflow["max_rate"], inflow["physical"]
    old = compile_module(json.dumps(data).encode(), "tank.json", TAGS)
    inflow["range"] = ["-1", "20"]
    new = compile_module(json.dumps({**data, "revision": 2}).encode(), "tank.json", TAGS)
    near = Situation(level=3.565, inflow=12.0, pump="40", may_repair=False).request(proposal("40"))
    verdicts = [Checks(RuleSet.of([m], 1), PATIENT).check(near)[0].verdict for m in (old, new)]
    assert [type(verdict) for verdict in verdicts] == [Refused, Permitted]
    said = weakens(rule_set(old), old, new)
    assert said.startswith("the range of `inflow` became narrower: without `max_rate`")
    assert weakens(rule_set(new), new, old).startswith("the range of `inflow` became wider")
    data["variables"]["inflow"] |= {"physical": ["0", "20"]}
    held = compile_module(json.dumps(data).encode(), "tank.json", TAGS)
    inflow["range"] = ["-1", "40"]
    wide = compile_module(json.dumps(data).encode(), "tank.json", TAGS)
    assert weakens(rule_set(wide), wide, held) == "", "`physical` says already where it can be"


# Rules of others that had to hold wherever the level goes would hold where it is predicted to go.
def test_s24_a_revision_that_brings_dynamics_for_what_others_judge_is_a_weakening() -> None:
    tank = json.loads(BUFFER_TANK.read_text(encoding="utf-8"))
    tank.pop("repair", None)
    bare = {k: v for k, v in tank.items() if k in {"revision", "language", "step"}}
    pump = {"id": "pump-limit", "kind": "standard", "require": "pump <= 100"}
    old, new = (
        compile_module(json.dumps({**document, "id": "pump", "revision": number}).encode(), "m.json", TAGS)
        for number, document in (
            (1, {**bare, "variables": {"pump": tank["variables"]["pump"]}, "constraints": [pump]}),
            (2, {**tank, "constraints": [pump, *tank["constraints"]]}),
        )
    )
    assert "it has dynamics for `level`" in weakens(rule_set(LOWER, old), old, new)
    assert weakens(rule_set(old), old, new) == ""


SEQUENCE = {
    "id": "cycle",
    "variable": "s",
    "states": [{"state": "idle"}, {"state": "run", "min": "5 s"}, {"state": "stop"}],
}
LASTING = "not (l > 3 for 10 s)"


@pytest.mark.parametrize(
    ("rules", "more", "why"),
    [
        ([LASTING], {"sequences": [SEQUENCE]}, ""),
        ([LASTING, rule("n <= 9", "more")], {"sequences": [SEQUENCE]}, ""),
        ([LASTING], {}, "constraint `cycle.order` changed or is gone"),
        (
            [LASTING],
            {"sequences": [{**SEQUENCE, "states": [*SEQUENCE["states"][:1], {"state": "run"}]}]},
            "constraint `cycle.order` changed or is gone",
        ),
        ([rule(LASTING, monitor=True)], {"sequences": [SEQUENCE]}, "constraint `r` would only be reported"),
        (["not (l > 3 for 11 s)"], {"sequences": [SEQUENCE]}, "constraint `r` changed or is gone"),
        (
            [LASTING, rule("good(q) or p <= 3", "asks")],
            {"sequences": [SEQUENCE]},
            "it would tolerate that `Q` is bad, missing or old",
        ),
        (
            [LASTING],
            {
                "sequences": [SEQUENCE],
                "variables": {"s": {"values": {"idle": 0, "run": 5, "stop": 9, "new": 7}}},
            },
            "`s` is declared otherwise",
        ),
        (
            [LASTING],
            {
                "sequences": [SEQUENCE],
                "variables": {
                    "l": {"tag": "Q", "unit": "m3/h"},
                    "q": {"tag": "L", "unit": "m", "max_rate": "2 m/s"},
                },
            },
            "the condition `l > 3` that `for` asks about changed or is gone",
        ),
    ],
)
def test_s24_every_part_of_the_language_counts(
    rules: list[dict[str, object] | str], more: dict[str, Any], why: str
) -> None:
    old = small(LASTING, sequences=[SEQUENCE])
    new = small(*rules, **more)

    found = weakens(RuleSet.of((old,), 1), old, new)
    assert found == why or (why and why in "; ".join(_weaker(RuleSet.of((old,), 0), RuleSet.of((new,), 0))))


def test_s24_a_shorter_horizon_is_a_weakening() -> None:
    old, new = small(rule("q <= 30", always=True), horizon=1), small(rule("q <= 30", always=True))

    assert weakens(RuleSet.of((old,), 1), old, new) == "its horizon became shorter"
    assert weakens(RuleSet.of((new,), 1), new, old) == ""


# The later the terminal set must be reached, the more states may be left for it.
def test_s24_a_longer_horizon_before_a_terminal_set_is_a_weakening() -> None:
    old, new = (heaters(terminal=list(TERMINAL), horizon=steps) for steps in (8, 9))
    other = heaters(id="other", terminal=list(TERMINAL), horizon=9)

    assert "horizon became longer" in weakens(RuleSet.of((old,), 1), old, new)
    assert "horizon became shorter" in weakens(RuleSet.of((new,), 1), new, old)
    assert "horizon is longer" in weakens(RuleSet.of((old,), 1), None, other)
