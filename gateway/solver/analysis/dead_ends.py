"""States inside every rule from which no action is permitted: searched for, or shown not to exist.

The search plays two sides. One looks for a state from which none of the actions named so far is permitted;
the other for an action that is permitted there after all, and names it, as a value and as a move. Where the
first finds none, every state has a permitted action; where the second finds none, the state is a dead end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.solver.analysis.asking import Allowance, Asking, has_products, listed
from gateway.solver.analysis.findings import NOT_KNOWN, Finding, Level
from gateway.solver.analysis.world import World, between, one_of, split_key
from gateway.solver.checking.terms import Answer
from gateway.solver.language.affine import (
    Affine,
    Atom,
    Every,
    Form,
    Formula,
    Quadratic,
    Some,
    mapped,
    negated,
    symbol,
    symbols,
)
from gateway.solver.modules.module import Interval, Variable
from gateway.solver.rules.ruleset import Rule, RuleSet

_ROUNDS = 60
_MOST_VALUES = 64
_MINUS = Fraction(-1)

Values = Mapping[str, Affine]  # of the actions, by tag


def examine(rules: RuleSet, allowance: Allowance, *, proved: bool) -> Finding | None:
    """The finding; None where there are no dynamics to ask about. `proved`: the safe set is invariant."""
    if not rules.forms:
        return None
    if proved and not rules.terminal:
        return Finding(
            question="dead ends",
            level="fine",
            said="proved none in the safe set: the backup's own action is permitted from every state of it",
        )
    game = _Game(rules)
    left = ", ".join(f"`{name}`" for name in game.left_out)
    but = f"; {left} look back or multiply, and are left out" if left else ""
    hidden = ", ".join(f"`{v.name}`" for v in rules.measured if v.hidden)
    but += f"; {hidden}, which nobody measures, counts as known exactly" if hidden else ""
    answer, point = _played(game, allowance)
    if answer is Answer.SAT:
        level, todo = _weight(rules)
        return Finding(
            question="dead ends",
            level=level,
            said=f"from {listed(point)} no action keeps every rule for one step in the worst case, "
            f"although every rule holds there{but}",
            example=point,
            todo=todo,
        )
    if answer is Answer.UNSAT:
        return Finding(
            question="dead ends",
            level="fine" if not but else "note",
            said=f"proved none: from every state inside the rules some action keeps them for one step{but}",
        )
    return Finding(
        question="dead ends", level="unknown", said=f"whether there are dead ends: {NOT_KNOWN}{but}"
    )


def _weight(rules: RuleSet) -> tuple[Level, str]:
    """How much a dead end matters, and what to do about it."""
    if rules.safe_set:
        return "refused", "make the `safe_set` smaller, so that it leaves such states out"
    if rules.terminal:
        return "note", "nothing: the horizon and the `terminal` set keep proposals away from such states"
    return "warning", "declare a `safe_set` that leaves such states out"


def _played(game: _Game, allowance: Allowance) -> tuple[Answer, dict[str, str]]:
    states = Asking(allowance, [*game.premises, *game.inside])
    before = {tag: symbol(f"prev({tag})") for tag in game.actions}
    states.add(negated(game.permitted(before)))
    for _ in range(_ROUNDS):
        answer = states.ask()
        if answer is not Answer.SAT:
            return answer, {}
        state = states.point(game.symbols)
        reply = Asking(allowance, game.choices)
        proposed = {tag: symbol(f"new {tag}") for tag in game.actions}
        reply.add(_fixed(game.permitted(proposed), state))
        answer = reply.ask()
        if answer is Answer.UNSAT:
            return Answer.SAT, World(game.rules).told(state)
        if answer is Answer.UNKNOWN:
            return answer, {}
        found = reply.point([f"new {tag}" for tag in game.actions])
        values = {tag: Affine(found[f"new {tag}"]) for tag in game.actions}
        moves = {
            tag: before[tag].plus(Affine(found[f"new {tag}"] - state[f"prev({tag})"])) for tag in game.actions
        }
        for action in (values, moves):
            states.add(negated(game.permitted(action)))
    return Answer.UNKNOWN, {}


def _fixed(formula: Formula, state: Mapping[str, Fraction]) -> Formula:
    def read(name: str) -> Affine:
        return Affine(state[name]) if name in state else symbol(name)

    return mapped(formula, lambda form: form.substituted(read))


@dataclass(slots=True)
class _Game:
    """One step of a rule set from a state known within its sensor errors, as formulas."""

    rules: RuleSet
    actions: tuple[str, ...] = field(init=False)
    symbols: tuple[str, ...] = field(init=False)
    left_out: tuple[str, ...] = field(init=False)
    premises: list[Formula] = field(init=False)
    inside: list[Formula] = field(init=False)
    choices: list[Formula] = field(init=False)
    _kept: list[Rule] = field(init=False)

    def __post_init__(self) -> None:
        rules = self.rules
        self.actions = tuple(str(v.tag) for v in rules.actions)
        bound = [r for r in (*rules.rules, *rules.safe_set) if r.binding]
        self._kept = [r for r in bound if self._plain(r)]
        self.left_out = tuple(
            r.constraint.id for r in bound if r not in self._kept and "." not in r.constraint.id
        )
        world = World(rules)
        keys = [str(v.tag) for v in rules.measured] + [f"prev({tag})" for tag in self.actions]
        self.symbols = tuple(keys)
        self.premises = list(world.premises(*(Atom(symbol(key)) for key in keys)))
        in_force = {tag: symbol(f"prev({tag})") for tag in self.actions}
        self.inside = [
            self._worst(self._at(rule, self._state, in_force))
            for rule in self._kept
            if rule.constraint.always or rule in rules.safe_set
        ]
        self.choices = [_choice(v) for v in rules.actions]

    def _plain(self, rule: Rule) -> bool:
        """Whether a rule speaks of values now and of actions only, without products."""
        for key in symbols(rule.formula):
            form, tag = split_key(key)
            if form != "now" and not (form in {"prev", "rate"} and tag in self.actions):
                return False
        return not has_products([rule.formula])

    def permitted(self, new: Values) -> Formula:
        """Enough for `new` to keep every rule now and for one step, in the worst case."""
        parts: list[Formula] = []
        in_force = {tag: symbol(f"prev({tag})") for tag in self.actions}
        for rule in self._kept:
            safe = rule in self.rules.safe_set
            if not safe:
                parts.append(self._worst(self._at(rule, self._state, new)))
            if safe or rule.constraint.always:
                parts += [
                    self._worst(self._at(rule, self._later(dict(mix)), new))
                    for mix in self._mixes(in_force, new)
                ]
        return Every(tuple(parts))

    def _mixes(self, old: Values, new: Values) -> Iterator[list[tuple[str, Affine]]]:
        """Each action at either end of what may act during the step; the same for all where they are many."""
        ends = [((tag, old[tag]), (tag, new[tag])) for tag in self.actions]
        if len(ends) > 4:  # noqa: PLR2004  16 combinations
            yield from ([pair[k] for pair in ends] for k in (0, 1))
        else:
            yield from map(list, itertools.product(*ends))

    def _state(self, tag: str) -> Affine:
        return symbol(tag)

    def _later(self, acting: Values) -> Callable[[str], Affine]:
        def during(name: str) -> Affine:
            if name in acting:
                return acting[name]
            if name in self.rules.disturbances or name in self.rules.forms:
                return symbol(name)
            return symbol(f"drift {name}")

        def after(tag: str) -> Affine:
            form = self.rules.forms.get(tag)
            return symbol(f"drift {tag}") if form is None else form.substituted(during)

        return after

    def _at(self, rule: Rule, state: Callable[[str], Affine], acting: Values) -> Formula:
        step = self.rules.modules[0].step

        def read(key: str) -> Affine:
            form, tag = split_key(key)
            if tag not in acting:
                return state(tag)
            old = symbol(f"prev({tag})")
            if form == "rate":
                return acting[tag].plus(old.times(_MINUS)).times(1 / step)
            return old if form == "prev" else acting[tag]

        return mapped(rule.formula, lambda form: form.substituted(read))

    def _worst(self, formula: Formula) -> Formula:
        """The formula for the worst of everything that nobody chooses, atom by atom."""
        match formula:
            case Atom(form, strict):
                return self._worst_atom(form, strict=strict)
            case Every(parts):
                return Every(tuple(map(self._worst, parts)))
            case _:
                return Some(tuple(map(self._worst, formula.parts)))

    def _worst_atom(self, form: Form, *, strict: bool) -> Formula:
        assert not isinstance(form, Quadratic)  # noqa: S101  rules with products are left out
        bounds: list[list[Affine]] = []  # of each term, forms of which the least is its greatest value
        for name, factor in form.terms.items():
            bounds.append([end.times(factor) for end in self._ends(name, upper=factor > 0)])
        ways = itertools.product(*bounds)
        return Some(tuple(Atom(_sum(form.constant, way), strict) for way in ways))

    def _ends(self, name: str, *, upper: bool) -> list[Affine]:
        """Bounds on one side of what a symbol may be; the tightest of them counts."""
        if name in self.rules.disturbances:
            return [Affine(self.rules.disturbances[name][1 if upper else 0])]
        drifting = name.startswith("drift ")
        variable = self._measured(name.removeprefix("drift "))
        if variable is None:
            return [symbol(name)]
        reach = variable.uncertainty
        if drifting:
            within = variable.physical or (None if variable.max_rate is not None else variable.roams)
            found = [Affine(within[1 if upper else 0])] if within is not None else []
            if variable.max_rate is None:
                return found
            reach += variable.max_rate * self.rules.modules[0].step
        else:
            found = _limits(variable, upper=upper) if variable.tag not in self.rules.forms else []
        return [symbol(str(variable.tag)).plus(Affine(reach if upper else -reach)), *found]

    def _measured(self, tag: str) -> Variable | None:
        return next((v for v in self.rules.measured if v.tag == tag), None)


def _limits(variable: Variable, *, upper: bool) -> list[Affine]:
    within: Interval | None = variable.physical
    return [Affine(within[1 if upper else 0])] if within is not None else []


def _sum(constant: Fraction, parts: tuple[Affine, ...]) -> Affine:
    total = Affine(constant)
    for part in parts:
        total = total.plus(part)
    return total


def _choice(variable: Variable) -> Formula:
    value = symbol(f"new {variable.tag}")
    values = variable.whole
    if values is not None and len(values) <= _MOST_VALUES:
        return one_of(value, map(Fraction, values))
    return between(value, *variable.range)
