"""Z3 within a budget: so many work units a question, so much time for all of them. Over budget is unknown."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import z3

from gateway.solver.checking.terms import Answer, Budget, Terms, asked, fraction, solver
from gateway.solver.language.affine import Formula, Quadratic, atoms

_LEAST_MS = 1


@dataclass(slots=True)
class Allowance:
    """What one analysis may cost. The time runs from the first question on."""

    seconds: float = 20.0
    rlimit: int = 20_000_000  # work units of one question
    each_ms: int = 5_000  # and its time
    _ends: float | None = field(default=None, init=False)

    @property
    def left_s(self) -> float:
        """What is left of the time."""
        if self._ends is None:
            self._ends = time.monotonic() + self.seconds
        return max(0.0, self._ends - time.monotonic())

    def part(self, share: float) -> Allowance:
        """An allowance of its own with a share of the time that is left."""
        return Allowance(self.left_s * share, self.rlimit, self.each_ms)


class Asking:
    """One solver with named formulas, asked under assumptions; each question within the allowance."""

    def __init__(
        self, allowance: Allowance, known: Iterable[Formula] = (), *, products: bool = False
    ) -> None:
        self._allowance = allowance
        self._context = z3.Context()
        self._terms = Terms(self._context)
        budget = Budget(allowance.rlimit, allowance.each_ms)
        self._solver = solver(self._context, budget, products=products)
        self._names: dict[str, z3.BoolRef] = {}
        for formula in known:
            self._solver.add(self._terms.formula(formula))

    def name(self, name: str, formula: Formula) -> None:
        """From now on `name` among the assumptions of a question states `formula`."""
        literal = z3.Bool(name, self._context)
        self._solver.add(z3.Implies(literal, self._terms.formula(formula)))
        self._names[name] = literal

    def ask(self, names: Iterable[str] = ()) -> Answer:
        """Whether the named formulas can hold together."""
        left_ms = int(self._allowance.left_s * 1000)
        if left_ms < _LEAST_MS:
            return Answer.UNKNOWN
        self._solver.set("timeout", min(left_ms, self._allowance.each_ms))
        return asked(self._solver, [self._names[name] for name in names])

    def possible(self, formula: Formula) -> Answer:
        """Whether a formula can hold besides what is stated; nothing of it stays."""
        self._solver.push()
        try:
            self._solver.add(self._terms.formula(formula))
            return self.ask()
        finally:
            self._solver.pop()

    def add(self, formula: Formula) -> None:
        """State a formula for all questions to come."""
        self._solver.add(self._terms.formula(formula))

    def point(self, symbols: Iterable[str]) -> dict[str, Fraction]:
        """The assignment behind the last `SAT`."""
        model = self._solver.model()
        return {s: fraction(model.eval(self._terms.name(s), model_completion=True)) for s in symbols}

    def rational_point(self, symbols: Iterable[str]) -> dict[str, Fraction]:
        """The same without the symbols whose value is a root; products have some."""
        model = self._solver.model()
        values = {s: model.eval(self._terms.name(s), model_completion=True) for s in symbols}
        return {s: fraction(value) for s, value in values.items() if z3.is_rational_value(value)}

    def core(self, names: Sequence[str]) -> tuple[str, ...]:
        """Of names that cannot hold together, some of which none can be left out, as far as the budget goes.

        Call after `UNSAT`.
        """
        blamed = {str(literal) for literal in self._solver.unsat_core()}
        kept = [name for name in names if name in blamed]
        for name in tuple(kept):
            fewer = [n for n in kept if n != name]
            if self.ask(fewer) is Answer.UNSAT:
                kept = fewer
        return tuple(kept)


def has_products(formulas: Iterable[Formula]) -> bool:
    """Whether a term holds a product of two symbols."""
    return any(isinstance(atom.form, Quadratic) for formula in formulas for atom in atoms(formula))


def decimal(value: Fraction, digits: int = 6) -> str:
    """A number for people."""
    return f"{float(value):.{digits}g}"


def listed(point: Mapping[str, str]) -> str:
    """`level 3.6 m, pump 40 %`."""
    return ", ".join(f"{name} {text}" for name, text in point.items())
