"""Plans as Z3 terms, built once; one query for each decision, one more for each rule that may be violated.

Traps that this file keeps out: numbers go in as texts of exact fractions, never as floats; there is no
integer sort, so nothing is rounded; one context for each worker; `SimpleSolver`, whose time-out is kept.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction

import z3

from gateway.solver.affine import Affine, Atom, Every, Formula
from gateway.solver.condense import Plan
from gateway.solver.interval import SCALE, Box


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one query: work units first, then time. The process is killed after both."""

    rlimit: int = 2_000_000
    timeout_ms: int = 100


class Answer(enum.Enum):
    """What Z3 says."""

    UNSAT = "unsat"
    SAT = "sat"
    UNKNOWN = "unknown"


class Terms:
    """Terms over named reals in one context."""

    def __init__(self, context: z3.Context) -> None:
        self.context = context
        self._names: dict[str, z3.ArithRef] = {}
        self._true = z3.BoolVal(val=True, ctx=context)

    def name(self, name: str) -> z3.ArithRef:
        """The constant of a symbol."""
        if name not in self._names:
            self._names[name] = z3.Real(name, self.context)
        return self._names[name]

    def number(self, value: Fraction) -> z3.RatNumRef:
        """An exact number, by its text."""
        return z3.RealVal(f"{value.numerator}/{value.denominator}", self.context)

    def form(self, form: Affine) -> z3.ArithRef:
        """An affine form."""
        parts = [self.number(c) * self.name(n) for n, c in form.terms.items()]
        return z3.Sum([self.number(form.constant), *parts])

    def formula(self, formula: Formula) -> z3.BoolRef:
        """A truth value."""
        match formula:
            case Atom(form, strict):
                left = self.form(form)
                return left < 0 if strict else left <= 0
            case Every(parts):
                return z3.And([self._true, *(self.formula(p) for p in parts)])
            case _:
                return z3.Or([z3.Not(self._true), *(self.formula(p) for p in formula.parts)])


def solver(context: z3.Context, budget: Budget) -> z3.Solver:
    """A solver that keeps its budget."""
    made = z3.SimpleSolver(ctx=context)
    made.set("timeout", budget.timeout_ms)
    made.set("rlimit", budget.rlimit)
    return made


def answer(result: z3.CheckSatResult) -> Answer:
    """Z3's three answers as ours."""
    return Answer(str(result))


def fraction(value: z3.ExprRef) -> Fraction:
    """A model's number, exactly."""
    return Fraction(value.numerator_as_long(), value.denominator_as_long())


class Query:
    """One plan in one solver. Each call adds one check's premises and takes them away again."""

    def __init__(self, context: z3.Context, plan: Plan, budget: Budget) -> None:
        self._plan, self._terms = plan, Terms(context)
        self._solver = solver(context, budget)
        self._goals: dict[int, z3.BoolRef] = {}
        for index in sorted({duty.rule for duty in plan.duties}):
            goal = z3.Bool(f"violates {index}", context)
            kept = [self._terms.formula(d.formula) for d in plan.duties if d.rule == index]
            self._solver.add(z3.Implies(goal, z3.Not(z3.And(kept))))
            self._goals[index] = goal
        self._any = z3.Bool("violates any", context)
        self._solver.add(z3.Implies(self._any, z3.Or(list(self._goals.values()))))

    def open(self, box: Box, choices: Mapping[str, tuple[Fraction, ...]]) -> None:
        """State the premises of one check: a box, and exact alternatives for values in force."""
        self._solver.push()
        context = self._terms.context
        for name, (low, high) in box.items():
            constant = self._terms.name(name)
            if low == high:
                self._solver.add(constant == z3.RealVal(f"{low}/{SCALE}", context))
            else:
                self._solver.add(
                    constant >= z3.RealVal(f"{low}/{SCALE}", context),
                    constant <= z3.RealVal(f"{high}/{SCALE}", context),
                )
        for name, values in choices.items():
            if len(values) > 1 and name in box:
                constant = self._terms.name(name)
                self._solver.add(z3.Or([constant == self._terms.number(v) for v in values]))

    def close(self) -> None:
        """Take the premises away."""
        self._solver.pop()

    def satisfiable(self) -> Answer:
        """Whether the premises can be met at all (S3)."""
        return answer(self._solver.check())

    def any_of(self, rules: Collection[int]) -> Answer:
        """Whether any of `rules` can be violated under the premises, in one query."""
        others = [z3.Not(goal) for index, goal in self._goals.items() if index not in rules]
        return answer(self._solver.check(self._any, *others)) if rules else Answer.UNSAT

    def one(self, rule: int) -> Answer:
        """Whether one rule can be violated under the premises."""
        return answer(self._solver.check(self._goals[rule]))

    def witness(self) -> dict[str, Fraction]:
        """The assignment behind the last `sat`."""
        model = self._solver.model()
        return {
            name: fraction(model.eval(self._terms.name(name), model_completion=True))
            for name in self._plan.symbols
        }
