"""Sorts and units of an expression, and the labels of its enums; every error names the user's own words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from gateway.config.problems import nearest
from gateway.solver.language import units
from gateway.solver.language.parse import ExpressionError
from gateway.solver.language.syntax import (
    CONDITIONAL_CALLS,
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
    children,
    rebuilt,
    references,
    timed,
)
from gateway.solver.language.units import UnitError, Units

Sort = Literal["real", "int", "bool", "enum"]
Labels = Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class Declared:
    """What an expression may know of a name."""

    sort: Sort
    unit: str | None  # None takes the unit of what it is added to
    action: bool
    exact: bool  # register values and error-free readings: equality has a meaning
    labels: Labels | None = None  # of an enum
    disturbance: bool = False
    hidden: bool = False  # a state that nobody measures


@dataclass(frozen=True, slots=True)
class Typed:
    """Sort and units of a tree."""

    sort: Sort
    units: Units = None
    labels: Labels | None = None


_TRUTH = Typed("bool")


def typecheck(
    node: Expr, names: Mapping[str, Declared], want: Literal["number", "truth"], module: str = ""
) -> Expr:
    """The tree with labels and the rows of `for` resolved; raises `ExpressionError` at what is wrong."""
    tree = _resolved(node, names, module)
    found = _Checker(names).typed(tree)
    if want == "truth" and found.sort != "bool":
        raise ExpressionError(node.at, "a condition is expected, not a number")
    if want == "number" and found.sort == "bool" and not isinstance(node, Ref):
        raise ExpressionError(node.at, "a number is expected, not a condition")
    if want == "number" and found.sort == "enum":
        raise ExpressionError(node.at, "a number is expected, and an enum is none")
    return tree


def difference_unit(left: Expr, right: Expr, names: Mapping[str, Declared]) -> str:
    """The unit of `left - right` of two numbers that are compared; empty where nobody can tell."""
    try:
        found = _Checker(names).typed(Sum(0, "-", left, right)).units
    except ExpressionError:
        return ""
    known = {units.difference(unit) for unit in found or ()}
    return known.pop() if len(known) == 1 else ""


def _resolved(node: Expr, names: Mapping[str, Declared], module: str) -> Expr:
    """Labels beside an enum take its register values; `for` takes the module's name."""
    if isinstance(node, For):
        return replace(node, operand=_resolved(node.operand, names, module), row=f"{module}/{node.row}")
    if isinstance(node, Chain):
        labels = _labels(node.operands, names)
        return replace(node, operands=tuple(_labelled(p, labels, names, module) for p in node.operands))
    if isinstance(node, Member):
        labels = _labels((node.operand,), names)
        values = tuple(_labelled(p, labels, names, module) for p in node.values)
        return replace(node, operand=_resolved(node.operand, names, module), values=values)
    return rebuilt(node, lambda part: _resolved(part, names, module))


def _labels(parts: tuple[Expr, ...], names: Mapping[str, Declared]) -> Labels | None:
    for part in parts:
        if isinstance(part, Choice):
            found = _labels((part.first, part.second), names)
            if found is not None:
                return found
        if isinstance(part, Ref) and part.name in names and names[part.name].labels is not None:
            return names[part.name].labels
    return None


def _labelled(node: Expr, labels: Labels | None, names: Mapping[str, Declared], module: str) -> Expr:
    if labels is None:
        return _resolved(node, names, module)
    if isinstance(node, Choice):
        return replace(
            node,
            condition=_resolved(node.condition, names, module),
            first=_labelled(node.first, labels, names, module),
            second=_labelled(node.second, labels, names, module),
        )
    if not isinstance(node, Ref) or node.form != "now" or node.name in names:
        return _resolved(node, names, module)
    if node.name not in labels:
        raise ExpressionError(
            node.at,
            f"`{node.name}` is not one of {', '.join(f'`{n}`' for n in labels)}{nearest(node.name, labels)}",
        )
    return Label(node.at, node.name, labels[node.name])


