"""Courses of events that start anywhere in a safe set: premises step by step, and what they must imply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from gateway.solver.checking.way import SLOWEST_RAMP
from gateway.solver.language.affine import (
    Affine,
    Atom,
    Every,
    Formula,
    Some,
    mapped,
    negated,
    symbol,
    symbols,
)
from gateway.solver.modules.module import Hold, Ramp, Variable
from gateway.solver.rules.proof_basis import of_the_change
from gateway.solver.rules.ruleset import Rule, RuleSet

_MOST_VALUES = 256  # of a whole number that are told apart


@dataclass(frozen=True, slots=True)
class Moment:
    """A state and the values in force, as far as a course of events is told."""

    said: str
    state: Mapping[str, Affine]
    acting: Mapping[str, Affine]


@dataclass(frozen=True, slots=True)
class Obligation:
    """What must hold under all premises stated before it."""

    said: str
    formula: Formula


def _between(value: Affine, low: Affine, high: Affine) -> Formula:
    return Every((_at_most(low, value), _at_most(value, high)))


def _at_most(left: Affine, right: Affine) -> Formula:
    return Atom(left.plus(right.times(Fraction(-1))))


def _equal(left: Affine, right: Affine) -> Formula:
    return _between(left, right, right)


def _number(value: Fraction) -> Affine:
    return Affine(value)


class Story:
    """Premises and obligations of one course of events, step by step from any state of the safe set.

    `anywhere`: from any state at all, and any values in force that rules about them alone permit.
    """

    def __init__(self, rules: RuleSet, *, anywhere: bool = False) -> None:
        self.rules = rules
        self.step = rules.modules[0].step
        self.premises: list[Formula] = []
        self.obligations: list[tuple[int, Obligation]] = []  # with how many premises are stated before it
        self.moments: list[Moment] = []
        self._count = 0
        self.state = {str(v.tag): self._measured(v) for v in rules.measured}
        self.acting = {str(v.tag): self._action(v) for v in rules.actions}
        for rule in rules.permitted_outputs if anywhere else rules.invariant:
            self.premises.append(self.said_of(rule, self.state, self.acting, self.acting))

    def fresh(self, name: str) -> Affine:
        """A new symbol."""
        self._count += 1
        return symbol(f"{name}#{self._count}")

    def _measured(self, variable: Variable, *, mean: bool = False) -> Affine:
        """Where a variable may be at a moment, or what it may be on average of a time."""
        value = self.fresh(variable.tag)
        within = variable.physical
        if within is None and variable.tag not in self.rules.forms and variable.max_rate is None:
            within = variable.roams
        if within is not None:
            self.premises.append(_between(value, *map(_number, within)))
        if variable.labels is not None and not mean:
            self.premises.append(_whole(value, variable.whole or ()))
        elif variable.sort != "real" and not mean and within is not None:
            self.premises.append(_whole(value, range(ceil(within[0]), floor(within[1]) + 1)))
        return value

    def _action(self, variable: Variable) -> Affine:
        value = self.fresh(variable.tag)
        self.premises.append(_between(value, *map(_number, variable.range)))
        if variable.sort != "real":
            self.premises.append(_whole(value, variable.whole or ()))
        return value

    def said_of(
        self,
        rule: Rule,
        state: Mapping[str, Affine],
        acting: Mapping[str, Affine],
        before: Mapping[str, Affine],
    ) -> Formula:
        """A rule at a state with some values in force."""

        def read(name: str) -> Affine:
            if name in state:
                return state[name]
            form, bracket, rest = name.partition("(")
            if not bracket:
                return acting[name]
            tag = rest.removesuffix(")")
            if tag not in acting or form not in {"prev", "rate"}:
                return self._fact(form, tag)  # of the past or of a reading's quality: whatever it may be
            if form == "prev":
                return before[tag]
            return acting[tag].plus(before[tag].times(Fraction(-1))).times(1 / self.step)

        return mapped(rule.formula, lambda form: form.substituted(read))

    def _fact(self, form: str, name: str) -> Affine:
        """What nothing is assumed of but that a truth is 0 or 1, and a time not negative."""
        value = self.fresh(f"{form} {name}")
        if form in {"for", "good", "kept_on", "may_rise"}:
            self.premises.append(
                Some((_equal(value, _number(Fraction(0))), _equal(value, _number(Fraction(1)))))
            )
        elif form in {"age", "held"}:
            self.premises.append(_at_most(_number(Fraction(0)), value))
        return value

    def later(self, before: Affine, variable: Variable, seconds: Fraction) -> Affine:
        """A variable without dynamics some time later."""
        return self._after(before, variable, seconds, mean=False)

    def _after(self, before: Affine, variable: Variable, seconds: Fraction, *, mean: bool) -> Affine:
        value = self._measured(variable, mean=mean)
        if variable.max_rate is not None:
            way = variable.max_rate * seconds
            if variable.sort != "real":  # it may count up at any moment, at once too
                way = way * (2 if mean else 1) + 1
            reach = _number(way)
            self.premises.append(_between(value, before.plus(reach.times(Fraction(-1))), before.plus(reach)))
        return value

    def backup(self) -> dict[str, Affine]:
        """The backup's answer to the present state, seen with twice the sensor error."""
        seen: dict[str, Affine] = {}
        for variable in self.rules.measured:
            value = self.state[variable.tag]
            width = _number(2 * variable.uncertainty)
            if variable.sort == "real":
                look = self.fresh(f"seen {variable.tag}")
                self.premises.append(_between(look, value.plus(width.times(Fraction(-1))), value.plus(width)))
                value = look
            seen[variable.tag] = value
        answer: dict[str, Affine] = {}
        before = {f"prev({tag})": value for tag, value in self.acting.items()}
        for variable in self.rules.actions:
            value = self._action(variable)
            self.premises.append(self._policy(variable, value, {**seen, **self.acting, **before}))
            answer[variable.tag] = value
        return answer

    def _policy(self, variable: Variable, value: Affine, seen: Mapping[str, Affine]) -> Formula:
        choice: Formula = Some(())
        for entry in reversed(self.rules.backup):
            move = entry.entry.moves.get(variable.tag)
            if move is None:
                continue
            moves = self._move(variable, value, move)
            if entry.formula is None:
                choice = moves
                continue
            guard = mapped(entry.formula, lambda form: form.substituted(seen.__getitem__))
            choice = Some((Every((guard, moves)), Every((negated(guard), choice))))
        return choice

    def _move(self, variable: Variable, value: Affine, move: Ramp | Hold | Fraction) -> Formula:
        old = self.acting[variable.tag]
        if isinstance(move, Hold):
            return _equal(value, old)
        if isinstance(move, Fraction):
            return _equal(value, _number(move))
        target, most = _number(move.target), _number(move.rate * self.step)
        least = most.times(SLOWEST_RAMP)
        up = Every(
            (
                _at_most(old, target),
                _at_most(value, target),
                _at_most(value, old.plus(most)),
                Some((_at_most(old.plus(least), value), _at_most(target, value))),
            )
        )
        down = Every(
            (
                _at_most(target, old),
                _at_most(target, value),
                _at_most(old.plus(most.times(Fraction(-1))), value),
                Some((_at_most(value, old.plus(least.times(Fraction(-1)))), _at_most(value, target))),
            )
        )
        return Some((up, down))

    def move(self, after: Mapping[str, Affine], parts: Sequence[Fraction]) -> list[dict[str, Affine]]:
        """One step during which `after` takes over at any moment; the states at `parts` of it."""
        during: dict[str, Affine] = dict(self.state)
        for variable in self.rules.actions:
            old, new = self.acting[variable.tag], after[variable.tag]
            if old is new:
                during[variable.tag] = old
                continue
            mix = self.fresh(f"mix {variable.tag}")
            self.premises.append(Some((_between(mix, old, new), _between(mix, new, old))))
            during[variable.tag] = mix
        for name, (low, high) in self.rules.disturbances.items():
            value = self.fresh(name)
            self.premises.append(_between(value, _number(low), _number(high)))
            during[name] = value
        for variable in self.rules.measured:
            if variable.tag not in self.rules.forms:
                # the mean over the step, which at the rate's limit is its value at half time
                at_first = self.state[variable.tag]
                during[variable.tag] = self._after(at_first, variable, self.step / 2, mean=True)
        ends: list[dict[str, Affine]] = []
        for part in parts:
            end: dict[str, Affine] = {}
            for variable in self.rules.measured:
                tag = str(variable.tag)
                form = self.rules.forms.get(tag)
                if form is None:
                    end[tag] = self.later(self.state[tag], variable, self.step * part)
                else:
                    change = form.substituted(during.__getitem__).plus(self.state[tag].times(Fraction(-1)))
                    end[tag] = self.state[tag].plus(change.times(part))
            ends.append(end)
        return ends

    def settle(self, state: Mapping[str, Affine]) -> dict[str, Affine]:
        """The same state under short names, so that forms do not grow from step to step."""
        named: dict[str, Affine] = {}
        for tag, form in state.items():
            name = self.fresh(tag)
            self.premises.append(_equal(name, form))
            named[tag] = name
        return named

    def must(self, said: str, state: Mapping[str, Affine], acting: Mapping[str, Affine]) -> None:
        """All binding rules that hold at every moment."""
        self.moments.append(Moment(said, state, acting))
        for rule in self.rules.rules:
            if not rule.binding or not rule.constraint.always:
                continue
            if any("(" in name for name in symbols(rule.formula)):
                continue
            self._owe(f"`{rule.constraint.id}` {said}", self.said_of(rule, state, acting, acting))

    def must_between(
        self,
        said: str,
        before: Mapping[str, Affine],
        after: Mapping[str, Affine],
        acting: Mapping[str, Affine],
    ) -> None:
        """Those of them that what has no dynamics may break ahead of the rest, which has hardly moved."""
        way = {tag: form if tag in self.rules.forms else after[tag] for tag, form in before.items()}
        for rule in self.rules.rules:
            named = symbols(rule.formula) & way.keys()
            moving = named & self.rules.forms.keys()
            mixed = rule.binding and rule.constraint.always and moving and moving != named
            if mixed and not any("(" in name for name in symbols(rule.formula)):
                self._owe(f"`{rule.constraint.id}` {said}", self.said_of(rule, way, acting, acting))

    def must_at_once(self, after: Mapping[str, Affine], *, of_outputs: bool = False) -> None:
        """Rules of the snapshot, ramps among them; minimum times do not bind the backup.

        `of_outputs`: those about outputs alone.
        """
        for rule in self.rules.rules_of_outputs if of_outputs else self.rules.rules:
            if not rule.binding or (rule.constraint.always and not of_the_change(rule)):
                continue
            if any(name.startswith(("kept_on(", "may_rise(")) for name in symbols(rule.formula)):
                continue
            said = self.said_of(rule, self.state, after, self.acting)
            self._owe(f"`{rule.constraint.id}` by the backup's own action", said)

    def must_change(self, said: str, state: Mapping[str, Affine], after: Mapping[str, Affine]) -> None:
        """Rules that hold at every moment and ask for the change to what the backup does (S1)."""
        for rule in self.rules.rules:
            if rule.binding and of_the_change(rule):
                self._owe(f"`{rule.constraint.id}` {said}", self.said_of(rule, state, after, self.acting))

    def must_be_safe(self, said: str, state: Mapping[str, Affine], acting: Mapping[str, Affine]) -> None:
        """The safe set holds."""
        for rule in self.rules.invariant:
            self._owe(f"`{rule.constraint.id}` {said}", self.said_of(rule, state, acting, acting))

    def _owe(self, said: str, formula: Formula) -> None:
        self.obligations.append((len(self.premises), Obligation(said, formula)))


def _whole(value: Affine, whole: Sequence[int]) -> Formula:
    """One of these; of more than can be told apart any number between: more than there is, never less."""
    if len(whole) > _MOST_VALUES:
        return _between(value, _number(Fraction(whole[0])), _number(Fraction(whole[-1])))
    return Some(tuple(_equal(value, _number(Fraction(k))) for k in whole))
