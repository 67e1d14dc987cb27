"""The exact judge: expressions and uncondensed steps at one point, in rationals. No Z3, no condensing."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from fractions import Fraction

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

Point = Mapping[str, Fraction]  # by `Ref.key`; a boolean is 0 or 1

_COMPARE: Mapping[str, Callable[[Fraction, Fraction], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "==": operator.eq,
    "!=": operator.ne,
}


def truth(node: Expr, point: Point) -> bool:
    """Whether a condition holds at a point."""
    match node:
        case Truth(_, value):
            return value
        case Ref():
            return point[node.key] >= 1
        case Not(_, operand):
            return not truth(operand, point)
        case Connective(_, op, left, right):
            first, second = truth(left, point), truth(right, point)
            return {
                "and": first and second,
                "or": first or second,
                "implies": not first or second,
                "iff": first == second,
            }[op]
        case Chain(_, ops, operands):
            values = [number(part, point) for part in operands]
            return all(_COMPARE[op](a, b) for op, a, b in zip(ops, values, values[1:], strict=False))
        case Member(_, operand, values):
            found = number(operand, point)
            return any(found == value.value for value in values)
        case _:
            msg = f"not a condition: {node!r}"
            raise TypeError(msg)


def number(node: Expr, point: Point) -> Fraction:
    """The value of a number at a point."""
    match node:
        case Number(_, value):
            return value
        case Ref():
            return point[node.key]
        case Negative(_, operand):
            return -number(operand, point)
        case Sum(_, op, left, right):
            return _arithmetic(op, number(left, point), number(right, point))
        case Call(_, function, arguments):
            values = [number(part, point) for part in arguments]
            return abs(values[0]) if function == "abs" else max(values) if function == "max" else min(values)
        case _:
            msg = f"not a number: {node!r}"
            raise TypeError(msg)


def _arithmetic(op: str, left: Fraction, right: Fraction) -> Fraction:
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case _:
            return left / right


def moved(dynamics: Mapping[str, Expr], point: Point, part: Fraction) -> dict[str, Fraction]:
    """The state after `part` of one step from `point`, every variable moving on a straight line."""
    return {name: point[name] + part * (number(step, point) - point[name]) for name, step in dynamics.items()}
