"""A hull of a plan's rules in whole numbers, which Z3 decides by bound propagation alone.

Z3's simplex passes over rows with long fractions when it propagates bounds, and then searches. A hull has
short whole factors: each row a hair stronger than the rule, by no more than rounding its factors can do. What
cannot violate the hull cannot violate the rule; where it might, the exact rows are asked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction
from math import ceil, lcm

import z3

from gateway.solver.checking.condense import Plan
from gateway.solver.checking.outline import Outline
from gateway.solver.checking.query import Query
from gateway.solver.checking.shelf import Part, Shelf
from gateway.solver.checking.terms import Answer, Bounds, Budget, asked, solver, state
from gateway.solver.language.affine import Affine, Form
from gateway.solver.rules.interval import SCALE, Box
from gateway.solver.rules.ruleset import RuleSet

_LONGEST_FACTOR = 2**30  # Z3 keeps whole numbers of 32 bits in place
_FEW = 3  # rules
_ROOM = 4  # times the declared range: beyond it the hull does not speak
_UNDECLARED = 2**20  # where no range is declared

Choices = Mapping[str, tuple[Fraction, ...]]


def reach(rules: RuleSet, plan: Plan) -> dict[str, int]:
    """How far each symbol may lie from zero for the hull to hold, in units of 1 / `SCALE`."""
    return {name: ceil(_ROOM * _declared(rules, plan, name) * SCALE) for name in plan.symbols}


def _declared(rules: RuleSet, plan: Plan, name: str) -> Fraction:
    kind, _, rest = name.partition(":")
    if rest in rules.disturbances:
        return max(Fraction(1), *map(abs, rules.disturbances[rest]))
    variable = next((v for tag, v in rules.variables.items() if tag == rest), None)
    if variable is None or kind in ("held", "age"):
        return Fraction(_UNDECLARED)
    low, high = variable.roams
    if kind == "rate":
        return max(Fraction(1), (high - low) / plan.step)
    return max(Fraction(1), abs(low), abs(high), *(map(abs, variable.physical or ())))


class Hull:
    """The rules of a plan, each a hair stronger, in one solver; `rules` are those without products."""

    def __init__(self, shelf: Shelf, plan: Plan, room: Mapping[str, int], budget: Budget) -> None:
        self._context, self._room, self._terms = shelf.context, room, shelf.terms
        self._names = {name: self._terms.name(f"{name} in 1e-12") for name in plan.symbols}
        self._solver = solver(shelf.context, budget, long=True)
        self._bounds = Bounds(shelf.context, self._solver, whole=True)
        self._parts = shelf.parts(plan)
        parts = enumerate(self._parts)
        kept = {index: self._kept(part) for index, part in parts if part.demands and not part.products}
        self.rules = frozenset(kept)
        self._goals = {index: z3.Bool(f"hull violates {index}", shelf.context) for index in kept}
        for index, goal in self._goals.items():
            state(self._solver, self._terms.only_if(goal, self._terms.opposite(kept[index])))
        self._others = {index: self._terms.opposite(goal) for index, goal in self._goals.items()}
        self._any = z3.Bool("hull violates any", shelf.context)
        state(self._solver, self._terms.only_if(self._any, self._terms.some([*self._goals.values()])))

    def push(self) -> None:
        """Begin a level of premises; Z3 takes in those before, which is most of the work."""
        self._solver.push()

    def state(self, box: Box, choices: Choices) -> None:
        """State premises on this level; alternatives for what the box has."""
        for name, (low, high) in box.items():
            self._bounds.state(self._names[name], low, high)
        for name, values in choices.items():
            if name in box and len(values) > 1:
                ends = (z3.RealVal(str(value * SCALE), self._context) for value in values)
                self._solver.add(z3.Or([self._names[name] == end for end in ends]))

    def pop(self) -> None:
        """Take the newest premises away."""
        self._solver.pop()

    def warm(self) -> None:
        """Have Z3 take in the rules before the first check needs them."""
        self.push()
        self.pop()

    def reaches(self, box: Box) -> bool:
        """Whether a box is small enough for the rows' rounding to cover."""
        return all(-self._room[name] <= low and high <= self._room[name] for name, (low, high) in box.items())

    def keeps(self, rules: Collection[int]) -> bool:
        """True when none of `rules` that it has can be violated under the premises; False says nothing."""
        if len(rules) <= _FEW:  # one by one: what is not asked about need not be looked at
            goals = [self._goals[index] for index in rules if index in self._goals]
            return all(asked(self._solver, [goal]) is Answer.UNSAT for goal in goals)
        others = [goal for index, goal in self._others.items() if index not in rules]
        return asked(self._solver, [self._any, *others]) is Answer.UNSAT

    def _kept(self, part: Part) -> z3.BoolRef:
        if part.hull is None:
            part.hull = self._terms.every([self._terms.said(f, self._row) for f in part.demands])
        return part.hull

    def _row(self, form: Form) -> z3.ArithRef:
        """At least a positive multiple of the form wherever no symbol lies beyond its room."""
        assert isinstance(form, Affine), "`rules` leaves products out"  # noqa: S101  an invariant
        constant, factors = whole(form, self._room)
        parts = ((factor, self._names[name]) for name, factor in factors.items() if factor)
        return self._terms.total(constant, parts)


