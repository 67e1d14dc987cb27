"""The unit that the distance to a rule's limit is in: that of the comparison which decides.

What a comparison compares is in one unit, as a sum is. Of products, of
quotients, of bare numbers and of conditions about switches nobody can tell, and their unit is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.core.tag import TagId
from gateway.solver.language import normal
from gateway.solver.language.affine import Atom, Form, atoms
from gateway.solver.language.parse import ExpressionError
from gateway.solver.language.syntax import Chain, Expr, Member, Number, Sum, children
from gateway.solver.language.typecheck import Declared, difference_unit
from gateway.solver.modules.module import Variable
from gateway.solver.rules.canonical import form_text
from gateway.solver.rules.interval import Row, Scaled
from gateway.solver.rules.ruleset import Rule


@dataclass(frozen=True, slots=True)
class MarginUnits:
    """Of one rule: the unit of each of its rows, as they stand in its formula from left to right."""

    by_row: tuple[str, ...]
    only: str | None = field(init=False)  # the unit of every row, None where they differ

    def __post_init__(self) -> None:
        object.__setattr__(self, "only", self.by_row[0] if len(set(self.by_row)) == 1 else None)

    def of(self, formula: Scaled, row: Row) -> str:
        """Of a row of the rule's formula at some instant, which has its rows in the same order."""
        if self.only is not None:
            return self.only
        return next((unit for each, unit in zip(formula.rows, self.by_row, strict=False) if each == row), "")


def margin_units(rule: Rule, variables: Mapping[TagId, Variable]) -> MarginUnits:
    """What each row of a rule measures."""
    names = {
        str(v.tag): Declared(v.sort, v.unit or None, v.action, exact=True, labels={}, hidden=v.hidden)
        for v in variables.values()
    }
    known: dict[str, str] = {}
    for left, right, part in _compared(rule.tree):
        try:
            found = normal.formula(part)
        except ExpressionError:
            continue
        unit = "" if _divides(left) or _divides(right) else difference_unit(left, right, names)
        for atom in atoms(found):
            for form in (atom.form, atom.form.times(Fraction(-1))):
                known.setdefault(form_text(form), unit)
    return MarginUnits(tuple(_unit_of(atom, known) for atom in atoms(rule.formula)))


def _unit_of(atom: Atom, known: Mapping[str, str]) -> str:
    form: Form = atom.form
    return known.get(form_text(form), "")


def _divides(tree: Expr) -> bool:
    """By something that is not known: the comparison is multiplied out, and its distance with it."""
    by_unknown = isinstance(tree, Sum) and tree.op == "/" and not isinstance(tree.right, Number)
    return by_unknown or any(map(_divides, children(tree)))


def _compared(tree: Expr) -> Iterator[tuple[Expr, Expr, Expr]]:
    """Both sides of every comparison, inner ones first, and the comparison alone."""
    for part in children(tree):
        yield from _compared(part)
    if isinstance(tree, Chain):
        for op, left, right in zip(tree.ops, tree.operands, tree.operands[1:], strict=False):
            yield left, right, Chain(tree.at, (op,), (left, right))
    elif isinstance(tree, Member):
        for value in tree.values:
            yield tree.operand, value, Chain(tree.at, ("==",), (tree.operand, value))
