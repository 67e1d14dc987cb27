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

from gateway.solver.affine import Affine, Atom, Every, Form, Formula, atoms
from gateway.solver.condense import Plan
from gateway.solver.interval import SCALE, Box
from gateway.solver.ruleset import RuleSet
from gateway.solver.terms import Answer, Bounds, Budget, Query, Terms, answer, solver

_LONGEST_FACTOR = 2**30  # Z3 keeps whole numbers of 32 bits in place
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
    low, high = variable.range
    if kind == "rate":
        return max(Fraction(1), (high - low) / plan.step)
    return max(Fraction(1), abs(low), abs(high), *(map(abs, variable.physical or ())))


class Hull:
    """The rules of a plan, each a hair stronger, in one solver; `rules` are those without products."""

    def __init__(self, context: z3.Context, plan: Plan, room: Mapping[str, int], budget: Budget) -> None:
        self._context, self._room, self._terms = context, room, Terms(context)
        self._names = {name: z3.Real(f"{name} in 1e-12", context) for name in plan.symbols}
        self._solver = solver(context, budget)
        self._bounds = Bounds(context, self._solver, whole=True)
        self._goals: dict[int, z3.BoolRef] = {}
        self.rules = frozenset(duty.rule for duty in plan.duties) - _of_products(plan)
        for index in sorted(self.rules):
            goal = z3.Bool(f"hull violates {index}", context)
            kept = [self._formula(d.formula) for d in plan.duties if d.rule == index]
            self._solver.add(z3.Implies(goal, z3.Not(z3.And(kept))))
            self._goals[index] = goal
        self._others = {index: z3.Not(goal) for index, goal in self._goals.items()}
        self._any = z3.Bool("hull violates any", context)
        self._solver.add(z3.Implies(self._any, z3.Or(list(self._goals.values()))))

    def push(self) -> None:
        """Begin a level of premises; Z3 takes in those before, which is most of the work."""
        self._solver.push()

    def state(self, box: Box, choices: Choices) -> None:
        """State premises on this level."""
        for name, (low, high) in box.items():
            self._bounds.state(self._names[name], low, high)
        for name, values in choices.items():
            if name in self._names and len(values) > 1:
                ends = (z3.RealVal(str(value * SCALE), self._context) for value in values)
                self._solver.add(z3.Or([self._names[name] == end for end in ends]))

    def pop(self) -> None:
        """Take the newest premises away."""
        self._solver.pop()

    def clear(self) -> None:
        """Take all premises away, also those that were being stated when something failed."""
        self._solver.pop(self._solver.num_scopes())

    def reaches(self, box: Box) -> bool:
        """Whether a box is small enough for the rows' rounding to cover."""
        return all(-self._room[name] <= low and high <= self._room[name] for name, (low, high) in box.items())

    def keeps(self, rules: Collection[int]) -> bool:
        """True when none of `rules` that it has can be violated under the premises; False says nothing."""
        others = [goal for index, goal in self._others.items() if index not in rules]
        return answer(self._solver.check(self._any, *others)) is Answer.UNSAT

    def _formula(self, formula: Formula) -> z3.BoolRef:
        match formula:
            case Atom(form, strict):
                return self._terms.negative(self._row(form), strict=strict)
            case Every(parts):
                return z3.And([z3.BoolVal(val=True, ctx=self._context), *map(self._formula, parts)])
            case _:
                none = z3.BoolVal(val=False, ctx=self._context)
                return z3.Or([none, *map(self._formula, formula.parts)])

    def _row(self, form: Form) -> z3.ArithRef:
        """At least a positive multiple of the form wherever no symbol lies beyond its room."""
        assert isinstance(form, Affine), "`rules` leaves products out"  # noqa: S101  an invariant
        constant, factors = whole(form, self._room)
        parts = ((Fraction(factor), self._names[name]) for name, factor in factors.items() if factor)
        return self._terms.total(constant, parts)


def _of_products(plan: Plan) -> frozenset[int]:
    """Rules that a row of whole factors cannot say."""
    return frozenset(
        duty.rule
        for duty in plan.duties
        if not all(isinstance(atom.form, Affine) for atom in atoms(duty.formula))
    )


def whole(form: Affine, room: Mapping[str, int]) -> tuple[Fraction, dict[str, int]]:
    """Constant and whole factors for symbols in units of 1 / `SCALE`, rounded so that no value is less."""
    if not form.terms:
        return form.constant, {}
    factor = lcm(*(c.denominator for c in form.terms.values()))
    factor = min(factor, max(1, int(_LONGEST_FACTOR / max(map(abs, form.terms.values())))))
    factors = {name: round(c * factor) for name, c in form.terms.items()}
    error = sum((abs(c * factor - factors[n]) * room[n] for n, c in form.terms.items()), Fraction(0))
    constant = form.constant * factor * SCALE + error
    return (Fraction(ceil(constant)) if error else constant), factors


class Asked:
    """A plan's rules put to Z3: first the hull, then, where that does not settle it, the exact rows.

    Premises are stated in two parts: those that no proposal changes, and those of one proposal.
    """

    def __init__(self, rules: RuleSet, plan: Plan, context: z3.Context, budget: Budget) -> None:
        self._hull = Hull(context, plan, reach(rules, plan), budget)
        self._exact = Query(context, plan, budget)
        self._common: Box = {}
        self._own: Box = {}
        self._whole: Box = {}
        self._choices: Choices = {}
        self._within = self._fresh = self._opened = False

    def stage(self, box: Box) -> None:
        """State what holds for every proposal, in place of what was stated before."""
        self._hull.clear()
        self._common = box
        self._within = self._hull.reaches(box)
        self._hull.push()
        self._hull.state(box, {})
        self._hull.push()  # here, so that no proposal waits for it
        self._fresh = True

    def open(self, box: Box, choices: Choices) -> bool:
        """State the premises of one proposal, and exact alternatives for symbols that have few values.

        False when they cannot be met (S3). A point of the box shows that they can: no symbol binds another.
        """
        self._own, self._whole, self._choices = box, {**self._common, **box}, choices
        if not self._fresh:
            self._hull.push()
        self._fresh = False
        self._hull.state(box, choices)
        return all(low <= high for low, high in self._whole.values()) and all(
            any(low <= value * SCALE <= high for value in values) for (low, high), values in self._several()
        )

    def close(self) -> None:
        """Take the proposal's premises away."""
        self._hull.pop()
        if self._opened:
            self._opened = False
            self._exact.close()

    def any_of(self, rules: Collection[int]) -> Answer:
        """Whether any of `rules` can be violated under the premises."""
        if self._within and self._hull.reaches(self._own) and self._hull.keeps(rules):
            left = [index for index in rules if index not in self._hull.rules]
            return self._exactly().any_of(left) if left else Answer.UNSAT
        return self._exactly().any_of(rules)

    def one(self, rule: int) -> Answer:
        """Whether one rule can be violated under the premises."""
        return self._exactly().one(rule)

    def witness(self) -> dict[str, Fraction]:
        """The assignment behind the last `sat`."""
        return self._exact.witness()

    def _exactly(self) -> Query:
        if not self._opened:
            self._opened = True  # also where stating them fails: what was stated is taken away again
            self._exact.open(self._whole, self._choices)
        return self._exact

    def _several(self) -> list[tuple[tuple[int, int], tuple[Fraction, ...]]]:
        return [(self._whole[n], v) for n, v in self._choices.items() if len(v) > 1 and n in self._whole]
