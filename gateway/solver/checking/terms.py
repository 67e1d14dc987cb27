"""Exact formulas as Z3 terms; the budgets and bounds of the solvers that are asked, and their answers.

Traps that this file keeps out: numbers go in as texts of exact fractions, never as floats; there is no
integer sort, so nothing is rounded; one context for each worker; `SimpleSolver`, whose time-out is kept.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import z3
from z3 import z3core

from gateway.solver.language.affine import Atom, Every, Form, Formula, Quadratic
from gateway.solver.rules.interval import SCALE

_ZERO = Fraction(0)
_SHORT = 2**63  # from there on numbers are told as texts


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one query: work units first, then time. The process is killed after both.

    Without a time-out work units are all: Z3's timer is a thread, and waking it costs what a query does.
    """

    rlimit: int = 2_000_000
    timeout_ms: int | None = 100


class Answer(enum.Enum):
    """What Z3 says."""

    UNSAT = enum.auto()
    SAT = enum.auto()
    UNKNOWN = enum.auto()


_SAID = {-1: Answer.UNSAT, 0: Answer.UNKNOWN, 1: Answer.SAT}  # `Z3_lbool`


def _plain(function: Callable[..., object]) -> Callable[..., object]:
    """A C function without `z3core`'s look for an error: only for what has none to tell."""
    assert function.__defaults__ is not None, "z3core's functions are made so"  # noqa: S101  an invariant
    plain: Callable[..., object] = function.__defaults__[-1].f
    return plain


_INC_REF, _DEC_REF = _plain(z3core.Z3_inc_ref), _plain(z3core.Z3_dec_ref)
_Pair = z3.Ast * 2


class Terms:
    """Terms over named reals in one context, through the C interface: a plan has thousands of them.

    `z3core`'s functions look for errors after every call; the reference counts are ours until a wrapper of
    z3py takes its own.
    """

    def __init__(self, context: z3.Context) -> None:
        self.context = context
        self._real = z3.RealSort(context)
        self._names: dict[str, z3.ArithRef] = {}
        self._numbers: dict[tuple[int, int], z3.RatNumRef] = {}
        self.true = z3.BoolVal(val=True, ctx=context)
        self.false = z3.BoolVal(val=False, ctx=context)

    def name(self, name: str) -> z3.ArithRef:
        """The constant of a symbol."""
        found = self._names.get(name)
        if found is None:
            found = self._names[name] = z3.Real(name, self.context)
        return found

    def forget(self, most: int) -> None:
        """Keep no more than so many numbers and names for terms to come; those made already keep theirs."""
        if len(self._numbers) > most:
            self._numbers.clear()
        if len(self._names) > most:
            self._names.clear()

    def number(self, value: Fraction | int) -> z3.RatNumRef:
        """An exact number."""
        ratio = value.as_integer_ratio()  # a fraction's own hash is slow
        found = self._numbers.get(ratio)
        if found is None:
            found = self._numbers[ratio] = z3.RatNumRef(self._made(*ratio), self.context)
        return found

    def _made(self, above: int, below: int) -> z3.Ast:
        """A number that nobody counts yet; a long one by its text."""
        if abs(above) < _SHORT and below < _SHORT:
            return z3core.Z3_mk_real_int64(self.context.ref(), above, below)
        return z3core.Z3_mk_numeral(self.context.ref(), f"{above}/{below}", self._real.ast)

    def form(self, form: Form) -> z3.ArithRef:
        """A form of degree one or two."""
        linear = form.linear if isinstance(form, Quadratic) else form
        products = [(c, self.name(n)) for n, c in linear.terms.items()]
        if isinstance(form, Quadratic):
            products += [(c, self.name(a) * self.name(b)) for (a, b), c in form.products.items()]
        return self.total(linear.constant, products)

    def total(
        self, constant: Fraction, products: Iterable[tuple[Fraction | int, z3.ArithRef]]
    ) -> z3.ArithRef:
        """`constant` plus each factor times its term."""
        context, known = self.context.ref(), self._numbers
        parts = [self.number(constant).ast]
        for factor, term in products:
            ratio = factor.as_integer_ratio()
            found = known.get(ratio)
            if found is not None:
                parts.append(z3core.Z3_mk_mul(context, 2, _Pair(found.ast, term.ast)))
                _INC_REF(context, parts[-1])
                continue
            number = self._made(*ratio)  # most factors are met once only
            _INC_REF(context, number)
            parts.append(z3core.Z3_mk_mul(context, 2, _Pair(number, term.ast)))
            _INC_REF(context, parts[-1])
            _DEC_REF(context, number)
        made = z3.ArithRef(z3core.Z3_mk_add(context, len(parts), (z3.Ast * len(parts))(*parts)), self.context)
        for part in parts[1:]:
            _DEC_REF(context, part)
        return made

    def formula(self, formula: Formula) -> z3.BoolRef:
        """A truth value."""
        return self.said(formula, self.form)

    def said(self, formula: Formula, form: Callable[[Form], z3.ArithRef]) -> z3.BoolRef:
        """A truth value whose forms `form` makes terms of."""
        match formula:
            case Atom():
                return self.negative(form(formula.form), strict=formula.strict)
            case Every(parts):
                return self.every([self.said(part, form) for part in parts])
            case _:
                return self.some([self.said(part, form) for part in formula.parts])

    def every(self, parts: Sequence[z3.BoolRef]) -> z3.BoolRef:
        """True when all are."""
        return self._of(z3core.Z3_mk_and, parts) if parts else self.true

    def some(self, parts: Sequence[z3.BoolRef]) -> z3.BoolRef:
        """True when one is."""
        return self._of(z3core.Z3_mk_or, parts) if parts else self.false

    def opposite(self, part: z3.BoolRef) -> z3.BoolRef:
        """True when it is not."""
        return z3.BoolRef(z3core.Z3_mk_not(self.context.ref(), part.ast), self.context)

    def only_if(self, first: z3.BoolRef, then: z3.BoolRef) -> z3.BoolRef:
        """True when the first is not, or the second is."""
        return z3.BoolRef(z3core.Z3_mk_implies(self.context.ref(), first.ast, then.ast), self.context)

    def negative(self, term: z3.ArithRef, *, strict: bool) -> z3.BoolRef:
        """`term < 0`, or `term <= 0` where it is not `strict`."""
        relation = z3core.Z3_mk_lt if strict else z3core.Z3_mk_le
        zero = self.number(_ZERO)
        return z3.BoolRef(relation(self.context.ref(), term.ast, zero.ast), self.context)

    def _of(self, connective: Callable[..., object], parts: Sequence[z3.BoolRef]) -> z3.BoolRef:
        raw = (z3.Ast * len(parts))(*(part.ast for part in parts))
        return z3.BoolRef(connective(self.context.ref(), len(parts), raw), self.context)


