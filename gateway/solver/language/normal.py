"""Checked syntax tree to truth values over exact forms: no min, max, abs, choice or division is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import comb

from gateway.solver.language import values
from gateway.solver.language.affine import (
    Affine,
    Atom,
    Every,
    Form,
    Formula,
    Quadratic,
    Some,
    negated,
    symbol,
)
from gateway.solver.language.parse import ExpressionError
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
from gateway.solver.language.values import Greatest, Interval, Least, Value, not_positive

Ranges = Mapping[str, Interval]  # by key of a reference

_ONE = Fraction(1)
_MINUS = Fraction(-1)
_MOST_COMBINATIONS = 512  # of compound conditions that are counted together


def formula(node: Expr, ranges: Ranges | None = None) -> Formula:
    """The truth value of a condition.

    `ranges` are the declared ones; with them a divisor that could be 0 is refused. Without them a
    comparison that divides by 0 does not hold. Raises `ExpressionError`.
    """
    return _Normal(ranges).formula(node)


def affine(node: Expr) -> Affine:
    """An expression without alternatives and products as one form; raises `ExpressionError`."""
    found = _Normal(None).value(node, [])
    if isinstance(found, Quadratic):
        raise ExpressionError(node.at, "a product of two variables is not allowed here, only affine terms")
    if not isinstance(found, Affine):
        raise ExpressionError(
            node.at, "alternatives and divisions by a variable are not allowed here, only affine terms"
        )
    return found


def form(node: Expr) -> Form | None:
    """A number as one form, None where it has alternatives; raises `ExpressionError`."""
    found = _Normal(None).value(node, [])
    return found if isinstance(found, Affine | Quadratic) else None


def bounds(node: Expr, ranges: Ranges) -> Interval | None:
    """Least and greatest value over ranges, rounded outward; None where nobody can tell."""
    return values.bounds(_Normal(None).value(node, []), ranges)


class _Normal:
    def __init__(self, ranges: Ranges | None) -> None:
        self._ranges = ranges

    def formula(self, node: Expr) -> Formula:  # noqa: PLR0911  one return for each kind of node
        match node:
            case Truth(_, value):
                return Every(()) if value else Some(())
            case Ref() | For():
                return Atom(Affine(_ONE).plus(symbol(node.key).times(_MINUS)))
            case Not(_, operand):
                return negated(self.formula(operand))
            case Connective():
                return self._connective(node)
            case Chain(_, ops, operands):
                pairs = zip(ops, operands, operands[1:], strict=False)
                return Every(tuple(self._compared(op, left, right) for op, left, right in pairs))
            case Member(_, operand, listed):
                return Some(tuple(self._compared("==", operand, value) for value in listed))
            case Choice(_, condition, first, second):
                return values.either(*map(self.formula, (condition, first, second)))
            case Call(at, "at_most", (Number(_, most), *conditions)):
                return self._fewer(at, int(most) + 1, conditions)
            case Call(at, "exactly", (Number(_, number), *conditions)):
                above = self._fewer(at, int(number) + 1, conditions)
                return Every((above, negated(self._fewer(at, int(number), conditions))))
            case _:
                raise ExpressionError(node.at, "a condition is expected, not a number")

    def value(self, node: Expr, needs: list[Formula]) -> Value:  # noqa: PLR0911
        """A number; `needs` receives what must hold for it to be one: divisors other than 0."""
        match node:
            case Number(_, exact) | Label(_, _, exact):
                return Affine(exact)
            case Ref():
                return symbol(node.key)
            case Negative(_, operand):
                return values.times(self.value(operand, needs), _MINUS)
            case Sum():
                return self._sum(node, needs)
            case Choice():
                return self._choice(node, needs)
            case Call(_, "abs", (only,)):
                inner = self.value(only, needs)
                return Greatest((inner, values.times(inner, _MINUS)))
            case Call(at, "count", conditions):
                return self._count(at, conditions)
            case Call(at, function, arguments):
                return _called(at, function, [self.value(part, needs) for part in arguments])
            case _:
                raise ExpressionError(node.at, "a number is expected, not a condition")

    def _connective(self, node: Connective) -> Formula:
        left, right = self.formula(node.left), self.formula(node.right)
        match node.op:
            case "and":
                return Every((left, right))
            case "or":
                return Some((left, right))
            case "implies":
                return Some((negated(left), right))
            case "iff":
                return Every((Some((negated(left), right)), Some((negated(right), left))))

    def _compared(self, op: str, left: Expr, right: Expr) -> Formula:
        needs: list[Formula] = []
        first, second = self.value(left, needs), self.value(right, needs)
        found = _relation(op, values.plus(left.at, first, values.times(second, _MINUS)))
        return Every((*needs, found)) if needs else found

    def _sum(self, node: Sum, needs: list[Formula]) -> Value:
        left, right = self.value(node.left, needs), self.value(node.right, needs)
        match node.op:
            case "+":
                return values.plus(node.at, left, right)
            case "-":
                return values.plus(node.at, left, values.times(right, _MINUS))
            case "*":
                return values.product(node.at, left, right)
            case "/":
                self._divisor(node, right, needs)
                return values.quotient(node.at, left, right)

    def _divisor(self, node: Sum, divisor: Value, needs: list[Formula]) -> None:
        if isinstance(divisor, Affine) and not divisor.terms:
            if not divisor.constant:
                raise ExpressionError(node.at, "the divisor is 0")
            return
        needs.append(values.not_zero(divisor))
        if self._ranges is None:
            return
        found = values.bounds(divisor, self._ranges)
        if found is None:
            raise ExpressionError(node.at, "nobody can tell that this divisor is never 0; bound it by `max`")
        if found[0] <= 0 <= found[1]:
            low, high = (f"{float(end):g}" for end in found)
            raise ExpressionError(
                node.at,
                f"over the declared ranges the divisor goes from {low} to {high} and could be 0; "
                "narrow a range, or multiply both sides by it",
            )

    def _choice(self, node: Choice, needs: list[Formula]) -> Value:
        condition = self.formula(node.condition)
        found: list[Value] = []
        for guard, branch in ((condition, node.first), (negated(condition), node.second)):
            mine: list[Formula] = []
            found.append(self.value(branch, mine))
            needs.extend(Some((negated(guard), need)) for need in mine)
        return values.Chosen(condition, found[0], found[1])

    def _count(self, at: int, conditions: Sequence[Expr]) -> Value:
        """Plain booleans add up as they are; compound conditions are counted."""
        total, compound = self._counted(conditions)
        if not compound:
            return total
        if 2 ** len(compound) > _MOST_COMBINATIONS:
            raise ExpressionError(
                at, f"`count` of {len(compound)} compound conditions; bind some to boolean tags"
            )
        return values.plus(at, total, values.counted(compound))

    def _counted(self, conditions: Sequence[Expr]) -> tuple[Affine, list[Formula]]:
        total = Affine()
        compound: list[Formula] = []
        for condition in conditions:
            match condition:
                case Ref() | For():
                    total = total.plus(symbol(condition.key))
                case Not(_, Ref() | For() as operand):
                    total = total.plus(Affine(_ONE)).plus(symbol(operand.key).times(_MINUS))
                case _:
                    compound.append(self.formula(condition))
        return total, compound

    def _fewer(self, at: int, number: int, conditions: Sequence[Expr]) -> Formula:
        """Fewer than `number` of the conditions hold."""
        total, compound = self._counted(conditions)
        if not compound:
            return Atom(total.plus(Affine(Fraction(1 - number))))
        if number > len(conditions):
            return Every(())
        if number > 0 and comb(len(conditions), number) > _MOST_COMBINATIONS:
            raise ExpressionError(at, f"too many ways to choose {number} of {len(conditions)} conditions")
        return negated(values.at_least(number, [self.formula(c) for c in conditions]))


def _called(at: int, function: str, arguments: list[Value]) -> Value:
    match function:
        case "sum":
            total = arguments[0]
            for part in arguments[1:]:
                total = values.plus(at, total, part)
            return total
        case "median":
            return values.median(arguments)
        case "max":
            return Greatest(tuple(arguments))
        case "min":
            return Least(tuple(arguments))
        case _:
            raise ExpressionError(at, "a number is expected, not a condition")


def _relation(op: str, difference: Value) -> Formula:
    """How `left - right` compares with 0."""
    if op in {"<=", "<"}:
        return not_positive(difference, strict=op == "<")
    opposite = values.times(difference, _MINUS)
    if op in {">=", ">"}:
        return not_positive(opposite, strict=op == ">")
    strict = op == "!="
    both = (not_positive(difference, strict=strict), not_positive(opposite, strict=strict))
    return Some(both) if strict else Every(both)