def whole(form: Affine, room: Mapping[str, int]) -> tuple[Fraction, dict[str, int]]:
    """Constant and whole factors for symbols in units of 1 / `SCALE`, rounded so that no value is less."""
    if not form.terms:
        return form.constant, {}
    ratios = {name: c.as_integer_ratio() for name, c in form.terms.items()}
    factor = lcm(*(below for _, below in ratios.values()))
    factor = min(factor, max(1, int(_LONGEST_FACTOR / _largest(ratios.values()))))
    factors: dict[str, int] = {}
    error = 0
    for name, (above, below) in ratios.items():
        factors[name] = (2 * above * factor + below) // (2 * below)
        off = abs(above * factor - factors[name] * below)
        error -= -off * room[name] // below  # rounded up
    constant = form.constant * factor * SCALE
    return (Fraction(ceil(constant + error)) if error else constant), factors


def _largest(ratios: Collection[tuple[int, int]]) -> Fraction:
    """The greatest absolute value; most are told apart by their lengths, which is many times faster."""
    sizes = [abs(above).bit_length() - below.bit_length() for above, below in ratios]
    near = max(sizes) - 1
    return max(Fraction(abs(a), b) for (a, b), size in zip(ratios, sizes, strict=True) if size >= near)


class Asked:
    """A plan's rules put to Z3: their outlines, then, where that does not settle it, hull and exact rows.

    Premises are stated in two parts: those that no proposal changes, and those of one proposal. The closer
    questions are about few rules, and only the premises of these are stated for them.
    """

    def __init__(self, rules: RuleSet, plan: Plan, shelf: Shelf, budget: Budget) -> None:
        self._exact = Query(shelf, plan, budget)
        self.parts = self._exact.parts  # for as long as this lives, the next set finds them
        self._outline = Outline(rules, plan, shelf, self._exact, budget)
        self._hull = Hull(shelf, plan, reach(rules, plan), budget)
        self._symbols = {i: part.symbols for i, part in enumerate(self._exact.parts) if part.demands}
        self._exact.warm({})
        self._hull.warm()
        self._common: Box = {}
        self._box: Box = {}
        self._choices: Choices = {}
        self._opened = False

    def stage(self, box: Box) -> None:
        """State what holds for every proposal, in place of what was stated before."""
        self._common = box
        self._outline.stage(box)

    def open(self, box: Box, choices: Choices) -> bool:
        """State the premises of one proposal, and exact alternatives for symbols that have few values.

        False when they cannot be met (S3). A point of the box shows that they can: no symbol binds another.
        """
        self._box, self._choices = {**self._common, **box}, choices
        self._outline.open(box)
        return all(low <= high for low, high in self._box.values()) and all(
            any(low <= value * SCALE <= high for value in values) for (low, high), values in self._several()
        )

    def close(self) -> None:
        """Take the proposal's premises away."""
        self._outline.close()
        self._shut()

    def any_of(self, rules: Collection[int]) -> Answer:
        """Whether any of `rules` can be violated under the premises."""
        left = self._outline.unsettled(rules, self._box)
        if not left:
            return Answer.UNSAT
        settled = self._settled([index for index in left if index in self._hull.rules])
        left = [index for index in left if index not in settled]
        if not left:
            return Answer.UNSAT
        return self._exactly(self._of(left)).any_of(left)

    def one(self, rule: int) -> Answer:
        """Whether one rule can be violated under the premises."""
        return self._exactly(self._of([rule])).one(rule)

    def at(self, rule: int, duty: int, point: Mapping[str, Fraction]) -> Answer:
        """Whether one duty of a rule, by its number there, is violated at a point: `sat` where it is."""
        there: dict[str, tuple[int, int]] = {}
        for name in self.parts[rule].scaled[duty].symbols:
            above, below = point[name].as_integer_ratio()
            end, rest = divmod(above * SCALE, below)
            assert not rest, "a corner is made of ends"  # noqa: S101  an invariant
            there[name] = end, end
        return self._exact.at(rule, duty, there)

    def may_be(self, point: Mapping[str, Fraction]) -> bool:
        """Whether each symbol with a few exact values has one of them at a point, and none in between."""
        several = ((name, values) for name, values in self._choices.items() if len(values) > 1)
        return all(point[name] in values for name, values in several if name in point)

    def witness(self) -> dict[str, Fraction]:
        """The assignment behind the last `sat`; symbols that it leaves out lie in the middle."""
        found = {name: Fraction((low + high) // 2, SCALE) for name, (low, high) in self._box.items()}
        found.update((name, values[0]) for name, values in self._choices.items() if name in found)
        return {**found, **self._exact.witness()}

    def _settled(self, rules: Collection[int]) -> frozenset[int]:
        """`rules` where the hull shows that none can be violated, else none."""
        box = self._of(rules)
        if not rules or not self._hull.reaches(box):
            return frozenset()
        self._hull.push()
        try:
            self._hull.state(box, self._choices)
            return frozenset(rules) if self._hull.keeps(rules) else frozenset()
        finally:
            self._hull.pop()

    def _of(self, rules: Collection[int]) -> Box:
        """The premises that some rules are about."""
        names = frozenset[str]().union(*(self._symbols[index] for index in rules))
        return {name: self._box[name] for name in sorted(names)}

    def _exactly(self, box: Box) -> Query:
        self._shut()
        self._opened = True  # also where stating them fails: what was stated is taken away again
        self._exact.open(box, {name: values for name, values in self._choices.items() if name in box})
        return self._exact

    def _shut(self) -> None:
        if self._opened:
            self._opened = False
            self._exact.close()

    def _several(self) -> list[tuple[tuple[int, int], tuple[Fraction, ...]]]:
        return [(self._box[n], v) for n, v in self._choices.items() if len(v) > 1 and n in self._box]
