"""Names that could stand for two things: disturbances, labels, ids of rules."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.solver.errors import ModuleRefusedError
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.solver_small import Plant, rule, small, verdict

LEVEL: dict[str, Any] = {"dynamics": {"l": "l + w", "disturbance": {"w": ["-1", "1"]}}}
TEMP: dict[str, Any] = {"dynamics": {"t": "t + 10*w", "disturbance": {"w": ["-1", "1"]}}}
FAR = rule("l <= 0.1*(t - 0)", always=True)


def test_s3_two_modules_disturbances_of_one_name_are_not_taken_for_one() -> None:
    """Taken for one, what moves the level and the temperature would cancel out in a rule about both."""
    with pytest.raises(ModuleRefusedError, match=r"`w` moves `T` here and `L` in `a`; give it another name"):
        RuleSet.of([small(rule("l <= 4.9"), id="a", **LEVEL), small(FAR, id="b", **TEMP)], 1)


def test_s3_under_names_of_their_own_both_are_at_their_worst() -> None:
    renamed = {"t": "t + 10*v", "disturbance": {"v": ["-1", "1"]}}
    level, far = small(rule("l <= 4.9"), id="a", **LEVEL), small(FAR, id="b", dynamics=renamed)
    assert verdict((level, far), Plant(l=3.0, t=40.0, hold_s=1.0)) == "Refused"
    assert verdict((level, far), Plant(l=1.5, t=40.0, hold_s=1.0)) == "Permitted"


def test_modules_that_share_dynamics_share_their_disturbance() -> None:
    both: dict[str, Any] = {
        "dynamics": {**LEVEL["dynamics"], "t": "t + 10*w"},
    }
    rules = RuleSet.of([small(rule("l <= 4.9"), id="a", **LEVEL), small(FAR, id="b", **both)], 1)
    assert set(rules.disturbances) == {"w"}


@pytest.mark.parametrize("alone", [True, False])
def test_a_disturbance_has_no_name_of_a_tag(alone: bool) -> None:  # noqa: FBT001
    named: dict[str, Any] = {"dynamics": {"l": "l + Q", "disturbance": {"Q": ["-1", "1"]}}}
    of_q = small(rule("q <= 30"), id="a")
    with pytest.raises(ModuleRefusedError, match="`Q` has the name of a tag"):
        RuleSet.of([small(rule("l <= 4.9"), id="b", **named), *([] if alone else [of_q])], 1)


def test_the_branches_of_a_choice_are_enums_of_the_same_labels() -> None:
    values = {
        "m": {"values": {"off": 0, "auto": 1, "hand": 2}},
        "s": {"values": {"idle": 0, "auto": 5, "off": 9}},
    }
    with pytest.raises(ModuleRefusedError, match="different labels"):
        small("(if b then m else s) == auto", variables=values)
    alike = {**values, "s": {"values": values["m"]["values"]}}
    assert verdict(small("(if b then m else s) == auto", variables=alike), Plant(m=1, b=True)) == "Permitted"


@pytest.mark.parametrize("name", ["high", "no.overflow", "a.b.c"])
def test_s26_every_critical_constraint_needs_its_case_however_it_is_named(name: str) -> None:
    with pytest.raises(ModuleRefusedError, match=f"no case violates critical constraint `{name}`"):
        small(rule("l <= 3", name, "critical"))


def test_a_constraint_has_no_name_of_a_rule_that_a_declaration_makes() -> None:
    with pytest.raises(ModuleRefusedError, match=r"a declaration makes a rule `p\.range`"):
        small(rule("l <= 3", "p.range"))
