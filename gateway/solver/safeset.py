"""The proof that lets a point be armed: from every state of the safe set the backup keeps every rule, for ever.

Three things are shown with Z3, for every state in the set, every disturbance, and both values of every guard
that a sensor error could turn:
`loop`: the backup's action, acting at any moment of the step, keeps the rules and ends in the set again;
`moment`: the set holds at every quarter of that step, because a decision may come at any moment;
`lease`: when the gateway falls silent, the values in force may act for `lease_s` more, then the PLC's own
fallback (the same backup) acts: the rules hold all the way, and the end lies in the set again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import z3

from gateway.solver.affine import Affine, Every, Formula, Some, mapped, negated, symbol, symbols
from gateway.solver.module import Hold, Ramp, Variable
from gateway.solver.ruleset import Rule, RuleSet
from gateway.solver.terms import Terms, fraction

LEASE_S = Fraction(4)  # period, lease time-out and scan: how long the PLC may go on with the last values
SLOWEST_RAMP = Fraction(9, 10)  # a ramp that lost a tenth to jitter and rounding still does
_LONGEST = 40  # steps after which a fallback must be back in the set


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What was shown of one rule set; `escape` says in plant terms how a state leaves, or is empty."""

    digest: str
    escape: str = ""

    @property
    def holds(self) -> bool:
        """Whether the set is invariant."""
        return not self.escape


@dataclass(frozen=True, slots=True)
class Obligation:
    """What must hold under all premises stated before it."""

    said: str
    formula: Formula


def _between(value: Affine, low: Affine, high: Affine) -> Formula:
    return Every((_at_most(low, value), _at_most(value, high)))


def _at_most(left: Affine, right: Affine) -> Formula:
    from gateway.solver.affine import Atom  # noqa: PLC0415

    return Atom(left.plus(right.times(Fraction(-1))))


def _equal(left: Affine, right: Affine) -> Formula:
    return _between(left, right, right)


def _number(value: Fraction) -> Affine:
    return Affine(value)


class _Story:
    """Premises and obligations of one course of events, step by step from any state of the safe set."""

    def __init__(self, rules: RuleSet) -> None:
        self.rules = rules
        self.step = rules.modules[0].step
        self.premises: list[Formula] = []
        self.obligations: list[tuple[int, Obligation]] = []  # with how many premises are stated before it
        self._count = 0
        self.state = {str(v.tag): self._measured(v) for v in rules.measured}
        self.acting = {str(v.tag): self._action(v) for v in rules.actions}
        for rule in rules.safe_set:
            self.premises.append(self.said_of(rule, self.state, self.acting, self.acting))

    def fresh(self, name: str) -> Affine:
        self._count += 1
        return symbol(f"{name}#{self._count}")

    def _measured(self, variable: Variable) -> Affine:
        value = self.fresh(variable.tag)
        if variable.physical is not None:
            self.premises.append(_between(value, *map(_number, variable.physical)))
        elif variable.tag not in self.rules.forms and variable.max_rate is None:
            self.premises.append(_between(value, *map(_number, variable.range)))
        if variable.sort != "real":
            self.premises.append(_whole(value, variable))
        return value

    def _action(self, variable: Variable) -> Affine:
        value = self.fresh(variable.tag)
        self.premises.append(_between(value, *map(_number, variable.range)))
        if variable.sort != "real":
            self.premises.append(_whole(value, variable))
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
            if form == "prev":
                return before[tag]
            return acting[tag].plus(before[tag].times(Fraction(-1))).times(1 / self.step)

        return mapped(rule.formula, lambda form: form.substituted(read))

    def later(self, before: Affine, variable: Variable, seconds: Fraction) -> Affine:
        """A variable without dynamics some time later."""
        value = self._measured(variable)
        if variable.max_rate is not None:
            reach = _number(variable.max_rate * seconds)
            self.premises.append(_between(value, before.plus(reach.times(Fraction(-1))), before.plus(reach)))
        return value

    def backup(self) -> dict[str, Affine]:
        """The backup's answer to the present state, seen with twice the sensor error."""
        seen: dict[str, Affine] = {}
        for variable in self.rules.measured:
            value = self.state[variable.tag]
            width = _number(2 * (variable.error + abs(variable.definition.scale) / 2))
            if variable.sort == "real":
                look = self.fresh(f"seen {variable.tag}")
                self.premises.append(_between(look, value.plus(width.times(Fraction(-1))), value.plus(width)))
                value = look
            seen[variable.tag] = value
        answer: dict[str, Affine] = {}
        for variable in self.rules.actions:
            value = self._action(variable)
            self.premises.append(self._policy(variable, value, {**seen, **self.acting}))
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
        """One step during which `after` takes over at any moment; the states at `parts` of it, the last at its end."""
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
                during[variable.tag] = self.later(self.state[variable.tag], variable, self.step)
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
        for rule in self.rules.rules:
            if rule.constraint.kind == "informational" or not rule.constraint.always:
                continue
            if any("(" in name for name in symbols(rule.formula)):
                continue
            self._owe(f"`{rule.constraint.id}` {said}", self.said_of(rule, state, acting, acting))

    def must_at_once(self, after: Mapping[str, Affine]) -> None:
        """Rules of the snapshot, ramps among them; minimum times do not bind the backup."""
        for rule in self.rules.rules:
            if rule.constraint.kind == "informational" or rule.constraint.always:
                continue
            if any(name.startswith(("kept_on(", "may_rise(")) for name in symbols(rule.formula)):
                continue
            said = self.said_of(rule, self.state, after, self.acting)
            self._owe(f"`{rule.constraint.id}` by the backup's own action", said)

    def must_be_safe(self, said: str, state: Mapping[str, Affine], acting: Mapping[str, Affine]) -> None:
        """The safe set holds."""
        for rule in self.rules.safe_set:
            self._owe(f"`{rule.constraint.id}` {said}", self.said_of(rule, state, acting, acting))

    def _owe(self, said: str, formula: Formula) -> None:
        self.obligations.append((len(self.premises), Obligation(said, formula)))


