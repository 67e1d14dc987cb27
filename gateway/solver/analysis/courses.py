"""Where the backup takes a rule in the worst case, step by step, as bounds that a safe set can be made of.

From a state `x` and values in force `a`, with the last values acting for the PLC's patience before the backup
does: the rule's form after k steps is at most `row_k x + sum of convex functions of each action + constant`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from gateway.core.tag import TagId
from gateway.solver.checking.condense import LEASE_S
from gateway.solver.checking.way import SLOWEST_RAMP
from gateway.solver.language.affine import Affine, Atom, Every, Formula, Quadratic, Some, symbols
from gateway.solver.modules.module import Hold, Move, Ramp, Variable
from gateway.solver.rules.ruleset import RuleSet

Convex = Callable[[Fraction], Fraction]

_MOST_CLAUSES = 64


class UnboundedError(Exception):
    """Nothing bounds the worst case; the text says what, for people."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One state condition that must hold unless one of the guards, which speak of actions alone, does."""

    form: Affine  # at most 0
    guards: tuple[Atom, ...]  # each affine in one action


@dataclass(frozen=True, slots=True)
class Bound:
    """The form of a clause after some steps: `row` over the state, a convex function of each action."""

    row: Mapping[str, Fraction]
    actions: Mapping[str, Convex]
    constant: Fraction


def clauses(formula: Formula) -> tuple[tuple[Atom, ...], ...] | None:
    """All of which one atom must hold; None where there are too many."""
    match formula:
        case Atom():
            return ((formula,),)
        case Every(parts):
            found = [clauses(part) for part in parts]
            if any(f is None for f in found):
                return None
            return tuple(c for f in found for c in f or ())
        case Some(parts):
            ways: tuple[tuple[Atom, ...], ...] = ((),)
            for part in parts:
                more = clauses(part)
                if more is None or len(ways) * len(more) > _MOST_CLAUSES:
                    return None
                ways = tuple((*way, *other) for way in ways for other in more)
            return ways
    return None


def clause(atoms: Sequence[Atom], rules: RuleSet) -> Clause | None:
    """One state atom and its guards; None where it has another shape."""
    actions = {str(v.tag) for v in rules.actions}
    state = [atom for atom in atoms if not symbols(atom) <= actions]
    if len(state) != 1 or isinstance(state[0].form, Quadratic):
        return None
    guards = tuple(atom for atom in atoms if atom is not state[0])
    if any(isinstance(guard.form, Quadratic) or len(guard.form.symbols) != 1 for guard in guards):
        return None
    return Clause(state[0].form, guards)


