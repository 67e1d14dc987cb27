"""Plans as Z3 terms, built once; one query for each decision, one more for each rule that may be violated.

Traps that this file keeps out: numbers go in as texts of exact fractions, never as floats; there is no
integer sort, so nothing is rounded; one context for each worker; `SimpleSolver`, whose time-out is kept.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import z3
from z3 import z3core

from gateway.solver.affine import Atom, Every, Form, Formula, Quadratic, atoms
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
    """Terms over named reals in one context, sums through the C interface: a plan has thousands of them."""

    def __init__(self, context: z3.Context) -> None:
        self.context = context
        self._names: dict[str, z3.ArithRef] = {}
        self._numbers: dict[Fraction, z3.RatNumRef] = {}
        self._true = z3.BoolVal(val=True, ctx=context)

    def name(self, name: str) -> z3.ArithRef:
        """The constant of a symbol."""
        if name not in self._names:
            self._names[name] = z3.Real(name, self.context)
        return self._names[name]

    def number(self, value: Fraction) -> z3.RatNumRef:
        """An exact number, by its text."""
        if value not in self._numbers:
            self._numbers[value] = z3.RealVal(f"{value.numerator}/{value.denominator}", self.context)
        return self._numbers[value]

    def form(self, form: Form) -> z3.ArithRef:
        """A form of degree one or two."""
        linear = form.linear if isinstance(form, Quadratic) else form
        products = [(c, self.name(n)) for n, c in linear.terms.items()]
        if isinstance(form, Quadratic):
            products += [(c, self.name(a) * self.name(b)) for (a, b), c in form.products.items()]
        return self.total(linear.constant, products)

    def total(self, constant: Fraction, products: Iterable[tuple[Fraction, z3.ArithRef]]) -> z3.ArithRef:
        """`constant` plus each factor times its term."""
        context = self.context.ref()
        parts = [self.number(constant).as_ast()]
        for factor, term in products:
            pair = (z3.Ast * 2)(self.number(factor).as_ast(), term.as_ast())
            parts.append(z3core.Z3_mk_mul(context, 2, pair))
            z3core.Z3_inc_ref(context, parts[-1])
        made = z3.ArithRef(z3core.Z3_mk_add(context, len(parts), (z3.Ast * len(parts))(*parts)), self.context)
        for part in parts[1:]:
            z3core.Z3_dec_ref(context, part)
        return made

    def formula(self, formula: Formula) -> z3.BoolRef:
        """A truth value."""
        match formula:
            case Atom(form, strict):
                return self.negative(self.form(form), strict=strict)
            case Every(parts):
                return z3.And([self._true, *(self.formula(p) for p in parts)])
            case _:
                return z3.Or([z3.Not(self._true), *(self.formula(p) for p in formula.parts)])

    def negative(self, term: z3.ArithRef, *, strict: bool) -> z3.BoolRef:
        """`term < 0`, or `term <= 0` where it is not `strict`."""
        relation = z3core.Z3_mk_lt if strict else z3core.Z3_mk_le
        zero = self.number(Fraction(0))
        return z3.BoolRef(relation(self.context.ref(), term.as_ast(), zero.as_ast()), self.context)


def solver(context: z3.Context, budget: Budget, *, products: bool = False) -> z3.Solver:
    """A solver that keeps its budget; `products` where terms hold products of two symbols."""
    made = z3.SimpleSolver(ctx=context)
    made.set("timeout", budget.timeout_ms)
    made.set("rlimit", budget.rlimit)
    if not products:
        made.set(
            "arith.solver", 2
        )  # the simplex without integer cuts: a fifth of the conflicts on these queries
    made.set("relevancy", 0)
    return made


def answer(result: z3.CheckSatResult) -> Answer:
    """Z3's three answers as ours."""
    return Answer(str(result))


def fraction(value: z3.ExprRef) -> Fraction:
    """A model's number, exactly."""
    return Fraction(value.numerator_as_long(), value.denominator_as_long())


