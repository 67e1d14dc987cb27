"""By how much a violated rule misses its limit, in the user's own unit."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from operator import itemgetter

from gateway.core.tag import TagId
from gateway.solver.rules.interval import Box, ProductRow, Row, Rows, Scaled
from gateway.solver.rules.ruleset import RuleSet

_FLAGS = ("kept_on:", "may_rise:", "for:", "good:")  # symbols that are true or false


def missed(rules: RuleSet, formula: Scaled, within: Box) -> tuple[Fraction, Row] | None:
    """The distance, always negative, and the row that it is of.

    None where only switches and named values are in it, which have none. A part about switches alone is true
    or false: beside a part that can be measured it says nothing.
    """
    miss = _miss(rules, formula.formula, within)
    return None if miss is None else (Fraction(miss[0], formula.unit), miss[1])


def _miss(rules: RuleSet, formula: Row | Rows, within: Box) -> tuple[int, Row] | None:
    if isinstance(formula, Row):
        slack = formula.slack(within)
        flags = all(_is_flag(rules, n) for n in _names(formula))
        return (slack, formula) if slack < 0 and not flags else None
    found = [m for part in formula.parts if (m := _miss(rules, part, within)) is not None]
    return (min if formula.every else max)(found, key=itemgetter(0), default=None)


def _names(row: Row) -> Iterator[str]:
    yield from (name for name, _ in row.terms)
    if isinstance(row, ProductRow):
        yield from (name for pair, _ in row.corners for name in pair)
        yield from (name for name, _ in row.inner)


def _is_flag(rules: RuleSet, symbol: str) -> bool:
    if symbol.startswith(_FLAGS):
        return True
    variable = rules.variables.get(TagId(symbol.partition(":")[2]))
    return variable is not None and variable.sort in {"bool", "enum"}
