"""Expressions of the constraint language as SMT-LIB 2.6 text, exactly and without rounding."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from gateway.solver.language.affine import Atom, Every, Form, Formula, Quadratic
from gateway.solver.language.syntax import (
    Call,
    Chain,
    Choice,
    Connective,
    Expr,
    For,
    Label,
    Member,
    Negative,
    Not,
    Number,
    Ref,
    Sum,
    Truth,
)


class NoTextError(Exception):
    """A construct for which there is no text here; its condensed form has one."""


@dataclass(frozen=True, slots=True)
class Term:
    """A number: its text, its value where it is constant, and its degree in the symbols."""

    text: str
    value: Fraction | None = None
    degree: int = 1


def constant(value: Fraction) -> Term:
    """An exact number."""
    return Term(number_text(value), value, 0)


def number_text(value: Fraction) -> str:
    """A rational as SMT-LIB spells it: a decimal where it terminates, else a quotient."""
    if value < 0:
        return f"(- {number_text(-value)})"
    denominator, twos, fives = value.denominator, 0, 0
    while denominator % 2 == 0:
        denominator, twos = denominator // 2, twos + 1
    while denominator % 5 == 0:
        denominator, fives = denominator // 5, fives + 1
    if denominator != 1:
        return f"(/ {value.numerator}.0 {value.denominator}.0)"
    places = max(twos, fives, 1)
    digits = str(int(value * 10**places)).rjust(places + 1, "0")
    return f"{digits[:-places]}.{digits[-places:]}"


def quoted(name: str) -> str:
    """A symbol; the two characters a quoted symbol cannot hold become `_`."""
    return "|" + name.replace("|", "_").replace("\\", "_").replace("\n", " ") + "|"


def plus(left: Term, right: Term, sign: str = "+") -> Term:
    """Sum or difference."""
    if left.value is not None and right.value is not None:
        return constant(left.value + right.value if sign == "+" else left.value - right.value)
    if left.value == 0 and sign == "+":
        return right
    if right.value == 0:
        return left
    return Term(f"({sign} {left.text} {right.text})", None, max(left.degree, right.degree))


def times(left: Term, right: Term) -> Term:
    """Product; constants are folded, so that linear stays linear for every solver."""
    if left.value is not None and right.value is not None:
        return constant(left.value * right.value)
    if 0 in (left.value, right.value):
        return constant(Fraction(0))
    if left.value == 1:
        return right
    if right.value == 1:
        return left
    if right.value is not None:
        left, right = right, left
    return Term(f"(* {left.text} {right.text})", None, left.degree + right.degree)


class Writer:
    """Texts over names that `read` gives to references."""

    def __init__(self, read: Callable[[Ref | For], Term]) -> None:
        self._read = read
        self._bound = 0
        self.degree = 1

    def truth(self, node: Expr) -> str:  # noqa: PLR0911  # one return for each kind of node
        """A condition; raises `NoTextError`."""
        match node:
            case Truth(_, value):
                return "true" if value else "false"
            case Ref() | For():
                return f"(>= {self._read(node).text} 1.0)"
            case Not(_, operand):
                return f"(not {self.truth(operand)})"
            case Connective(_, op, left, right):
                word = {"and": "and", "or": "or", "implies": "=>", "iff": "="}[op]
                return f"({word} {self.truth(left)} {self.truth(right)})"
            case Chain(_, ops, operands):
                terms = [self.number(part) for part in operands]
                pairs = [_compared(op, a, b) for op, a, b in zip(ops, terms, terms[1:], strict=False)]
                return pairs[0] if len(pairs) == 1 else f"(and {' '.join(pairs)})"
            case Member(_, operand, values):
                term = self.number(operand)
                return f"(or false {' '.join(f'(= {term.text} {self.number(v).text})' for v in values)})"
            case Choice(_, condition, first, second):
                return f"(ite {self.truth(condition)} {self.truth(first)} {self.truth(second)})"
            case Call(_, "at_most" | "exactly" as function, arguments):
                relation = "<=" if function == "at_most" else "="
                return f"({relation} {self._counted(arguments[1:]).text} {self.number(arguments[0]).text})"
            case _:
                raise NoTextError(type(node).__name__)

    def _counted(self, conditions: tuple[Expr, ...]) -> Term:
        """How many conditions are true."""
        total = constant(Fraction(0))
        for condition in conditions:
            total = plus(total, Term(f"(ite {self.truth(condition)} 1.0 0.0)"))
        return total

    def number(self, node: Expr) -> Term:
        """A number; raises `NoTextError`."""
        term = self._number(node)
        self.degree = max(self.degree, term.degree)
        return term

    def _number(self, node: Expr) -> Term:  # noqa: PLR0911  # one return for each kind of node
        match node:
            case Number(_, value) | Label(_, _, value):
                return constant(value)
            case Ref():
                return self._read(node)
            case Choice(_, condition, first, second):
                one, other = self.number(first), self.number(second)
                text = f"(ite {self.truth(condition)} {one.text} {other.text})"
                return Term(text, None, max(1, one.degree, other.degree))
            case Call(_, "count", arguments):
                return self._counted(arguments)
            case Negative(_, operand):
                return times(constant(Fraction(-1)), self.number(operand))
            case Sum(_, op, left, right):
                return _arithmetic(op, self.number(left), self.number(right))
            case Call(_, function, arguments):
                return self._call(function, [self.number(part) for part in arguments])
            case _:
                raise NoTextError(type(node).__name__)

    def _call(self, function: str, terms: list[Term]) -> Term:
        degree = max(1, *(t.degree for t in terms))
        if function == "sum":
            return functools.reduce(plus, terms)
        if function == "abs" and len(terms) == 1:
            name = self._fresh()
            minus = f"(- {name})"
            return Term(
                f"(let (({name} {terms[0].text})) (ite (>= {name} 0.0) {name} {minus}))", None, degree
            )
        if function == "median" and len(terms) == 3:  # noqa: PLR2004  # two of three sensors
            a, b, c = (self._fresh() for _ in terms)
            low = f"(ite (<= {b} {c}) {b} (ite (<= {a} {c}) {c} {a}))"
            high = f"(ite (<= {a} {c}) {a} (ite (<= {b} {c}) {c} {b}))"
            named = " ".join(f"({n} {t.text})" for n, t in zip((a, b, c), terms, strict=True))
            return Term(f"(let ({named}) (ite (<= {a} {b}) {low} {high}))", None, degree)
        if function not in {"min", "max"}:
            raise NoTextError(function)
        relation = ">=" if function == "max" else "<="
        found = terms[0]
        for term in terms[1:]:
            one, other = self._fresh(), self._fresh()
            chosen = f"(ite ({relation} {one} {other}) {one} {other})"
            found = Term(f"(let (({one} {found.text}) ({other} {term.text})) {chosen})", None, degree)
        return found

    def _fresh(self) -> str:
        self._bound += 1
        return f"?v{self._bound}"

    def formula(self, formula: Formula) -> str:
        """A condition over affine forms."""
        match formula:
            case Atom(form, strict):
                return f"({'<' if strict else '<='} {self.form(form).text} 0.0)"
            case Every(parts):
                return f"(and true {' '.join(self.formula(p) for p in parts)})"
            case _:
                return f"(or false {' '.join(self.formula(p) for p in formula.parts)})"

    def form(self, form: Form) -> Term:
        """A form over symbols."""
        linear = form.linear if isinstance(form, Quadratic) else form
        total = constant(linear.constant)
        for name, factor in linear.terms.items():
            total = plus(total, times(constant(factor), self._read(Ref(0, name))))
        if isinstance(form, Quadratic):
            for (first, second), factor in form.products.items():
                product = times(self._read(Ref(0, first)), self._read(Ref(0, second)))
                total = plus(total, times(constant(factor), product))
        self.degree = max(self.degree, total.degree)
        return total


def _arithmetic(op: str, left: Term, right: Term) -> Term:
    match op:
        case "+" | "-":
            return plus(left, right, op)
        case "*":
            return times(left, right)
        case _:
            if not right.value:
                raise NoTextError("a division that may have no value")
            return times(constant(1 / right.value), left)


def _compared(op: str, left: Term, right: Term) -> str:
    if op == "!=":
        return f"(not (= {left.text} {right.text}))"
    return f"({'=' if op == '==' else op} {left.text} {right.text})"