class Course:
    """The worst case of one clause under certain moves of the backup."""

    def __init__(self, rules: RuleSet, form: Affine, moves: Mapping[str, Sequence[Move]]) -> None:
        self._rules, self._form = rules, form
        self._step = rules.modules[0].step
        self._hold = ceil(LEASE_S / self._step) + 1  # a fallback may also act late in its own first step
        self._moves = moves
        self._actions = {str(v.tag): v for v in rules.actions}
        self._row = {tag: f for tag, f in form.terms.items() if tag in rules.forms}
        self._lags: list[Affine] = []  # what each step adds: over actions, disturbances and drifting values
        self._rows = [dict(self._row)]

    @property
    def settled(self) -> int:
        """Steps after which every ramp has arrived from anywhere."""
        longest = 0
        for tag, moves in self._moves.items():
            low, high = self._actions[tag].range
            for move in moves:
                if isinstance(move, Ramp):
                    longest = max(longest, ceil((high - low) / (move.rate * self._step * SLOWEST_RAMP)))
        return self._hold + longest + 1

    def knots(self, tag: str, most: int) -> tuple[Fraction, ...]:
        """Values of an action between which its part of a bound is a straight line, or lies below one."""
        variable = self._actions[tag]
        low, high = variable.range
        if variable.whole is not None:
            return tuple(Fraction(v) for v in variable.whole) if len(variable.whole) <= most else (low, high)
        found = {low, high}
        for move in self._moves[tag]:
            if isinstance(move, Ramp):
                each = move.rate * self._step * SLOWEST_RAMP
                count = ceil((high - low) / each)
                found |= {move.target + s * k * each for k in range(count + 1) for s in (-1, 1)}
        inside = sorted(k for k in found if low <= k <= high)
        if len(inside) <= most:
            return tuple(inside)
        return tuple(inside[i * (len(inside) - 1) // (most - 1)] for i in range(most))

    def bound(self, steps: int) -> Bound:
        """The form after so many steps; raises `UnboundedError`."""
        while len(self._lags) < steps:
            self._one_more()
        parts: dict[str, list[tuple[Fraction, int, bool]]] = {}
        constant = self._form.constant + self._direct(parts, steps)
        for lag in range(steps):
            form = self._lags[lag]
            constant += form.constant
            for name, factor in form.terms.items():
                if name in self._actions:
                    parts.setdefault(name, []).append((factor, steps - 1 - lag, False))
                else:
                    constant += self._most(name, factor)
        actions = {tag: self._summed(tag, terms) for tag, terms in parts.items()}
        return Bound(self._rows[steps], actions, constant)

    def until(self, atom: Atom, steps: int) -> Fraction | None:
        """From which value of a guard's one action on the guard may not hold after so many steps.

        None: it certainly holds, from every value.
        """
        assert isinstance(atom.form, Affine)  # noqa: S101  guards are affine
        ((tag, factor),) = atom.form.terms.items()
        low, high = self._actions[tag].range
        worst = self._summed(tag, [(factor, steps, True)])

        def fails(value: Fraction) -> bool:
            left = atom.form.constant + worst(value)  # type: ignore[union-attr]
            return left >= 0 if atom.strict else left > 0

        ends = [value for value in self.knots(tag, 10**6) if fails(value)]
        if not ends:
            return None
        edge = min(ends) if factor > 0 else max(ends)
        inside = [k for k in self.knots(tag, 10**6) if (k < edge if factor > 0 else k > edge)]
        if not inside:
            return low if factor > 0 else high
        return max(inside) if factor > 0 else min(inside)

    def _one_more(self) -> None:
        row = self._rows[-1]
        total = Affine()
        for tag, factor in row.items():
            total = total.plus(self._rules.forms[tag].times(factor))
        self._rows.append({t: f for t, f in total.terms.items() if t in self._rules.forms})
        rest = {n: f for n, f in total.terms.items() if n not in self._rules.forms}
        self._lags.append(Affine(total.constant, rest))

    def _direct(self, parts: dict[str, list[tuple[Fraction, int, bool]]], steps: int) -> Fraction:
        """What the form says of actions and drifting values itself."""
        constant = Fraction(0)
        for name, factor in self._form.terms.items():
            if name in self._actions:
                parts.setdefault(name, []).append((factor, steps, True))
            elif name not in self._rules.forms:
                constant += self._most(name, factor)
        return constant

    def _most(self, name: str, factor: Fraction) -> Fraction:
        """The greatest a disturbance or a value without dynamics can add."""
        band = self._rules.disturbances.get(name)
        if band is None:
            variable = self._rules.variables[TagId(name)]
            band = variable.physical or (None if variable.max_rate is not None else variable.roams)
            if band is None:
                msg = f"nothing says how far `{variable.name}` may go: declare its `physical` limits"
                raise UnboundedError(msg)
        return max(factor * end for end in band)

    def _summed(self, tag: str, terms: Sequence[tuple[Fraction, int, bool]]) -> Convex:
        """Factor, and a step during which or an instant (`True`) at which the action counts."""
        variable = self._actions[tag]

        def value(at: Fraction) -> Fraction:
            total = Fraction(0)
            for factor, when, instant in terms:
                total += factor * self._farthest(variable, at, when, instant=instant, upward=factor > 0)
            return total

        return value

    def _farthest(
        self, variable: Variable, at: Fraction, when: int, *, instant: bool, upward: bool
    ) -> Fraction:
        """The greatest or least value an action may have then; convex or concave in `at`, as it must be."""
        moved = (when - 1 if instant else when) - self._hold + 1  # moves of the backup that are surely done
        ends = [self._after(move, at, moved, upward=upward) for move in self._moves[str(variable.tag)]]
        return max(ends) if upward else min(ends)

    def _after(self, move: Move, at: Fraction, moved: int, *, upward: bool) -> Fraction:
        pick = max if upward else min
        match move:
            case Hold():
                return at
            case Ramp(target, rate):
                done = max(0, moved) * rate * self._step * SLOWEST_RAMP
                return pick(target, at - done if upward else at + done)
            case _:
                return move if moved > 0 else pick(move, at)


def lines(function: Convex, knots: Sequence[Fraction]) -> Iterator[tuple[Fraction, Fraction]]:
    """Slope and constant of a convex function's chords: their greatest lies above it between the knots."""
    if len(knots) == 1:
        yield Fraction(0), function(knots[0])
    for first, second in itertools.pairwise(knots):
        low, high = function(first), function(second)
        slope = (high - low) / (second - first)
        yield slope, low - slope * first
