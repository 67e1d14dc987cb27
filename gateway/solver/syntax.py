"""The syntax tree of the constraint language: built by `parse`, checked by `typecheck`, read by all later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

Form = Literal["now", "prev", "rate", "kept_on", "may_rise"]  # the last two are never written by a person
Logic = Literal["and", "or", "implies", "iff"]
Arithmetic = Literal["+", "-", "*", "/"]
Comparison = Literal["<=", "<", ">=", ">", "==", "!="]


@dataclass(frozen=True, slots=True)
class Number:
    """An exact decimal."""

    at: int  # offset in the user's text
    value: Fraction


@dataclass(frozen=True, slots=True)
class Truth:
    """`true` or `false`."""

    at: int
    value: bool


@dataclass(frozen=True, slots=True)
class Ref:
    """A variable now, in force before this decision (`prev`), or its change per second (`rate`)."""

    at: int
    name: str
    form: Form = "now"

    @property
    def key(self) -> str:
        """How forms and points name this reference."""
        return self.name if self.form == "now" else f"{self.form}({self.name})"


@dataclass(frozen=True, slots=True)
class Not:
    """Logical negation."""

    at: int
    operand: Expr


@dataclass(frozen=True, slots=True)
class Negative:
    """Arithmetic negation."""

    at: int
    operand: Expr


@dataclass(frozen=True, slots=True)
class Sum:
    """Two operands and one of + - * /."""

    at: int
    op: Arithmetic
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Connective:
    """Two truth values and one of and, or, implies, iff."""

    at: int
    op: Logic
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Chain:
    """`a <= b < c`: every neighbouring pair compares as written; `len(ops) == len(operands) - 1`."""

    at: int
    ops: tuple[Comparison, ...]
    operands: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """`x in (1, 2)` for integers."""

    at: int
    operand: Expr
    values: tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """abs, min or max."""

    at: int
    function: str
    arguments: tuple[Expr, ...]


Expr = Number | Truth | Ref | Not | Negative | Sum | Connective | Chain | Member | Call


def children(node: Expr) -> tuple[Expr, ...]:
    """Direct parts of a node, left to right."""
    match node:
        case Number() | Truth() | Ref():
            return ()
        case Not() | Negative():
            return (node.operand,)
        case Sum() | Connective():
            return (node.left, node.right)
        case Chain():
            return node.operands
        case Member():
            return (node.operand, *node.values)
        case Call():
            return node.arguments


def renamed(node: Expr, names: Mapping[str, str]) -> Expr:  # noqa: PLR0911  one return for each kind of node
    """The same tree with its variables named otherwise."""
    match node:
        case Number() | Truth():
            return node
        case Ref():
            return replace(node, name=names.get(node.name, node.name))
        case Not() | Negative():
            return replace(node, operand=renamed(node.operand, names))
        case Sum() | Connective():
            return replace(node, left=renamed(node.left, names), right=renamed(node.right, names))
        case Chain():
            return replace(node, operands=tuple(renamed(part, names) for part in node.operands))
        case Member():
            return replace(node, operand=renamed(node.operand, names))
        case Call():
            return replace(node, arguments=tuple(renamed(part, names) for part in node.arguments))


def references(node: Expr) -> frozenset[Ref]:
    """Every variable reference in a tree."""
    if isinstance(node, Ref):
        return frozenset((node,))
    return frozenset().union(*(references(part) for part in children(node)))
