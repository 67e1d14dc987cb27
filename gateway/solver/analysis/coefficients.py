"""The unit that every bare number of a module took (docs/language.md, Units)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gateway.core.tag import decimal_text
from gateway.solver.analysis.findings import UnitRow
from gateway.solver.language.syntax import (
    CONDITIONAL_CALLS,
    Call,
    Chain,
    Choice,
    Expr,
    Negative,
    Number,
    Ref,
    Sum,
    children,
)
from gateway.solver.language.units import canonical, difference, per_second
from gateway.solver.modules.module import Module


def units(module: Module) -> Iterator[UnitRow]:
    """One row for each bare number with a unit: those of the dynamics first, then of the rules and sets."""
    names = {v.name: canonical(v.unit) for v in module.variables.values()}
    seen: set[UnitRow] = set()
    for name, tree in module.dynamics.items():
        reader = _Reader(names, module.source, f"dynamics of {name}")
        yield from _fresh(reader.number(tree, _amount(names[name])), seen)
    for rule in (*module.rules, *module.safe_set, *module.terminal):
        if rule.line and "." not in rule.id:
            reader = _Reader(names, f"{module.source}:{rule.line}", rule.id)
            for part in (rule.when, rule.require):
                if part is not None:
                    yield from _fresh(reader.truth(part), seen)


def _fresh(rows: Iterator[UnitRow], seen: set[UnitRow]) -> Iterator[UnitRow]:
    for row in rows:
        if row not in seen:
            seen.add(row)
            yield row


def _amount(unit: str) -> str:
    """The unit of a factor's product: of a difference where the unit is one of points."""
    return difference(unit) if unit else ""


def _beside(unit: str, other: str, *, point: bool = False) -> str:
    """The unit of a number in a sum of `unit`, beside something in `other`, which may be one of points.

    `point`: something is taken from it, so that beside a point it is a point itself.
    """
    if _amount(other) == other:
        return unit
    return _amount(unit) if unit == other and not point else other


def _quotient(amount: str, per: str) -> str:
    """The unit of a factor; empty where it is a bare number, or nobody knows."""
    if not amount or amount == per:
        return ""
    if not per:
        return amount
    return f"{amount}/({per})" if "/" in per else f"{amount}/{per}"


@dataclass(frozen=True, slots=True)
class _Reader:
    """Walks the expressions of one place."""

    names: Mapping[str, str]
    where: str
    subject: str

    def truth(self, node: Expr) -> Iterator[UnitRow]:
        """Every number below a condition."""
        if isinstance(node, Chain):
            unit = next((u for u in map(self._unit, node.operands) if u), "")
            for operand in node.operands:
                yield from self.number(operand, unit)
        elif isinstance(node, Call) and node.function in {"at_most", "exactly"}:
            for part in node.arguments[1:]:
                yield from self.truth(part)
        else:
            for part in children(node):
                yield from self.truth(part)

    def number(  # noqa: C901, PLR0912  one case for each kind of node
        self, node: Expr, unit: str
    ) -> Iterator[UnitRow]:
        """Every bare number of a value in `unit`; empty: nobody knows, or there is none."""
        match node:
            case Number(_, value):
                if unit and value:
                    yield UnitRow(
                        where=self.where, subject=self.subject, number=decimal_text(value), unit=unit
                    )
            case Sum(_, "+" | "-" as op, left, right):
                yield from self.number(left, _beside(unit, self._unit(right), point=op == "-"))
                yield from self.number(right, _beside(unit, self._unit(left)))
            case Sum(_, "*", left, right):
                yield from self._product(left, right, unit)
            case Sum(_, "/", left, Number()):
                yield from self.number(left, unit)
            case Negative(_, operand):
                yield from self.number(operand, unit)
            case Choice(_, condition, first, second):
                yield from self.truth(condition)
                for branch in (first, second):
                    yield from self.number(branch, unit)
            case Call(_, function, arguments) if function not in CONDITIONAL_CALLS:
                for argument in arguments:
                    yield from self.number(argument, unit)
            case Call(_, _, arguments):
                for argument in arguments:
                    yield from self.truth(argument)
            case _:
                return

    def _product(self, left: Expr, right: Expr, unit: str) -> Iterator[UnitRow]:
        for factor, other in ((left, right), (right, left)):
            inner = self._unit(other)
            if not isinstance(factor, Number):
                yield from self.number(factor, _amount(self._unit(factor)))
            elif took := _quotient(_amount(unit), _amount(inner)):
                number = decimal_text(factor.value)
                yield UnitRow(where=self.where, subject=self.subject, number=number, unit=took)

    def _unit(self, node: Expr) -> str:  # noqa: PLR0911  one return for each kind of node
        """The unit that the names in a number give it; empty where they give none."""
        match node:
            case Ref(_, name, form):
                unit = self.names.get(name, "")
                if form == "rate":
                    return per_second(unit) if unit else ""
                return "s" if form == "age" else unit
            case Sum(_, "+" | "-", left, right):
                first, second = self._unit(left), self._unit(right)
                if first and first == second and node.op == "-":
                    return _amount(first)
                return first or second
            case Negative(_, operand):
                return self._unit(operand)
            case Choice(_, _, first_branch, second_branch):
                return self._unit(first_branch) or self._unit(second_branch)
            case Call(_, function, arguments) if function not in CONDITIONAL_CALLS:
                return next((u for u in map(self._unit, arguments) if u), "")
            case _:
                return ""