class _Checker:
    def __init__(self, names: Mapping[str, Declared]) -> None:
        self._names = names

    def typed(self, node: Expr) -> Typed:  # noqa: C901, PLR0911, PLR0912  one return for each kind of node
        match node:
            case Number():
                return Typed("real")
            case Label():
                return Typed("enum")
            case Truth():
                return _TRUTH
            case Ref():
                return self._reference(node)
            case Not(_, operand):
                return self._truths(operand)
            case Connective():
                return self._truths(node.left, node.right)
            case For():
                return self._for(node)
            case Negative(at, operand):
                return Typed("real", self._factor(at, operand))
            case Sum():
                return Typed("real", self._sum(node))
            case Chain():
                return self._chain(node)
            case Member():
                return self._member(node)
            case Call():
                return self._call(node)
            case Choice():
                return self._choice(node)

    def _reference(self, node: Ref) -> Typed:
        declared = self._names.get(node.name)
        if declared is None:
            raise ExpressionError(node.at, self._unknown(node))
        if node.form == "now":
            return Typed(declared.sort, _of(declared), declared.labels)
        if declared.disturbance:
            raise ExpressionError(
                node.at, f"`{node.form}({node.name})` takes a variable, and `{node.name}` is a disturbance"
            )
        if node.form in {"good", "age"} and declared.action:
            raise ExpressionError(
                node.at, f"`{node.form}({node.name})` takes a measured variable, not an action"
            )
        if node.form in {"good", "age"} and declared.hidden:
            raise ExpressionError(
                node.at, f"`{node.form}({node.name})` asks for a reading, and `{node.name}` is never measured"
            )
        match node.form:
            case "good":
                return _TRUTH
            case "age":
                return Typed("real", units.of("s"))
            case "rate":
                if declared.sort in {"bool", "enum"}:
                    word = "a boolean" if declared.sort == "bool" else "an enum"
                    raise ExpressionError(node.at, f"`rate({node.name})` needs a number, not {word}")
                return Typed("real", units.of(units.per_second(declared.unit)) if declared.unit else None)
            case _:
                return Typed(declared.sort, _of(declared), declared.labels)

    def _unknown(self, node: Ref) -> str:
        owners = [n for n, d in self._names.items() if d.labels is not None and node.name in d.labels]
        if owners:
            return f"`{node.name}` is a label: compare it with `{owners[0]}` by `==`, `!=` or `in`"
        return f"`{node.name}` is not a variable of this module{nearest(node.name, self._names)}"

    def _truths(self, *nodes: Expr) -> Typed:
        for node in nodes:
            if self.typed(node).sort != "bool":
                raise ExpressionError(node.at, "a condition is expected, not a number")
        return _TRUTH

    def _for(self, node: For) -> Typed:
        if timed(node.operand):
            raise ExpressionError(node.at, "`for` inside `for` has no meaning; write one duration")
        for reference in references(node.operand):
            declared = self._names.get(reference.name)
            if declared is not None and declared.action and reference.form != "prev":
                raise ExpressionError(
                    reference.at,
                    f"`for` looks back, and `{reference.key}` is proposed only now; "
                    f"write `prev({reference.name})`",
                )
        return self._truths(node.operand)

    def _number(self, node: Expr) -> Units:
        """The units of a number; a boolean variable counts as 0 or 1 of any unit."""
        found = self.typed(node)
        if found.sort == "enum":
            raise ExpressionError(node.at, "an enum is no number; compare it with its labels")
        if found.sort == "bool":
            if not isinstance(node, Ref):
                raise ExpressionError(
                    node.at, "a number is expected, not a condition; `count(...)` makes a number of it"
                )
            return None
        return found.units

    def _joined(self, at: int, *nodes: Expr) -> Units:
        unit: Units = None
        for node in nodes:
            unit = _units(at, units.joined, unit, self._number(node))
        return unit

    def _factor(self, at: int, node: Expr) -> Units:
        found = self._number(node)
        try:
            units.multiplied(found)
        except UnitError as exc:
            raise ExpressionError(at, str(exc)) from exc
        return found - {"degC"} if found is not None else None

    def _sum(self, node: Sum) -> Units:
        if node.op in {"+", "-"}:
            rule = units.added if node.op == "+" else units.subtracted
            return _units(node.at, rule, self._number(node.left), self._number(node.right))
        self._factor(node.at, node.left)
        self._factor(node.at, node.right)
        return None

    def _call(self, node: Call) -> Typed:
        arguments = node.arguments
        match node.function:
            case "count":
                self._truths(*arguments)
                return Typed("real")
            case "at_most" | "exactly":
                number = arguments[0]
                if not isinstance(number, Number) or number.value.denominator != 1:
                    raise ExpressionError(number.at, f"`{node.function}` begins with a whole number")
                self._truths(*arguments[1:])
                return _TRUTH
            case "sum":
                total = self._number(arguments[0])
                for part in arguments[1:]:
                    total = _units(node.at, units.added, total, self._number(part))
                return Typed("real", total)
            case _:
                return Typed("real", self._joined(node.at, *arguments))

    def _choice(self, node: Choice) -> Typed:
        self._truths(node.condition)
        first, second = self.typed(node.first), self.typed(node.second)
        if first.sort == second.sort == "bool":
            return _TRUTH
        if "enum" in {first.sort, second.sort}:
            if first.sort != second.sort:
                raise ExpressionError(node.at, "one branch of `if` is an enum and the other is not")
            if first.labels and second.labels and dict(first.labels) != dict(second.labels):
                raise ExpressionError(node.at, "the branches of `if` are enums with different labels")
            return Typed("enum", None, first.labels or second.labels)
        if "bool" in {first.sort, second.sort} and not all(
            t.sort != "bool" or isinstance(n, Ref) for t, n in ((first, node.first), (second, node.second))
        ):
            raise ExpressionError(node.at, "the branches of `if` must both be numbers or both be conditions")
        return Typed("real", self._joined(node.at, node.first, node.second))

    def _member(self, node: Member) -> Typed:
        found = self.typed(node.operand)
        if not isinstance(node.operand, Ref) or found.sort not in {"int", "enum"}:
            raise ExpressionError(node.at, "`in (...)` takes a whole-number variable or an enum on its left")
        for value in node.values:
            if not isinstance(value, Label if found.sort == "enum" else Number):
                if isinstance(value, Ref):
                    raise ExpressionError(value.at, self._unknown(value))
                word = "a label" if found.sort == "enum" else "a number"
                raise ExpressionError(value.at, f"`{node.operand.key} in (...)` lists {word} each")
        return _TRUTH

    def _chain(self, node: Chain) -> Typed:
        sorts = [self.typed(part) for part in node.operands]
        if any(t.sort == "enum" for t in sorts):
            return self._enums(node, sorts)
        if len(node.ops) == 1 and node.ops[0] in {"==", "!="}:
            truths = [t.sort == "bool" for t in sorts]
            if all(truths):
                raise ExpressionError(node.at, "write `iff` between two conditions")
            if any(truths):
                raise ExpressionError(node.at, f"`{node.ops[0]}` compares a condition with a number")
        self._joined(node.at, *node.operands)
        for op, left, right in zip(node.ops, node.operands, node.operands[1:], strict=False):
            if op in {"==", "!="}:
                self._exact(node.at, op, left, right)
        return _TRUTH

    def _enums(self, node: Chain, sorts: list[Typed]) -> Typed:
        if not set(node.ops) <= {"==", "!="}:
            raise ExpressionError(node.at, "enums compare by `==`, `!=` and `in` only; they have no order")
        if any(t.sort != "enum" for t in sorts):
            raise ExpressionError(node.at, "an enum is compared with its own labels, not with a number")
        kinds = [t.labels for t in sorts if t.labels is not None]
        if any(dict(kind) != dict(kinds[0]) for kind in kinds):
            raise ExpressionError(node.at, "two enums with different labels are compared")
        return _TRUTH

    def _exact(self, at: int, op: str, left: Expr, right: Expr) -> None:
        for reference in (*_read(left), *_read(right)):
            if not self._names[reference.name].exact or reference.form == "age":
                raise ExpressionError(
                    at,
                    f"`{op}` needs exact values, and `{reference.key}` is measured with an error; "
                    "write `abs(a - b) <= tolerance`",
                )


def _of(declared: Declared) -> Units:
    return units.of(declared.unit) if declared.unit else None


def _read(node: Expr) -> Iterator[Ref]:
    """The references that make up a number; what only decides between numbers is left out."""
    if isinstance(node, Ref):
        yield node
    elif isinstance(node, Choice):
        yield from _read(node.first)
        yield from _read(node.second)
    elif not (isinstance(node, Call) and node.function in CONDITIONAL_CALLS):
        for part in children(node):
            yield from _read(part)


def _units(at: int, rule: Callable[[Units, Units], Units], left: Units, right: Units) -> Units:
    try:
        return rule(left, right)
    except UnitError as exc:
        raise ExpressionError(at, str(exc)) from exc
