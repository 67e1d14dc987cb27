"""Expressions of the constraint language as SMT-LIB 2.6 text, exactly and without rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from gateway.solver.affine import Affine, Atom, Every, Formula
from gateway.solver.syntax import (
    Call,
    Chain,
    Connective,
    Expr,
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

    def __init__(self, read: Callable[[Ref], Term]) -> None:
        self._read = read
        self._bound = 0
        self.degree = 1

    def truth(self, node: Expr) -> str:
        """A condition; raises `NoTextError`."""
        match node:
            case Truth(_, value):
                return "true" if value else "false"
            case Ref():
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
                return f"(or false {' '.join(f'(= {term.text} {number_text(v.value)})' for v in values)})"
            case _:
                raise NoTextError(type(node).__name__)

    def number(self, node: Expr) -> Term:
        """A number; raises `NoTextError`."""
        term = self._number(node)
        self.degree = max(self.degree, term.degree)
        return term

    def _number(self, node: Expr) -> Term:
        match node:
            case Number(_, value):
                return constant(value)
            case Ref():
                return self._read(node)
            case Negative(_, operand):
                return times(constant(Fraction(-1)), self.number(operand))
            case Sum(_, op, left, right):
                return _arithmetic(op, self.number(left), self.number(right))
            case Call(_, function, arguments):
                return self._call(function, [self.number(part) for part in arguments])
            case _:
                raise NoTextError(type(node).__name__)

    def _call(self, function: str, terms: list[Term]) -> Term:
        degree = max(t.degree for t in terms)
        if function == "abs" and len(terms) == 1:
            name = self._fresh()
            minus = f"(- {name})"
            return Term(
                f"(let (({name} {terms[0].text})) (ite (>= {name} 0.0) {name} {minus}))", None, degree
            )
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

    def form(self, form: Affine) -> Term:
        """An affine form over symbols."""
        total = constant(form.constant)
        for name, factor in form.terms.items():
            total = plus(total, times(constant(factor), self._read(Ref(0, name))))
        return total


def _arithmetic(op: str, left: Term, right: Term) -> Term:
    match op:
        case "+" | "-":
            return plus(left, right, op)
        case "*":
            return times(left, right)
        case _:
            if right.value is None:
                return Term(f"(/ {left.text} {right.text})", None, max(2, left.degree + right.degree))
            return times(constant(1 / right.value), left)


def _compared(op: str, left: Term, right: Term) -> str:
    if op == "!=":
        return f"(not (= {left.text} {right.text}))"
    return f"({'=' if op == '==' else op} {left.text} {right.text})"
