"""S12, `repair = "nearest"`: which of two places as near is taken, by priority and name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from gateway.core.decision import InForce, Proposal, Refused, RegisterValue, Repaired
from gateway.core.restraint import Restraint
from gateway.core.tag import TagDefinition, TagId, TagKind
from gateway.solver.checking.predict import observe
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Module
from gateway.solver.repairing.domains import domains
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from tests.unit.solver_demo import PATIENT
from tests.unit.solver_nearest import P, asked
from tests.unit.solver_next import Here

STILL = Here(old={"P": 4, "R": 4, "H": 0, "S": 0})
IDLE = dict.fromkeys(map(TagId, "PRHS"), 0)


# Two heaters of one kind under one cap: as far away either way, and the module of higher priority decides.
def _heaters(*modules: tuple[str, int, Sequence[str]]) -> tuple[RuleSet, Mapping[TagId, TagDefinition]]:
    tags = {
        TagId(n): TagDefinition(
            id=TagId(n), kind=TagKind.REAL, unit="%", scale=Fraction(1), raw_range=(0, 100), writable=True
        )
        for n in ("X", "Y", "Z")
    }
    found: list[Module] = []
    for name, priority, actions in modules:
        variables = {
            a.lower(): {"tag": a, "type": "real", "unit": "%", "range": ["0", "100"], "role": "action"}
            for a in actions
        }
        document = {
            "id": name,
            "revision": 1,
            "language": 1,
            "priority": priority,
            "step": "1 s",
            "variables": variables,
            "constraints": [{"id": "cap", "kind": "standard", "require": f"{' + '.join(variables)} <= 100"}],
        }
        found.append(compile_module(json.dumps(document).encode(), f"{name}.json", tags))
    return RuleSet.of(found, 1), tags


def _capped(rule_set: RuleSet, wanted: Mapping[str, int]) -> dict[str, int]:
    values = tuple(RegisterValue(TagId(t), raw, Fraction(raw)) for t, raw in wanted.items())
    request = replace(
        asked(STILL, IDLE),
        inputs={},
        history={TagId(t): STILL.request().history[P] for t in wanted},
        held_s=dict.fromkeys(map(TagId, wanted), 1_000.0),
        proposal=Proposal(values=values, by="model"),
    )
    found = Checks(rule_set, PATIENT).check(request)[0].verdict
    assert isinstance(found, Repaired), found
    return {str(v.tag): v.raw for v in found.setpoints}


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        ([("all", 8, "XYZ")], {"X": 60, "Y": 40, "Z": 0}),  # by name: the last gives way first
        ([("all", 1, "XYZ"), ("z", 2, "Z")], {"X": 40, "Y": 0, "Z": 60}),  # then the last by name but Z
        ([("all", 1, "XYZ"), ("y", 9, "Y"), ("z", 2, "Z")], {"X": 0, "Y": 60, "Z": 40}),
    ],
)
def test_s12_of_two_as_near_the_output_of_higher_priority_is_changed_less_then_by_name(
    modules: list[tuple[str, int, str]], expected: Mapping[str, int]
) -> None:
    rule_set, _ = _heaters(*modules)
    wanted = {"X": 60, "Y": 60, "Z": 60}

    assert _capped(rule_set, wanted) == expected
    assert _capped(rule_set, dict(reversed(wanted.items()))) == expected  # however it is proposed


def _pumps(repair: Mapping[str, bool]) -> RuleSet:
    """Numbers of pumps that run in two halls."""
    tags = {
        TagId(n): TagDefinition(id=TagId(n), kind=TagKind.INTEGER, unit="", raw_range=(0, 99), writable=True)
        for n in ("A", "B")
    }
    variables = {
        "a": {"tag": "A", "type": "int", "range": ["0", "10"], "role": "action"},
        "b": {"tag": "B", "type": "int", "range": ["0", "5"], "role": "action"},
    }
    document = {
        "id": "pumps",
        "revision": 1,
        "language": 1,
        "step": "1 s",
        "variables": variables,
        "constraints": [{"id": "cap", "kind": "standard", "require": "a + 2*b <= 10"}],
        "repair": repair,
    }
    return RuleSet.of([compile_module(json.dumps(document).encode(), "pumps.json", tags)], 1)


# A step of `b` is a fifth of its range and frees two, one of `a` a tenth and frees one: as far; `a` is first.
@pytest.mark.parametrize(
    ("repair", "expected"),
    [
        ({"a": True, "b": True}, {"A": 8, "B": 1}),
        ({"a": True}, {"A": 2, "B": 4}),
        ({"b": True}, {"A": 8, "B": 1}),
    ],
)
def test_s12_whole_numbers_move_where_they_are_named_by_their_share_of_their_range(
    repair: Mapping[str, bool], expected: Mapping[str, int]
) -> None:
    assert _capped(_pumps(repair), {"A": 8, "B": 4}) == expected


def test_s12_a_whole_number_that_is_not_named_stays() -> None:
    values = tuple(RegisterValue(TagId(t), raw, Fraction(raw)) for t, raw in (("A", 8), ("B", 4)))
    request = replace(
        asked(STILL, IDLE),
        inputs={},
        history={TagId(t): STILL.request().history[P] for t in "AB"},
        held_s=dict.fromkeys(map(TagId, "AB"), 1_000.0),
        proposal=Proposal(values=values, by="model"),
    )
    assert isinstance(Checks(_pumps({}), PATIENT).check(request)[0].verdict, Refused)


def test_s12_a_whole_number_has_a_least_change_as_well() -> None:
    pumps = _pumps({"a": True})
    a, b = TagId("A"), TagId("B")
    now = (InForce(Fraction(5), 0.0),)
    request = replace(STILL.request(), inputs={}, history={a: now, b: now}, held_s={a: 9.0, b: 9.0})
    wanted = {tag: RegisterValue(tag, 8, Fraction(8)) for tag in (a, b)}

    free, coarse = (
        domains(pumps, observe(pumps, request), wanted, Restraint(least_change=least))
        for least in ({}, {a: Fraction(2), b: Fraction(2)})
    )

    assert free == (((0, 10),), ((8, 8),))
    assert coarse == (((0, 3), (5, 5), (7, 10)), ((8, 8),))
