"""What a snapshot may look like: premises on every symbol that rules can name, and points in plant terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from gateway.core.tag import TagId
from gateway.solver.language import normal
from gateway.solver.language.affine import (
    Affine,
    Atom,
    Every,
    Form,
    Formula,
    Some,
    mapped,
    negated,
    symbol,
    symbols,
)
from gateway.solver.language.syntax import timed
from gateway.solver.modules.module import Interval, Variable
from gateway.solver.rules.ruleset import Rule, RuleSet

_MOST_VALUES = 256  # of a whole number that are told apart
_ZERO, _ONE = Fraction(0), Fraction(1)
_TRUTHS = ("for", "good", "kept_on", "may_rise")


def between(form: Affine, low: Fraction, high: Fraction) -> Formula:
    """`low <= form <= high`."""
    return Every((at_least(form, low), at_most(form, high)))


def at_most(form: Affine, most: Fraction) -> Formula:
    """`form <= most`."""
    return Atom(form.plus(Affine(-most)))


def at_least(form: Affine, least: Fraction) -> Formula:
    """`form >= least`."""
    return Atom(Affine(least).plus(form.times(Fraction(-1))))


def one_of(form: Affine, values: Iterable[Fraction]) -> Formula:
    """`form` has one of these values."""
    return Some(tuple(between(form, value, value) for value in values))


def holds_at(formula: Formula, point: Mapping[str, Fraction]) -> bool:
    """Whether a formula is true at a point that gives each of its symbols a value."""
    match formula:
        case Atom(form, strict):
            value = form.at(point)
            return value < 0 if strict else value <= 0
        case Every(parts):
            return all(holds_at(part, point) for part in parts)
        case _:
            return any(holds_at(part, point) for part in formula.parts)


def split_key(key: str) -> tuple[str, str]:
    """`prev(TK1.LT101)` as `prev` and the tag; a tag alone as `now` and the tag."""
    form, bracket, rest = key.partition("(")
    return (form, rest.removesuffix(")")) if bracket else ("now", key)


@dataclass(frozen=True, slots=True)
class World:
    """Snapshots of one rule set.

    `anywhere`: nothing is held to its range, nor a change per second to the values in force: what is shown of
    such a world is shown of predicted states, of any history and of any value in force, too.
    """

    rules: RuleSet
    anywhere: bool = False

    def said(self, rule: Rule) -> Formula:
        """A rule over the symbols of this world."""
        return mapped(rule.formula, self.form)

    def form(self, form: Form) -> Form:
        """A form with a change per second put in terms of the values it is the change of."""
        return form.substituted(self._meaning)

    def premises(self, *formulas: Formula) -> tuple[Formula, ...]:
        """What may be assumed of the symbols that occur."""
        names = sorted(frozenset().union(*(symbols(f) for f in formulas)))
        found: list[Formula] = []
        for name in names:
            found += self._premises(name)
        return tuple(found)

    def told(self, point: Mapping[str, Fraction]) -> dict[str, str]:
        """A point in the modules' own names, with units; measured first, then actions, then the past."""
        order = [str(v.tag) for v in (*self.rules.measured, *self.rules.actions)]
        keys = sorted(point, key=lambda k: (split_key(k)[0] != "now", _rank(order, split_key(k)[1]), k))
        return {self._name(key): self._text(key, point[key]) for key in keys}

    def span(self, variable: Variable) -> Interval:
        """Where a variable is looked for: its range, a measured one within its physical limits."""
        low, high = variable.range
        if variable.physical is not None and not variable.action:
            low, high = max(low, variable.physical[0]), min(high, variable.physical[1])
        return low, high

    def _meaning(self, key: str) -> Affine:
        form, tag = split_key(key)
        variable = self.rules.variables.get(TagId(tag))
        if form != "rate" or variable is None or (self.anywhere and variable.action):
            return symbol(key)
        change = symbol(tag).plus(symbol(f"prev({tag})").times(Fraction(-1)))
        return change.times(1 / self.rules.modules[0].step)

    def _premises(self, key: str) -> list[Formula]:
        form, tag = split_key(key)
        value = symbol(key)
        if form in _TRUTHS:
            return [one_of(value, (_ZERO, _ONE)), *self._past(form, key, tag)]
        if form in {"age", "held"}:
            return [at_least(value, _ZERO)]
        variable = self.rules.variables.get(TagId(tag))
        return [] if variable is None or form == "rate" else self._within(variable, value)

    def _within(self, variable: Variable, value: Affine) -> list[Formula]:
        values = variable.whole
        if values is not None and len(values) <= _MOST_VALUES:
            if (
                not self.anywhere
                or variable.sort == "bool"
                or (variable.sort == "enum" and not variable.action)
            ):
                return [one_of(value, map(Fraction, values))]
            return []  # a count may leave its range later on, and a value in force may be outside it
        if not self.anywhere:
            return [between(value, *self.span(variable))]
        if variable.physical is not None and variable.tag not in self.rules.forms:
            return [between(value, *variable.physical)]
        return []

    def _past(self, form: str, key: str, tag: str) -> list[Formula]:
        """How facts of the past hang together with what is now."""
        if self.anywhere:
            return []
        if form in {"kept_on", "may_rise"}:
            was_on = at_least(symbol(f"prev({tag})"), _ONE)
            on = at_least(symbol(key), _ONE)
            pair = (negated(on), was_on) if form == "kept_on" else (negated(was_on), on)
            return [Some(pair), *self._premises(f"prev({tag})")]
        for rule in self.rules.rules:
            for node in timed(rule.tree):
                if node.key == key:
                    lasting = mapped(normal.formula(node.operand), self.form)
                    return [Some((at_most(symbol(key), _ZERO), lasting)), *self.premises(lasting)]
        return []

    def _name(self, key: str) -> str:
        form, tag = split_key(key)
        if form == "for":
            return f"`{self._lasting(key)}`"
        variable = self.rules.variables.get(TagId(tag))
        name = variable.name if variable is not None else tag
        words = {"now": name, "kept_on": f"{name} kept on", "may_rise": f"{name} may switch on"}
        return words.get(form, f"{form}({name})" if form != "held" else f"{name} unchanged for")

    def _lasting(self, key: str) -> str:
        return key.removeprefix("for(").removesuffix(")").partition("/")[2] or key

    def _text(self, key: str, value: Fraction) -> str:
        form, tag = split_key(key)
        if form in _TRUTHS:
            return "true" if value >= 1 else "false"
        if form in {"age", "held"}:
            return f"{float(value):g} s"
        variable = self.rules.variables.get(TagId(tag))
        if variable is None:
            return f"{float(value):.6g}"
        return variable.text(value) + ("/s" if form == "rate" else "")


def _rank(order: list[str], tag: str) -> int:
    return order.index(tag) if tag in order else len(order)
