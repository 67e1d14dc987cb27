"""S5: after how many steps an action can first make a difference to each rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from gateway.core.tag import TagId
from gateway.solver.analysis.findings import Finding
from gateway.solver.analysis.world import split_key
from gateway.solver.language.affine import symbols
from gateway.solver.rules.ruleset import Rule, RuleSet

Reach = Mapping[str, tuple[int, tuple[str, ...]]]  # by measured tag: steps, and the actions' names


def reach(rules: RuleSet) -> Reach:
    """By tag of a variable with dynamics, the smallest number of steps after which an action moves it.

    Exact: factors that cancel on two ways from an action to a variable count as no influence.
    """
    now: dict[str, dict[str, Fraction]] = {tag: {} for tag in rules.forms}
    names = {str(v.tag): v.name for v in rules.actions}
    found: dict[str, tuple[int, tuple[str, ...]]] = {}
    for step in range(1, len(rules.forms) + 1):  # what has no influence by then never has (Cayley-Hamilton)
        later: dict[str, dict[str, Fraction]] = {}
        for tag, form in rules.forms.items():
            total: dict[str, Fraction] = {}
            for name, factor in form.terms.items():
                source = {name: Fraction(1)} if step == 1 and name in names else now.get(name, {})
                for action, effect in source.items():
                    total[action] = total.get(action, Fraction(0)) + factor * effect
            later[tag] = {action: effect for action, effect in total.items() if effect}
            if later[tag] and tag not in found:
                found[tag] = step, tuple(names[action] for action in sorted(later[tag]))
        now = later
    return found


def examine(rules: RuleSet, only: str = "") -> Iterator[Finding]:
    """What no action can influence, or only later; then one sentence for all other rules.

    `only`: rules of the other modules are not told.
    """
    moved = reach(rules)
    soon: dict[int, int] = {}
    for rule in rules.rules:
        if "." in rule.constraint.id or (only and rule.module != only):
            continue
        steps = _steps(rules, rule, moved)
        if steps is None:
            yield _out_of_reach(rules, rule)
            continue
        soon[steps[0]] = soon.get(steps[0], 0) + 1
        if _disarmed(rules, rule, steps[0]):
            yield _only_watched(rule, steps[1])
        elif steps[0]:
            yield _later(rules, rule, *steps)
    for steps_needed, count in sorted(soon.items()):
        if not steps_needed:
            yield Finding(
                question="influence",
                level="fine",
                said=f"{count} {'rule speaks' if count == 1 else 'rules speak'} of an action itself",
            )


def _steps(rules: RuleSet, rule: Rule, moved: Reach) -> tuple[int, tuple[str, ...]] | None:
    """The least number of steps, and the actions; None where there are none."""
    found: list[tuple[int, tuple[str, ...]]] = []
    for key in symbols(rule.formula):
        form, tag = split_key(key)
        variable = rules.variables.get(TagId(tag))
        if variable is not None and variable.action:
            found.append((0, (variable.name,)))
        elif tag in moved and form in {"now", "prev", "rate"}:
            found.append(moved[tag])
    return min(found, key=lambda f: f[0], default=None)


def _disarmed(rules: RuleSet, rule: Rule, steps: int) -> bool:
    """Whether a critical rule is called one that no action can influence, though an action can in time."""
    critical = rule.constraint.kind == "critical" and rule.constraint.monitor
    return critical and steps <= max(1, rules.horizon)


def _only_watched(rule: Rule, actions: tuple[str, ...]) -> Finding:
    name, by = rule.constraint.id, " or ".join(f"`{action}`" for action in actions)
    return Finding(
        question="influence",
        level="warning",
        subject=name,
        where=rule.where,
        said=f"{by} can influence critical `{name}`, but it is marked `monitor` and refuses nothing",
        todo="take `monitor` out, or call the rule `informational`",
    )


def _out_of_reach(rules: RuleSet, rule: Rule) -> Finding:
    name = rule.constraint.id
    to_be_armed = bool(rules.forms) and rule.binding
    return Finding(
        question="influence",
        level="refused" if to_be_armed else "warning" if rule.binding else "fine",
        subject=name,
        where=rule.where,
        said=f"no action can influence `{name}`"
        + (
            "; a point cannot be armed under it"
            if to_be_armed
            else ""
            if rule.binding
            else ", which only watches"
        ),
        todo="mark it `monitor`: it is reported and alarms, and refuses nothing" if rule.binding else "",
    )


def _later(rules: RuleSet, rule: Rule, steps: int, actions: tuple[str, ...]) -> Finding:
    name = rule.constraint.id
    seconds = float(steps * rules.modules[0].step)
    by = " or ".join(f"`{action}`" for action in actions)
    said = f"{by} can influence `{name}` after {steps} {'step' if steps == 1 else 'steps'} ({seconds:g} s)"
    covered = max(1, rules.horizon)
    if steps <= covered or not rule.binding:
        return Finding(question="influence", level="note", subject=name, where=rule.where, said=said)
    if rules.invariant:
        said += f", beyond the horizon of {covered}: until then only the proof of the safe set speaks of it"
        return Finding(question="influence", level="note", subject=name, where=rule.where, said=said)
    return Finding(
        question="influence",
        level="warning",
        subject=name,
        where=rule.where,
        said=f"{said}, beyond the horizon of {covered}: a check comes too late",
        todo="declare a `safe_set`, or a `terminal` set and a longer `horizon`",
    )
