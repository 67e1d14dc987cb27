"""A plan's exact rows in one solver: the last word on whether a rule can be violated, and a witness."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction

import z3
from z3 import z3core

from gateway.solver.checking.condense import Plan
from gateway.solver.checking.shelf import Part, Shelf
from gateway.solver.checking.terms import Answer, Bounds, Budget, asked, fraction, solver, state
from gateway.solver.rules.interval import SCALE, Box

_KEPT = {-1: Answer.SAT, 0: Answer.UNKNOWN, 1: Answer.UNSAT}  # `Z3_lbool` of what a duty demands


class Query:
    """One plan in one solver. Each call adds one check's premises and takes them away again."""

    def __init__(self, shelf: Shelf, plan: Plan, budget: Budget) -> None:
        self.terms = shelf.terms
        self.parts = shelf.parts(plan)
        parts = {index: part for index, part in enumerate(self.parts) if part.demands}
        self._solver = solver(shelf.context, budget, products=any(part.products for part in parts.values()))
        self._bounds = Bounds(shelf.context, self._solver)
        self.kept = {index: self._exact(part) for index, part in parts.items()}  # everything a rule demands
        self._goals = {index: z3.Bool(f"violates {index}", shelf.context) for index in parts}
        for index, goal in self._goals.items():
            missed = self.terms.opposite(self.kept[index])
            state(self._solver, self.terms.only_if(goal, missed))
        self._others = {index: self.terms.opposite(goal) for index, goal in self._goals.items()}
        self._any = z3.Bool("violates any", shelf.context)
        state(self._solver, self.terms.only_if(self._any, self.terms.some([*self._goals.values()])))
        self._within: Box = {}

    def _exact(self, part: Part) -> z3.BoolRef:
        if not part.exact:
            part.exact = tuple(self.terms.formula(formula) for formula in part.demands)
        return self.terms.every(part.exact)

    def open(self, box: Box, choices: Mapping[str, tuple[Fraction, ...]]) -> bool:
        """State the premises of one check: a box, and exact alternatives for values in force.

        False when they cannot be met (S3). A point of the box shows that they can: no symbol binds another.
        """
        self._solver.push()
        self._within = box
        possible = all(low <= high for low, high in box.values())
        for name, (low, high) in box.items():
            self._bounds.state(self.terms.name(name), low, high)
        for name, values in choices.items():
            if len(values) > 1 and name in box:
                low, high = box[name]
                possible = possible and any(low <= value * SCALE <= high for value in values)
                constant = self.terms.name(name)
                self._solver.add(z3.Or([constant == self.terms.number(v) for v in values]))
        return possible

    def close(self) -> None:
        """Take the premises away."""
        self._solver.pop()

    def any_of(self, rules: Collection[int]) -> Answer:
        """Whether any of `rules` can be violated under the premises, in one query."""
        others = [goal for index, goal in self._others.items() if index not in rules]
        return asked(self._solver, [self._any, *others]) if rules else Answer.UNSAT

    def one(self, rule: int) -> Answer:
        """Whether one rule can be violated under the premises."""
        return asked(self._solver, [self._goals[rule]])

    def at(self, rule: int, duty: int, point: Box) -> Answer:
        """Whether one duty of a rule is violated at a point, a box without extent: `sat` where it is.

        Nothing is searched for: with every symbol a number Z3 works it out.
        """
        part = self.parts[rule]
        demand = part.exact[part.demand_of[duty]]
        context = self.terms.context
        symbols = (z3.Ast * len(point))(*(self.terms.name(name).as_ast() for name in point))
        values = (z3.Ast * len(point))(*(self._bounds.number(end) for end, _ in point.values()))
        there = z3core.Z3_substitute(context.ref(), demand.as_ast(), len(point), symbols, values)
        placed = z3.BoolRef(there, context)  # they hold what they stand for
        kept = z3.BoolRef(z3core.Z3_simplify(context.ref(), placed.ast), context)
        for value in values:
            z3core.Z3_dec_ref(context.ref(), value)
        return _KEPT[z3core.Z3_get_bool_value(context.ref(), kept.ast)]

    def warm(self, box: Box) -> None:
        """Have Z3 take in the rules before the first check needs them; `box` is any."""
        self.open(box, {})
        self.close()

    def witness(self) -> dict[str, Fraction]:
        """The assignment behind the last `sat`, for the symbols that have premises."""
        model = self._solver.model()
        return {
            name: fraction(model.eval(self.terms.name(name), model_completion=True)) for name in self._within
        }
