"""Which rules may be set aside by an override, and a rule set with some of them set aside (S25)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.config.problems import nearest
from gateway.core.errors import ConstraintError
from gateway.core.override import Override
from gateway.solver.modules.module import Constraint, Module

if TYPE_CHECKING:
    from gateway.solver.rules.rule import Rule

_DECLARED = {  # what a variable declares, by the end of its rule's id
    "range": "a declared range",
    "min_on": "a minimum time",
    "min_off": "a minimum time",
}
_OF_A_SEQUENCE = ("order", "min", "max")
_SETS = {"safe_set": "safe set", "terminal": "terminal set"}


def why_not(module: Module, constraint: str) -> str:
    """Why a constraint may not be overridden, in a sentence; empty when it may.

    Only a `standard` constraint that refuses may: never a critical one, nor what a variable declares, nor a
    part of a safe or terminal set.
    """
    name = f"`{module.id}/{constraint}`"
    stem, _, end = constraint.partition(".")
    if end in _DECLARED and stem in module.variables:
        return f"{name} is {_DECLARED[end]} of `{stem}`, not a constraint of its own: it is never overridden"
    part, bracket, _ = constraint.partition("[")
    if part in _SETS and (bracket or constraint not in {c.id for c in module.rules}):
        return f"{name} is a part of the {_SETS[part]}, which the proof rests on: it is never overridden"
    rule = next((c for c in module.rules if c.id == constraint), None)
    if rule is None:
        return _unknown(module, constraint)
    return _refused(name, rule)


def set_aside(
    rules: Sequence[Rule],
    modules: Iterable[Module],
    overrides: Iterable[Override],
    problems: list[ConstraintError],
) -> tuple[Rule, ...]:
    """The rules with the overridden ones only reported; an override of anything else is a problem.

    INVARIANT: no rule that is critical comes out otherwise than it went in.
    """
    known = {module.id: module for module in modules}
    names: set[str] = set()
    for override in overrides:
        module = known.get(override.module)
        why = f"module `{override.module}` is not in force" if module is None else ""
        if module is not None:
            why = why_not(module, override.constraint)
        if override.requested_by == override.confirmed_by:
            why = why or f"`{override.name}` is overridden by one person alone, `{override.confirmed_by}`"
        if override.name in names:
            why = why or f"`{override.name}` is overridden twice"
        if why:
            problems.append(ConstraintError(override.module if module is None else module.source, 1, 1, why))
        names.add(override.name)
    return tuple(_reported(r) if _name(r) in names and r.constraint.kind == "standard" else r for r in rules)


def _name(rule: Rule) -> str:
    return f"{rule.module}/{rule.constraint.id}"


def _reported(rule: Rule) -> Rule:
    return replace(rule, constraint=replace(rule.constraint, kind="informational"), overridden=True)


def _refused(name: str, rule: Constraint) -> str:
    if rule.kind == "critical":
        return f"{name} is critical, and a critical constraint is never overridden"
    if rule.kind == "informational":
        return f"{name} is informational: it refuses nothing, so there is nothing to override"
    if rule.monitor:
        return f"{name} is only monitored: it refuses nothing, so there is nothing to override"
    return ""


def _unknown(module: Module, constraint: str) -> str:
    of_it = [f"{constraint}.{end}" for end in _OF_A_SEQUENCE]
    found = [c.id for c in module.rules if c.id in of_it]
    if found:
        return f"`{constraint}` is a sequence; name one of its rules: {', '.join(found)}"
    able = [c.id for c in module.rules if not why_not(module, c.id)]
    listed = ", ".join(f"`{name}`" for name in able) or "none"
    return (
        f"module `{module.id}` has no constraint `{constraint}`{nearest(constraint, able)}; "
        f"those that may be overridden: {listed}"
    )
