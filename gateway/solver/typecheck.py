"""Sorts and units of an expression; every error names the user's own words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gateway.config.problems import nearest
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
    references,
)
from gateway.solver.units import joined, per_second

Sort = Literal["real", "int", "bool"]


@dataclass(frozen=True, slots=True)
class Declared:
    """What an expression may know of a name."""

    sort: Sort
    unit: str | None  # None takes the unit of what it is added to
    action: bool
    exact: bool  # register values and error-free readings: equality has a meaning


@dataclass(frozen=True, slots=True)
class Typed:
    """Sort and unit of a tree; unit None takes whatever makes a sum consistent."""

    sort: Sort
    unit: str | None


def typecheck(node: Expr, names: Mapping[str, Declared], want: Literal["number", "truth"]) -> None:
    """Raises `ExpressionError` at the first part that makes no sense."""
    found = _Checker(names).typed(node)
    if want == "truth" and found.sort != "bool":
        raise ExpressionError(node.at, "a condition is expected, not a number")
    if want == "number" and found.sort == "bool" and not isinstance(node, Ref):
        raise ExpressionError(node.at, "a number is expected, not a condition")


class _Checker:
    def __init__(self, names: Mapping[str, Declared]) -> None:
        self._names = names

    def typed(self, node: Expr) -> Typed:  # noqa: C901, PLR0911  one return for each kind of node
        match node:
            case Number():
                return Typed("real", None)
            case Truth():
                return Typed("bool", None)
            case Ref():
                return self._reference(node)
            case Not():
                self._truth(node.operand)
                return Typed("bool", None)
            case Connective():
                self._truth(node.left)
                self._truth(node.right)
                return Typed("bool", None)
            case Negative():
                return Typed("real", self._number(node.operand))
            case Sum():
                return Typed("real", self._sum(node))
            case Chain():
                return self._chain(node)
            case Member():
                if not (isinstance(node.operand, Ref) and self._reference(node.operand).sort == "int"):
                    raise ExpressionError(node.at, "`in (...)` takes an integer variable on its left")
                return Typed("bool", None)
            case Call():
                return Typed("real", self._joined(node.at, *node.arguments))

    def _reference(self, node: Ref) -> Typed:
        declared = self._names.get(node.name)
        if declared is None:
            raise ExpressionError(
                node.at, f"`{node.name}` is not a variable of this module{nearest(node.name, self._names)}"
            )
        if node.form != "now" and not declared.action:
            raise ExpressionError(
                node.at,
                f"`{node.form}({node.name})` of a measured variable is not built yet; only of actions",
            )
        if node.form == "rate":
            if declared.sort == "bool":
                raise ExpressionError(node.at, f"`rate({node.name})` needs a number, not a boolean")
            return Typed("real", per_second(declared.unit or ""))
        return Typed(declared.sort, declared.unit)

    def _truth(self, node: Expr) -> None:
        if self.typed(node).sort != "bool":
            raise ExpressionError(node.at, "a condition is expected, not a number")

    def _number(self, node: Expr) -> str | None:
        """The unit of a number; a boolean variable counts as 0 or 1 of any unit."""
        found = self.typed(node)
        if found.sort == "bool":
            if not isinstance(node, Ref):
                raise ExpressionError(node.at, "a number is expected, not a condition")
            return None
        return found.unit

    def _joined(self, at: int, *nodes: Expr) -> str | None:
        unit: str | None = None
        for node in nodes:
            other = self._number(node)
            unified = joined(unit, other)
            if unified is False:
                raise ExpressionError(at, f"`{unit}` and `{other}` are unlike units")
            unit = unified
        return unit

    def _sum(self, node: Sum) -> str | None:
        if node.op in {"+", "-"}:
            return self._joined(node.at, node.left, node.right)
        self._number(node.left)
        self._number(node.right)
        left, right = references(node.left), references(node.right)
        if node.op == "*" and left and right:
            raise ExpressionError(node.at, "a product of two variables is not built yet")
        if node.op == "/" and right:
            raise ExpressionError(node.at, "division by a variable is not built yet")
        return None

    def _chain(self, node: Chain) -> Typed:
        if len(node.ops) == 1 and node.ops[0] in {"==", "!="} and self._both_truths(node):
            return Typed("bool", None)
        self._joined(node.at, *node.operands)
        for op, left, right in zip(node.ops, node.operands, node.operands[1:], strict=False):
            if op in {"==", "!="}:
                self._exact(node.at, op, left, right)
        return Typed("bool", None)

    def _both_truths(self, node: Chain) -> bool:
        sorts = [self.typed(part).sort for part in node.operands]
        if "bool" in sorts and sorts != ["bool", "bool"]:
            raise ExpressionError(node.at, f"`{node.ops[0]}` compares a condition with a number")
        if sorts == ["bool", "bool"]:
            raise ExpressionError(node.at, "write `iff` between two conditions")
        return False

    def _exact(self, at: int, op: str, left: Expr, right: Expr) -> None:
        for reference in references(left) | references(right):
            if not self._names[reference.name].exact:
                raise ExpressionError(
                    at,
                    f"`{op}` needs exact values, and `{reference.name}` is measured with an error; "
                    "write `abs(a - b) <= tolerance`",
                )
