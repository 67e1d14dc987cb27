"""A witness played through step by step, by the exact judge alone: whether it really violates a rule."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from gateway.solver.condense import Duty, Plan
from gateway.solver.evaluate import moved, truth
from gateway.solver.ruleset import RuleSet
from gateway.solver.syntax import references


def trajectory(rules: RuleSet, plan: Plan, witness: Mapping[str, Fraction]) -> list[dict[str, Fraction]]:
    """Measured values at every instant of a plan."""
    state = {str(v.tag): witness.get(f"x:{v.tag}", Fraction(0)) for v in rules.measured}
    states = [state]
    for k, segment in enumerate(plan.segments):
        point = dict(state)
        for v in rules.measured:
            if v.tag not in rules.dynamics:
                point[v.tag] = witness.get(f"m{k}:{v.tag}", point[v.tag])
        for name in rules.disturbances:
            point[name] = witness.get(f"d{k}:{name}", Fraction(0))
        for v in rules.actions:
            acting = f"e{k}:{v.tag}" if segment.mixed else f"new:{v.tag}"
            point[v.tag] = witness.get(acting, Fraction(0))
        after = moved(rules.dynamics, point, (segment.end - segment.start) / plan.step)
        for v in rules.measured:
            if v.tag not in rules.dynamics:
                after[v.tag] = witness.get(f"p{k + 1}:{v.tag}", state[v.tag])
        state = after
        states.append(state)
    return states


def violates(
    rules: RuleSet, plan: Plan, duty: Duty, witness: Mapping[str, Fraction]
) -> dict[str, Fraction] | None:
    """The point at which the witness violates a duty, by tag, or None where it does not."""
    tree = plan.rules[duty.rule].tree
    point = dict(trajectory(rules, plan, witness)[duty.instant])
    for reference in references(tree):
        tag = reference.name
        if reference.form == "prev":
            point[reference.key] = witness[f"old:{tag}"]
        elif reference.form != "now":
            point[reference.key] = witness[f"{reference.form}:{tag}"]
        elif tag not in point:
            point[tag] = witness[f"old:{tag}" if duty.old else f"new:{tag}"]
    if truth(tree, point):
        return None
    acting = {str(v.tag): witness.get(f"{'old' if duty.old else 'new'}:{v.tag}") for v in rules.actions}
    return point | {tag: value for tag, value in acting.items() if value is not None}