def demands(plan: Plan) -> dict[int, list[Formula]]:
    """By rule, in order, the formulas that must hold, each once: many instants ask the same."""
    found: dict[int, list[Formula]] = {}
    for duty in sorted(plan.duties, key=lambda duty: duty.rule):
        mine = found.setdefault(duty.rule, [])
        if duty.formula not in mine:
            mine.append(duty.formula)
    return found


class Bounds:
    """Bounds of symbols through the C interface: a dozen times cheaper than z3py's terms.

    `z3core`'s functions look for errors after every call; the reference counts are ours.
    """

    def __init__(self, context: z3.Context, solver: z3.Solver, *, whole: bool = False) -> None:
        """`whole` where the symbols themselves are in units of 1 / `SCALE`."""
        self._context, self._solver = context, solver  # kept alive with their raw handles
        self._real = z3.RealSort(context)
        self._unit = "" if whole else f"/{SCALE}"

    def state(self, constant: z3.ArithRef, low: int, high: int) -> None:
        """Assert `low <= constant <= high`, both in units of 1 / `SCALE`."""
        if low == high:
            self._add(z3core.Z3_mk_eq, constant, low)
        else:
            self._add(z3core.Z3_mk_ge, constant, low)
            self._add(z3core.Z3_mk_le, constant, high)

    def number(self, end: int) -> z3.Ast:
        """An end as a number; whoever asks for it gives its reference back."""
        number = z3core.Z3_mk_numeral(self._context.ref(), f"{end}{self._unit}", self._real.ast)
        z3core.Z3_inc_ref(self._context.ref(), number)
        return number

    def _add(
        self, relation: Callable[[object, object, object], object], constant: z3.ArithRef, end: int
    ) -> None:
        context = self._context.ref()
        number = self.number(end)
        term = relation(context, constant.as_ast(), number)
        z3core.Z3_inc_ref(context, term)
        z3core.Z3_solver_assert(context, self._solver.solver, term)
        z3core.Z3_dec_ref(context, term)
        z3core.Z3_dec_ref(context, number)


class Query:
    """One plan in one solver. Each call adds one check's premises and takes them away again."""

    def __init__(self, context: z3.Context, plan: Plan, budget: Budget) -> None:
        self.terms = Terms(context)
        products = any(isinstance(atom.form, Quadratic) for d in plan.duties for atom in atoms(d.formula))
        self._solver = solver(context, budget, products=products)
        self._bounds = Bounds(context, self._solver)
        self.kept: dict[int, z3.BoolRef] = {}  # by rule, everything that it demands
        self._goals: dict[int, z3.BoolRef] = {}
        for index, formulas in demands(plan).items():
            self.kept[index] = z3.And([self.terms.formula(formula) for formula in formulas])
            self._goals[index] = z3.Bool(f"violates {index}", context)
            self._solver.add(z3.Implies(self._goals[index], z3.Not(self.kept[index])))
        self._others = {index: z3.Not(goal) for index, goal in self._goals.items()}
        self._any = z3.Bool("violates any", context)
        self._solver.add(z3.Implies(self._any, z3.Or(list(self._goals.values()))))
        self._within: Box = {}

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
        return answer(self._solver.check(self._any, *others)) if rules else Answer.UNSAT

    def one(self, rule: int) -> Answer:
        """Whether one rule can be violated under the premises."""
        return answer(self._solver.check(self._goals[rule]))

    def at(self, rule: int, point: Box) -> Answer:
        """Whether one rule is violated at a point, which is a box without extent: `sat` where it is.

        Nothing is searched for: with every symbol a number Z3 works the rule out.
        """
        context = self.terms.context
        symbols = (z3.Ast * len(point))(*(self.terms.name(name).as_ast() for name in point))
        values = (z3.Ast * len(point))(*(self._bounds.number(end) for end, _ in point.values()))
        there = z3core.Z3_substitute(context.ref(), self.kept[rule].as_ast(), len(point), symbols, values)
        kept = z3.simplify(z3.BoolRef(there, context))
        for value in values:
            z3core.Z3_dec_ref(context.ref(), value)
        return Answer.SAT if z3.is_false(kept) else Answer.UNSAT if z3.is_true(kept) else Answer.UNKNOWN

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
