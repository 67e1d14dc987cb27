"""The syntax tree of the constraint language: built by `parse`, checked by `typecheck`, read by all later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

Form = Literal["now", "prev", "rate", "good", "age", "kept_on", "may_rise", "held"]
# never written by a person: kept_on, may_rise, held (seconds an action has had its value)
Logic = Literal["and", "or", "implies", "iff"]
Arithmetic = Literal["+", "-", "*", "/"]
Comparison = Literal["<=", "<", ">=", ">", "==", "!="]

CONDITIONAL_CALLS = frozenset(
    ("count", "at_most", "exactly")
)  # their arguments, but a first number, are truths


@dataclass(frozen=True, slots=True)
class Number:
    """An exact decimal."""

    at: int  # offset in the user's text
    value: Fraction


@dataclass(frozen=True, slots=True)
class Label:
    """A label of an enum, with the register value it stands for."""

    at: int
    name: str
    value: Fraction


@dataclass(frozen=True, slots=True)
class Truth:
    """`true` or `false`."""

    at: int
    value: bool


@dataclass(frozen=True, slots=True)
class Ref:
    """A variable now, or what `form` says of it. Before `typecheck` it may also be the label of an enum."""

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
    """`x in (1, 2)` for integers, `e in (stop, clear)` for enums."""

    at: int
    operand: Expr
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """abs, min, max, sum, median over numbers; count, at_most, exactly over conditions."""

    at: int
    function: str
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """`if condition then first else second`, both numbers or both conditions."""

    at: int
    condition: Expr
    first: Expr
    second: Expr


@dataclass(frozen=True, slots=True)
class For:
    """`operand for N s`. `row` names the operand's record over the checks, for all modules."""

    at: int
    operand: Expr
    seconds: Fraction
    row: str

    @property
    def key(self) -> str:
        """How forms and points name this condition."""
        return f"for({self.seconds} {self.row})"


Expr = Number | Label | Truth | Ref | Not | Negative | Sum | Connective | Chain | Member | Call | Choice | For


def children(node: Expr) -> tuple[Expr, ...]:  # noqa: PLR0911  one return for each kind of node
    """Direct parts of a node, left to right."""
    match node:
        case Number() | Label() | Truth() | Ref():
            return ()
        case Not() | Negative() | For():
            return (node.operand,)
        case Sum() | Connective():
            return (node.left, node.right)
        case Chain():
            return node.operands
        case Member():
            return (node.operand, *node.values)
        case Call():
            return node.arguments
        case Choice():
            return (node.condition, node.first, node.second)


def rebuilt(node: Expr, change: Callable[[Expr], Expr]) -> Expr:  # noqa: PLR0911  one return for each kind of node
    """The same node with every direct part changed."""
    match node:
        case Number() | Label() | Truth() | Ref():
            return node
        case Not() | Negative() | For():
            return replace(node, operand=change(node.operand))
        case Sum() | Connective():
            return replace(node, left=change(node.left), right=change(node.right))
        case Chain():
            return replace(node, operands=tuple(map(change, node.operands)))
        case Member():
            return replace(node, operand=change(node.operand), values=tuple(map(change, node.values)))
        case Call():
            return replace(node, arguments=tuple(map(change, node.arguments)))
        case Choice():
            return replace(
                node,
                condition=change(node.condition),
                first=change(node.first),
                second=change(node.second),
            )


def renamed(node: Expr, names: Mapping[str, str]) -> Expr:
    """The same tree with its variables named otherwise."""
    if isinstance(node, Ref):
        return replace(node, name=names.get(node.name, node.name))
    return rebuilt(node, lambda part: renamed(part, names))


def references(node: Expr) -> frozenset[Ref]:
    """Every variable reference in a tree, those inside `for` too."""
    if isinstance(node, Ref):
        return frozenset((node,))
    return frozenset().union(*(references(part) for part in children(node)))


def keyed(node: Expr) -> frozenset[Ref | For]:
    """What a point must give a value for: references, and each `for` as a whole."""
    if isinstance(node, Ref | For):
        return frozenset((node,))
    return frozenset().union(*(keyed(part) for part in children(node)))


def timed(node: Expr) -> frozenset[For]:
    """Every `for` in a tree."""
    if isinstance(node, For):
        return frozenset((node,))
    return frozenset().union(*(timed(part) for part in children(node)))
