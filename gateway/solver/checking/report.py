"""Counterexamples in plant terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from gateway.core.decision import Counterexample, Violated
from gateway.core.tag import TagId
from gateway.solver.checking.condense import Duty, Plan
from gateway.solver.language.evaluate import number, truth
from gateway.solver.language.syntax import Chain, Expr, For, Label, Number, Ref, children, references
from gateway.solver.language.typecheck import Declared, difference_unit
from gateway.solver.rules.ruleset import Rule, RuleSet


@dataclass(frozen=True, slots=True)
class Shown:
    """A violated rule and its one sentence."""

    finding: Violated
    text: str

    def counterexample(self) -> Counterexample:
        """As verdicts carry it."""
        f = self.finding
        return Counterexample(
            module=f.module,
            constraint=f.constraint,
            margin=f.margin,
            assignment=f.witness,
            text=self.text,
            unit=f.unit,
        )


def shown_point(
    rules: RuleSet,
    plan: Plan,
    duty: Duty,
    witness: Mapping[str, Fraction],
    point: Mapping[str, Fraction],
    start: Mapping[str, Fraction],
) -> dict[str, Fraction]:
    """The witness for records: values at the violation and at acquisition (`start:`), and the instant.

    With `old:`, `new:`, `m{k}:`, `e{k}:` and `d{k}:` it can be played through by anyone.
    """
    shown = {name: value for name, value in point.items() if name in rules.variables}
    shown |= {f"start:{name}": value for name, value in start.items()}
    shown |= {
        name: value for name, value in witness.items() if not name.startswith(("x:", "p")) and ":" in name
    }
    shown["at_s"] = plan.instant(duty.instant)
    return shown


def described(
    rules: RuleSet,
    rule: Rule,
    point: Mapping[str, Fraction],
    start: Mapping[str, Fraction],
    plan: Plan,
    duty: Duty,
) -> str:
    """`no-overflow` (buffer-tank.json:14): level could reach 3.612 m, limit 3.6 m, with inflow 12.3 m3/h."""
    chain = _false_part(rule.tree, point)
    told: set[str] = set()
    if chain is not None and chain.ops[0] in {"==", "!="}:
        said, told = _unequal(rules, rule, point, chain)
    elif chain is None:
        said = (
            "does not hold"
            if rule.constraint.text == rule.constraint.message
            else f"`{rule.constraint.text}`"
        )
    else:
        left, right = chain.operands
        said, told = _missed(rules, rule, point, left, right, duty.instant > 0)
    named = {reference.name for reference in references(rule.tree)}
    moving = {n for tag in named & rules.forms.keys() for n in rules.forms[tag].terms if n in rules.variables}
    others = named | moving
    parts = []
    for name in sorted(others - told):
        variable = rules.variables[TagId(name)]
        value = point.get(name) if variable.action else start.get(name)
        if value is not None:
            parts.append(f"{rule.names.get(name, name)} {variable.text(value)}")
    with_others = f", with {', '.join(parts)}" if parts else ""
    when = plan.instant(duty.instant)
    at = f" after {float(when):.3g} s" if when else ""
    if duty.backup >= 0:
        at += ", the backup acting by then or not yet"
    message = f": {rule.constraint.message}" if rule.constraint.message else ""
    return f"`{rule.constraint.id}` ({rule.where}){message}: {said}{at}{with_others}"


def quantity(value: Fraction, unit: str) -> str:
    """A value with four decimals at most, and its unit."""
    text = f"{float(value):.4f}".rstrip("0").rstrip(".")
    return f"{text} {unit}".strip()


def _false_part(tree: Expr, point: Mapping[str, Fraction]) -> Chain | None:
    """The last comparison that is false, alone: the one a person reads as the demand.

    What stands before a `for` is about the past as well, and false or not by itself says nothing.
    """
    if isinstance(tree, For):
        return None
    if isinstance(tree, Chain):
        for op, left, right in zip(tree.ops, tree.operands, tree.operands[1:], strict=False):
            pair = Chain(0, (op,), (left, right))
            if not truth(pair, point):
                return pair
        return None
    for part in reversed(children(tree)):
        found = _false_part(part, point)
        if found is not None:
            return found
    return None


def _unequal(rules: RuleSet, rule: Rule, point: Mapping[str, Fraction], chain: Chain) -> tuple[str, set[str]]:
    """`sigA is clear and must be stop`."""
    left, right = chain.operands
    for ref, other in ((left, right), (right, left)):
        if isinstance(ref, Ref) and isinstance(other, Label | Number):
            variable = rules.variables[TagId(ref.name)]
            name = rule.names.get(ref.name, ref.name)
            name = name if ref.form == "now" else f"{ref.form}({name})"
            must = "must be" if chain.ops[0] == "==" else "must not be"
            limit = other.name if isinstance(other, Label) else variable.text(other.value)
            told = {ref.name} if ref.form == "now" else set[str]()
            return f"{name} is {variable.text(point[ref.key])} and {must} {limit}", told
    return f"`{rule.constraint.text}`", set()


def _missed(
    rules: RuleSet,
    rule: Rule,
    point: Mapping[str, Fraction],
    left: Expr,
    right: Expr,
    later: bool,  # noqa: FBT001
) -> tuple[str, set[str]]:
    try:
        first, second = number(left, point), number(right, point)
    except ZeroDivisionError:
        return f"`{rule.constraint.text}` divides by 0", set()
    for ref, value, limit in ((left, first, second), (right, second, first)):
        if isinstance(ref, Ref) and ref.form == "now":
            unit = rules.variables[TagId(ref.name)].unit
            name = rule.names.get(ref.name, ref.name)
            verb = (
                "could reach" if later else "may be" if not rules.variables[TagId(ref.name)].action else "is"
            )
            return f"{name} {verb} {quantity(value, unit)}, limit {quantity(limit, unit)}", {ref.name}
    names = {
        str(v.tag): Declared(v.sort, v.unit or None, v.action, exact=True, labels={}, hidden=v.hidden)
        for v in rules.variables.values()
    }
    missed = quantity(abs(first - second), difference_unit(left, right, names))
    return f"`{rule.constraint.text}` is missed by {missed}", set()
