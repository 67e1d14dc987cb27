"""The exact judge: expressions and uncondensed steps at one point, in rationals. No Z3, no condensing."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from fractions import Fraction

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

Point = Mapping[str, Fraction]  # by the key of a reference or of a `for`; a boolean is 0 or 1

_COMPARE: Mapping[str, Callable[[Fraction, Fraction], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "==": operator.eq,
    "!=": operator.ne,
}


def truth(node: Expr, point: Point) -> bool:  # noqa: PLR0911  one return for each kind of node
    """Whether a condition holds at a point; a comparison that divides by 0 does not."""
    match node:
        case Truth(_, value):
            return value
        case Ref() | For():
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
            pairs = zip(ops, operands, operands[1:], strict=False)
            return all(_compares(op, left, right, point) for op, left, right in pairs)
        case Member(_, operand, values):
            found = number(operand, point)
            return any(found == number(value, point) for value in values)
        case Choice(_, condition, first_branch, second_branch):
            return truth(first_branch if truth(condition, point) else second_branch, point)
        case Call(_, "at_most" | "exactly" as function, (Number(_, wanted), *conditions)):
            held = sum(truth(condition, point) for condition in conditions)
            return held <= wanted if function == "at_most" else held == wanted
        case _:
            msg = f"not a condition: {node!r}"
            raise TypeError(msg)


def number(node: Expr, point: Point) -> Fraction:  # noqa: PLR0911  one return for each kind of node
    """The value of a number at a point; raises `ZeroDivisionError` where it has none."""
    match node:
        case Number(_, value) | Label(_, _, value):
            return value
        case Ref():
            return point[node.key]
        case Negative(_, operand):
            return -number(operand, point)
        case Sum(_, op, left, right):
            return _arithmetic(op, number(left, point), number(right, point))
        case Choice(_, condition, first, second):
            return number(first if truth(condition, point) else second, point)
        case Call(_, "count", conditions):
            return Fraction(sum(truth(condition, point) for condition in conditions))
        case Call(_, function, arguments):
            return _called(function, [number(part, point) for part in arguments])
        case _:
            msg = f"not a number: {node!r}"
            raise TypeError(msg)


def _called(function: str, values: list[Fraction]) -> Fraction:
    match function:
        case "abs":
            return abs(values[0])
        case "max":
            return max(values)
        case "min":
            return min(values)
        case "sum":
            return sum(values, Fraction(0))
        case "median":
            return sorted(values)[len(values) // 2]
        case _:
            msg = f"not a function: {function}"
            raise TypeError(msg)


def _compares(op: str, left: Expr, right: Expr, point: Point) -> bool:
    try:
        return _COMPARE[op](number(left, point), number(right, point))
    except ZeroDivisionError:
        return False


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
