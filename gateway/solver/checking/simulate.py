"""A witness played through step by step, by the exact judge alone: whether it really violates a rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from gateway.solver.checking.condense import Duty, Plan, acts_in
from gateway.solver.language.evaluate import moved, truth
from gateway.solver.language.syntax import Expr, For, Ref, keyed, references
from gateway.solver.rules.ruleset import RuleSet

_ZERO = Fraction(0)


def beginning(rules: RuleSet, witness: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """Measured values at acquisition."""
    return {str(v.tag): witness.get(f"x:{v.tag}", Fraction(0)) for v in rules.measured}


@dataclass(frozen=True, slots=True)
class Movers:
    """Some dynamics and what they read; nothing else moves the variables that have them."""

    dynamics: Mapping[str, Expr]
    inputs: tuple[str, ...]  # measured, without dynamics
    disturbances: tuple[str, ...]
    actions: tuple[str, ...]

    @staticmethod
    def of(rules: RuleSet, dynamics: Mapping[str, Expr]) -> Movers:
        """Those of some dynamics of a rule set."""
        read = {part.name for step in dynamics.values() for part in references(step)}
        return Movers(
            dynamics,
            tuple(str(v.tag) for v in rules.measured if v.tag in read and v.tag not in rules.dynamics),
            tuple(name for name in rules.disturbances if name in read),
            tuple(str(v.tag) for v in rules.actions if v.tag in read),
        )


def trajectory(
    rules: RuleSet,
    plan: Plan,
    witness: Mapping[str, Fraction],
    last: int | None = None,
    movers: Movers | None = None,
    *,
    backup: bool = False,
) -> list[dict[str, Fraction]]:
    """Measured values at every instant of a plan, until the one whose number is `last`.

    With the `movers` of some variables alone the others are known at acquisition only. `backup`: the course
    in which the backup may take over from the proposal's effect on.
    """
    movers = Movers.of(rules, rules.dynamics) if movers is None else movers
    free = [str(v.tag) for v in rules.measured if v.tag not in rules.dynamics]
    state = beginning(rules, witness)
    states = [state]
    for k, segment in enumerate(plan.segments[:last]):
        point = dict(state)
        point.update((tag, witness.get(f"m{k}:{tag}", state[tag])) for tag in movers.inputs)
        point.update((name, witness.get(f"d{k}:{name}", _ZERO)) for name in movers.disturbances)
        for tag in movers.actions:
            point[tag] = witness.get(f"{acts_in(segment, k, tag, backup=backup)}:{tag}", _ZERO)
        after = moved(movers.dynamics, point, (segment.end - segment.start) / plan.step)
        after.update((tag, witness.get(f"p{k + 1}:{tag}", state[tag])) for tag in free)
        state = after
        states.append(state)
    return states


def violates(
    rules: RuleSet, plan: Plan, duty: Duty, witness: Mapping[str, Fraction]
) -> dict[str, Fraction] | None:
    """`Replay.violates`, once."""
    return Replay(rules, plan).violates(duty, witness)


class Replay:
    """Witnesses of one plan, each played through."""

    # INVARIANT: `_asked` holds only what a rule's tree tells.

    def __init__(self, rules: RuleSet, plan: Plan) -> None:
        self._rules, self._plan = rules, plan
        self._asked: dict[int, tuple[frozenset[Ref | For], Movers]] = {}

    def violates(self, duty: Duty, witness: Mapping[str, Fraction]) -> dict[str, Fraction] | None:
        """The point at which the witness violates a duty, by tag, or None where it does not.

        After acquisition it has those variables with dynamics that the rule depends on.
        """
        rules, plan, tree = self._rules, self._plan, self._plan.rules[duty.rule].tree
        if duty.rule not in self._asked:
            self._asked[duty.rule] = keyed(tree), Movers.of(rules, _moving_with(rules.dynamics, tree))
        asked, movers = self._asked[duty.rule]
        last = max(duty.instant, duty.drift)
        course = trajectory(rules, plan, witness, last, movers, backup=duty.backup >= 0)
        point = dict(course[duty.instant])
        if duty.drift >= 0:
            point |= {tag: value for tag, value in course[duty.drift].items() if tag not in rules.dynamics}
        acting = f"b{duty.backup}" if duty.backup >= 0 else "old" if duty.old else "new"
        for part in asked:
            if isinstance(part, For):
                point[part.key] = witness.get(f"for:{part.seconds} {part.row}", Fraction(0))
            elif part.form != "now":
                point[part.key] = _fact(plan, part, point, witness)
            elif part.name not in point:
                point[part.name] = witness.get(f"{acting}:{part.name}", Fraction(0))
        if truth(tree, point):
            return None
        values = {str(v.tag): witness.get(f"{acting}:{v.tag}") for v in rules.actions}
        return point | {tag: value for tag, value in values.items() if value is not None}


def _moving_with(dynamics: Mapping[str, Expr], tree: Expr) -> dict[str, Expr]:
    """The dynamics that what a condition asks of depends on."""
    found: dict[str, Expr] = {}
    left = {part.name for part in references(tree)} & dynamics.keys()
    while left:
        name = left.pop()
        found[name] = dynamics[name]
        left |= {part.name for part in references(found[name])} & (dynamics.keys() - found.keys())
    return {name: step for name, step in dynamics.items() if name in found}


def _fact(plan: Plan, part: Ref, point: Mapping[str, Fraction], witness: Mapping[str, Fraction]) -> Fraction:
    """What a reference says beside the present value."""
    was = witness.get(f"was:{part.name}")
    if part.form == "prev":
        return witness.get(f"old:{part.name}", Fraction(0)) if was is None else was
    if part.form == "rate" and was is not None:
        return (point[part.name] - was) / plan.step
    return witness.get(f"{part.form}:{part.name}", Fraction(0))  # what cancels out is in no form