def _whole(value: Affine, variable: Variable) -> Formula:
    low, high = int(variable.range[0]), int(variable.range[1])
    return Some(tuple(_equal(value, _number(Fraction(k))) for k in range(low, high + 1)))


_QUARTERS = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), Fraction(1))


def _loop(rules: RuleSet) -> _Story:
    story = _Story(rules)
    after = story.backup()
    story.must("already in the set", story.state, story.acting)
    story.must("when the backup begins to act", story.state, after)
    story.must_at_once(after)
    story.must_be_safe("when the backup begins to act", story.state, after)
    for part, state in zip(_QUARTERS, story.move(after, _QUARTERS), strict=True):
        said = f"{float(part * story.step):g} s after the backup was asked"
        story.must(said, state, story.acting)
        story.must(said, state, after)
        story.must_be_safe(said, state, after)
    return story


def _lease(rules: RuleSet, lease_s: Fraction) -> _Story:
    story = _Story(rules)
    held = -(-lease_s // story.step)
    for k in range(held):
        story.state = story.settle(story.move(story.acting, (Fraction(1),))[0])
        story.must(f"{k + 1} steps after the gateway fell silent", story.state, story.acting)
    for k in range(held, held + _fallback_steps(rules)):
        after = story.backup()
        story.state = story.settle(story.move(after, (Fraction(1),))[0])
        said = f"{k + 1} steps after the gateway fell silent"
        story.must(said, story.state, story.acting)
        story.must(said, story.state, after)
        story.acting = after
    story.must_be_safe("when the PLC's fallback has done its work", story.state, story.acting)
    return story


def _fallback_steps(rules: RuleSet) -> int:
    """Steps in which every ramp has certainly arrived."""
    longest = 1
    for step in rules.backup:
        for tag, move in step.entry.moves.items():
            if isinstance(move, Ramp):
                low, high = next(v.range for v in rules.actions if v.tag == tag)
                each = move.rate * rules.modules[0].step * SLOWEST_RAMP
                longest = max(longest, -(-(high - low) // each) + 1)
    return min(longest, _LONGEST)


def prove(rules: RuleSet, *, budget_s: float = 60.0, lease_s: Fraction = LEASE_S) -> Proof:
    """Whether the set is invariant; no answer within the budget counts as no."""
    if not rules.backup or not rules.safe_set or not rules.forms:
        return Proof(
            digest=rules.proof_digest, escape="there is no dynamics, `backup` or `safe_set` to prove"
        )
    ends = time.monotonic() + budget_s
    for story in (_loop(rules), _lease(rules, lease_s)):
        for escape in _escapes(story, ends):
            return Proof(digest=rules.proof_digest, escape=escape)
    return Proof(digest=rules.proof_digest)


def _escapes(story: _Story, ends: float) -> Iterator[str]:
    context = z3.Context()
    terms = Terms(context)
    solver = z3.SimpleSolver(ctx=context)
    stated = 0
    for needed, obligation in story.obligations:
        for premise in story.premises[stated:needed]:
            solver.add(terms.formula(premise))
        stated = max(stated, needed)
        left_ms = int((ends - time.monotonic()) * 1000)
        if left_ms <= 0:
            yield f"no answer in the budget: {obligation.said}"
            return
        solver.push()
        solver.set("timeout", left_ms)
        solver.add(terms.formula(negated(obligation.formula)))
        found = str(solver.check())
        if found == "sat":
            yield f"{obligation.said} is not kept from {_plant_terms(story, terms, solver.model())}"
        elif found != "unsat":
            yield f"no answer in the budget: {obligation.said}"
        solver.pop()
    if str(solver.check()) != "sat":
        yield "the safe set is empty, so everything could be shown of it"


def _plant_terms(story: _Story, terms: Terms, model: z3.ModelRef) -> str:
    """The start of the escaping course of events."""
    parts: list[str] = []
    for index, variable in enumerate((*story.rules.measured, *story.rules.actions), start=1):
        value = fraction(model.eval(terms.name(f"{variable.tag}#{index}"), model_completion=True))
        parts.append(f"{variable.name} {float(value):.6g} {variable.unit}".strip())
    return ", ".join(parts)


def read_proofs(path: Path) -> frozenset[str]:
    """The committed proof digests; none where there is no file."""
    if not path.exists():
        return frozenset()
    return frozenset(entry["digest"] for entry in json.loads(path.read_text())["proved"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Prove the given modules together and note the digest in the proofs file."""
    from gateway.config.tags import parse_csv  # noqa: PLC0415, F401

    parser = argparse.ArgumentParser(prog="gateway.solver.safeset", description=main.__doc__)
    parser.add_argument("modules", nargs="+", type=Path)
    parser.parse_args(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
