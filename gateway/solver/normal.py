"""Checked syntax tree to truth values over exact affine forms: no min, max, abs or connective is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from gateway.solver.affine import Affine, Atom, Every, Formula, Some, negated, symbol
from gateway.solver.parse import ExpressionError
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


@dataclass(frozen=True, slots=True)
class Greatest:
    """The greatest of several values."""

    parts: tuple[Piecewise, ...]


@dataclass(frozen=True, slots=True)
class Least:
    """The least of several values."""

    parts: tuple[Piecewise, ...]


Piecewise = Affine | Greatest | Least

_MINUS = Fraction(-1)
_LARGEST = 256  # affine pieces of one expression


def formula(node: Expr) -> Formula:
    """The truth value of a condition."""
    match node:
        case Truth(_, value):
            return Every(()) if value else Some(())
        case Ref():
            return Atom(Affine(Fraction(1)).plus(symbol(node.key).times(_MINUS)))
        case Not(_, operand):
            return negated(formula(operand))
        case Connective():
            return _connective(node)
        case Chain(_, ops, operands):
            pairs = zip(ops, operands, operands[1:], strict=False)
            return Every(tuple(_compared(op, left, right) for op, left, right in pairs))
        case Member(_, operand, values):
            return Some(tuple(_compared("==", operand, value) for value in values))
        case _:
            raise ExpressionError(node.at, "a condition is expected, not a number")


def affine(node: Expr) -> Affine:
    """An expression without alternatives as one form; raises `ExpressionError` where it has some."""
    found = piecewise(node)
    if not isinstance(found, Affine):
        raise ExpressionError(node.at, "`abs`, `min` and `max` are not built here yet")
    return found


def piecewise(node: Expr) -> Piecewise:  # noqa: PLR0911  one return for each kind of node
    """The value of a number."""
    match node:
        case Number(_, value):
            return Affine(value)
        case Ref():
            return symbol(node.key)
        case Negative(_, operand):
            return _times(piecewise(operand), _MINUS)
        case Sum(at, op, left, right) if op in {"+", "-"}:
            second = piecewise(right)
            return _plus(at, piecewise(left), _times(second, _MINUS) if op == "-" else second)
        case Sum():
            return _scaled(node)
        case Call(_, "abs", (only,)):
            inner = piecewise(only)
            return Greatest((inner, _times(inner, _MINUS)))
        case Call(_, function, arguments):
            parts = tuple(piecewise(part) for part in arguments)
            return Greatest(parts) if function == "max" else Least(parts)
        case _:
            raise ExpressionError(node.at, "a number is expected, not a condition")


def _connective(node: Connective) -> Formula:
    left, right = formula(node.left), formula(node.right)
    match node.op:
        case "and":
            return Every((left, right))
        case "or":
            return Some((left, right))
        case "implies":
            return Some((negated(left), right))
        case "iff":
            return Every((Some((negated(left), right)), Some((negated(right), left))))


def _compared(op: str, left: Expr, right: Expr) -> Formula:
    first, second = piecewise(left), piecewise(right)
    below = _plus(left.at, first, _times(second, _MINUS))  # left - right
    above = _times(below, _MINUS)
    match op:
        case "<=":
            return _not_positive(below, strict=False)
        case "<":
            return _not_positive(below, strict=True)
        case ">=":
            return _not_positive(above, strict=False)
        case ">":
            return _not_positive(above, strict=True)
        case "==":
            return Every((_not_positive(below, strict=False), _not_positive(above, strict=False)))
        case _:
            return Some((_not_positive(below, strict=True), _not_positive(above, strict=True)))


def _not_positive(value: Piecewise, *, strict: bool) -> Formula:
    match value:
        case Affine():
            return Atom(value, strict)
        case Greatest(parts):
            return Every(tuple(_not_positive(part, strict=strict) for part in parts))
        case Least(parts):
            return Some(tuple(_not_positive(part, strict=strict) for part in parts))


def _pieces(value: Piecewise) -> int:
    return 1 if isinstance(value, Affine) else sum(_pieces(part) for part in value.parts)


def _plus(at: int, left: Piecewise, right: Piecewise) -> Piecewise:
    if _pieces(left) * _pieces(right) > _LARGEST:
        raise ExpressionError(at, "the expression has too many alternatives")
    if isinstance(left, Affine):
        if isinstance(right, Affine):
            return left.plus(right)
        return type(right)(tuple(_plus(at, left, part) for part in right.parts))
    return type(left)(tuple(_plus(at, part, right) for part in left.parts))


def _times(value: Piecewise, factor: Fraction) -> Piecewise:
    if isinstance(value, Affine):
        return value.times(factor)
    parts = tuple(_times(part, factor) for part in value.parts)
    same: Callable[[tuple[Piecewise, ...]], Piecewise] = type(value)
    turned: Callable[[tuple[Piecewise, ...]], Piecewise] = Least if isinstance(value, Greatest) else Greatest
    return same(parts) if factor >= 0 else turned(parts)


def _scaled(node: Sum) -> Piecewise:
    left, right = piecewise(node.left), piecewise(node.right)
    if node.op == "/":
        if not isinstance(right, Affine) or right.terms or not right.constant:
            raise ExpressionError(node.at, "the divisor is not a number other than 0")
        return _times(left, 1 / right.constant)
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Affine) and not one.terms:
            return _times(other, one.constant)
    raise ExpressionError(node.at, "a product of two variables is not built yet")