def state(solver: z3.Solver, term: z3.BoolRef) -> None:
    """Assert a truth value; z3py's own way looks twice at everything first."""
    z3core.Z3_solver_assert(solver.ctx.ref(), solver.solver, term.ast)


def solver(context: z3.Context, budget: Budget, *, products: bool = False, long: bool = False) -> z3.Solver:
    """A solver that keeps its budget; `products` where terms hold products of two symbols.

    `long` where rows may have a hundred symbols, as those of states that all move each other have.
    """
    made = z3.SimpleSolver(ctx=context)
    if budget.timeout_ms is not None:
        made.set("timeout", budget.timeout_ms)
    made.set("rlimit", budget.rlimit)
    if not products and not long:  # of long rows this simplex takes hundreds of times as long
        made.set(
            "arith.solver", 2
        )  # the simplex without integer cuts: a fifth of the conflicts on these queries
    made.set("relevancy", 0)
    return made


def asked(solver: z3.Solver, literals: Sequence[z3.BoolRef]) -> Answer:
    """What Z3 says of all that is stated and of these beside it; z3py's own way looks twice at each first."""
    raw = (z3.Ast * len(literals))(*(literal.ast for literal in literals))
    said = z3core.Z3_solver_check_assumptions(solver.ctx.ref(), solver.solver, len(literals), raw)
    return _SAID[said]


def leaned_on(solver: z3.Solver, literal: z3.BoolRef) -> bool:
    """Whether the last `unsat` needed a literal that was asked, and does not follow from what is stated."""
    context = solver.ctx.ref()
    core = z3core.Z3_solver_get_unsat_core(context, solver.solver)
    z3core.Z3_ast_vector_inc_ref(context, core)
    try:
        return any(
            z3core.Z3_is_eq_ast(context, z3core.Z3_ast_vector_get(context, core, index), literal.ast)
            for index in range(z3core.Z3_ast_vector_size(context, core))
        )
    finally:
        z3core.Z3_ast_vector_dec_ref(context, core)


def fraction(value: z3.ExprRef) -> Fraction:
    """A model's number, exactly."""
    return Fraction(value.numerator_as_long(), value.denominator_as_long())


class Bounds:
    """Bounds of symbols through the C interface: many times cheaper than z3py's terms.

    `z3core`'s functions look for errors after every call; the reference counts are ours.
    """

    def __init__(self, context: z3.Context, solver: z3.Solver, *, whole: bool = False) -> None:
        """`whole` where the symbols themselves are in units of 1 / `SCALE`."""
        self._context, self._solver = context, solver  # kept alive with their raw handles
        self._real = z3.RealSort(context)
        self._unit = 1 if whole else SCALE

    def state(self, constant: z3.ArithRef, low: int, high: int) -> None:
        """Assert `low <= constant <= high`, both in units of 1 / `SCALE`."""
        if low == high:
            self._add(z3core.Z3_mk_eq, constant, low)
        else:
            self._add(z3core.Z3_mk_ge, constant, low)
            self._add(z3core.Z3_mk_le, constant, high)

    def number(self, end: int) -> z3.Ast:
        """An end as a number; whoever asks for it gives its reference back."""
        context = self._context.ref()
        if abs(end) < _SHORT:
            number = z3core.Z3_mk_real_int64(context, end, self._unit)
        else:  # a longer one would be cut off without a word
            number = z3core.Z3_mk_numeral(context, f"{end}/{self._unit}", self._real.ast)
        _INC_REF(context, number)
        return number

    def _add(
        self, relation: Callable[[object, object, object], z3.Ast], constant: z3.ArithRef, end: int
    ) -> None:
        context = self._context.ref()
        number = self.number(end)
        term = relation(context, constant.ast, number)
        _INC_REF(context, term)
        z3core.Z3_solver_assert(context, self._solver.solver, term)
        _DEC_REF(context, term)
        _DEC_REF(context, number)
