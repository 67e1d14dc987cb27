"""The state that formulas are folded over: what has one of a few values, and the part a witness lies in."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import ceil, floor

from gateway.solver.checking.boxes import choices
from gateway.solver.checking.condense import Plan
from gateway.solver.checking.predict import Facts
from gateway.solver.rules.interval import SCALE, Box
from gateway.solver.rules.ruleset import RuleSet

Few = Mapping[str, tuple[int, ...]]


def few_values(rules: RuleSet, plan: Plan, facts: Facts, common: Box) -> dict[str, tuple[int, ...]]:
    """Symbols that have one of a few values, in units of 1 / `SCALE`."""
    found: dict[str, tuple[int, ...]] = {}
    for name, values in choices(rules, plan, facts, common).items():
        if name in common:
            whole = tuple(int(value * SCALE) for value in values)
            if all(value * SCALE == one for value, one in zip(values, whole, strict=True)):
                found[name] = whole
    return found


def pinned(
    witness: Mapping[str, Fraction], common: Box, several: Few
) -> tuple[Box, dict[str, tuple[int, ...]]]:
    """The part of a state that a counterexample's assignment lies in, to the unit of 1 / `SCALE`."""
    named = {f"x:{name[6:]}" if name.startswith("start:") else name: v for name, v in witness.items()}
    there, few = dict(common), dict(several)
    for name, value in named.items():
        if name in there:
            low, high = there[name]
            inside = max(low, floor(value * SCALE)), min(high, ceil(value * SCALE))
            if inside[0] <= inside[1]:
                there[name] = inside
        if name in few and value * SCALE in few[name]:
            few[name] = (int(value * SCALE),)
    return there, few
