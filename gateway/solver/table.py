"""Many formulas over one box at once: a sum that several rows share is added up once, in whole numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd, lcm
from operator import itemgetter, mul
from typing import cast

from gateway.solver.interval import VACUOUS, Box, ProductRow, Row, Rows, Scaled, Slack


@dataclass(frozen=True, slots=True)
class _Parts:
    """Parts of which each must hold, or one. Where all are rows, those about actions alone are told apart."""

    every: bool
    nodes: tuple[int | _Parts, ...]
    settled: tuple[int, ...] | None = None  # None where a part is no row
    stateful: tuple[int, ...] = ()


_Entry = tuple[int, int, "int | _Parts"]  # a formula's number, factor to the group's unit, row or parts
_Ends = Callable[[Sequence[int]], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Sum:
    """`sum(factor * end)`: the ends of a flat box that make it greatest."""

    factors: tuple[int, ...]
    ends: _Ends


class Table:
    """The least slack of groups of formulas, such as those of one rule; exactly what each formula says alone.

    Equal rows are looked at once, and so are sums of which one is a multiple of the other.
    """

    def __init__(self, groups: Sequence[Sequence[Scaled]]) -> None:
        """A group's formulas may differ in unit; an empty group has no slack."""
        used = {name for group in groups for formula in group for name in formula.symbols}
        self._names = sorted(used)
        self._at = {name: 2 * k for k, name in enumerate(self._names)}
        self._sums: list[_Sum] = []
        self._sum_of: dict[tuple[tuple[str, int], ...], int] = {}
        self._rows: list[Row] = []
        self._row_of: dict[Row, int] = {}
        self._plain: list[tuple[int, int, int, int]] = []  # row, sum, factor, constant
        self._groups = [self._group(group) for group in groups]
        self._pick = itemgetter(*self._names) if len(self._names) > 1 else None

    def least(self, box: Box) -> list[tuple[int, Slack] | None]:
        """By group, the number of the formula that comes nearest to its limit, and its slack."""
        values = self._values(box)
        return [self._nearest(group, values) for group in self._groups]

    def _group(self, formulas: Sequence[Scaled]) -> tuple[_Entry, ...]:
        """What was there before is left out, and what must hold beside each other stands side by side."""
        unit = lcm(1, *(formula.unit for formula in formulas))
        found: dict[tuple[Row | Rows, int], tuple[_Entry, ...]] = {}
        for number, formula in enumerate(formulas):
            key = (formula.formula, formula.unit)
            if key not in found:
                factor = unit // formula.unit
                found[key] = tuple((number, factor, node) for node in self._side_by_side(formula.formula))
        return tuple(itertools.chain.from_iterable(found.values()))

    def _side_by_side(self, formula: Row | Rows) -> Iterator[int | _Parts]:
        if isinstance(formula, Rows) and formula.every and formula.parts:
            for part in formula.parts:
                yield from self._side_by_side(part)
        else:
            yield self._node(formula)

    def _node(self, formula: Row | Rows) -> int | _Parts:
        formula = _without_shell(formula)
        if isinstance(formula, Rows):
            nodes = tuple(self._node(part) for part in _flat(formula))
            rows = [node for node in nodes if isinstance(node, int)]
            if len(rows) < len(nodes):
                return _Parts(formula.every, nodes)
            settled = tuple(row for row in rows if self._rows[row].settled)
            stateful = tuple(row for row in rows if not self._rows[row].settled)
            return _Parts(formula.every, nodes, settled, stateful)
        if formula not in self._row_of:
            self._row_of[formula] = len(self._rows)
            if not isinstance(formula, ProductRow):
                self._plain.append((len(self._rows), *self._sum(formula), formula.constant + formula.strict))
            self._rows.append(formula)
        return self._row_of[formula]

    def _sum(self, row: Row) -> tuple[int, int]:
        """The number of a row's sum, and by how much to multiply it."""
        if not row.terms:
            return -1, 0
        common = gcd(*(factor for _, factor in row.terms))
        key = tuple((name, factor // common) for name, factor in row.terms)
        if key not in self._sum_of:
            self._sum_of[key] = len(self._sums)
            ends = [self._at[name] + (factor > 0) for name, factor in key]
            self._sums.append(_Sum(tuple(factor for _, factor in key), _picking(ends)))
        return self._sum_of[key], common

    def _values(self, box: Box) -> list[int]:
        """The slack of every row."""
        intervals = self._pick(box) if self._pick is not None else [box[name] for name in self._names]
        flat = tuple(itertools.chain.from_iterable(intervals))
        sums = [sum(map(mul, s.factors, s.ends(flat))) for s in self._sums]
        sums.append(0)  # of a row without symbols
        values = [0] * len(self._rows)
        for row, number, factor, constant in self._plain:
            values[row] = -constant - factor * sums[number]
        if len(self._plain) < len(self._rows):
            for number, product in enumerate(self._rows):
                if isinstance(product, ProductRow):
                    values[number] = product.slack(box)
        return values

    def _nearest(self, group: tuple[_Entry, ...], values: Sequence[int]) -> tuple[int, Slack] | None:
        nearest: int | None = None
        best = (0, 0, -1)
        for number, factor, node in group:
            value, row = (values[node], node) if isinstance(node, int) else self._slack(node, values)
            if nearest is None or value * factor < nearest:
                nearest, best = value * factor, (number, value, row)
        if nearest is None:
            return None
        number, value, row = best
        return number, Slack(value, self._rows[row] if row >= 0 else None)

    def _slack(self, node: int | _Parts, values: Sequence[int]) -> tuple[int, int]:
        """A node's slack and the row that decides it, -1 for none."""
        if isinstance(node, int):
            return values[node], node
        if not node.every:
            return self._alternatives(node, values)
        best = (VACUOUS, -1)
        for index, part in enumerate(node.nodes):
            found = self._slack(part, values)
            if not index or found[0] < best[0]:
                best = found
        return best

    def _alternatives(self, node: _Parts, values: Sequence[int]) -> tuple[int, int]:
        """One part must hold. A part about actions alone is true or false; its distance means nothing."""
        if node.settled is None:
            return self._mixed(node.nodes, values)
        for row in node.settled:
            if values[row] >= 0:
                return VACUOUS, -1
        rows = node.stateful or node.settled
        if not rows:
            return -VACUOUS, -1
        greatest = rows[0]
        for row in rows:
            if values[row] > values[greatest]:
                greatest = row
        return values[greatest], greatest

    def _mixed(self, nodes: Iterable[int | _Parts], values: Sequence[int]) -> tuple[int, int]:
        stateful: tuple[int, int] | None = None
        settled: tuple[int, int] | None = None
        for part in nodes:
            found = self._slack(part, values)
            if found[1] < 0 or self._rows[found[1]].settled:
                if found[0] >= 0:
                    return VACUOUS, -1
                settled = found if settled is None or found[0] > settled[0] else settled
            elif stateful is None or found[0] > stateful[0]:
                stateful = found
        return stateful or settled or (-VACUOUS, -1)


def _flat(formula: Rows) -> Iterator[Row | Rows]:
    """Its parts, and in place of one that is of its own kind the parts of that."""
    for part in map(_without_shell, formula.parts):
        if isinstance(part, Rows) and part.parts and part.every == formula.every:
            yield from _flat(part)
        else:
            yield part


def _without_shell(formula: Row | Rows) -> Row | Rows:
    """What a group of one says. As the only alternative a row about actions alone has no distance."""
    while isinstance(formula, Rows) and len(formula.parts) == 1:
        part = formula.parts[0]
        if not formula.every and (isinstance(part, Rows) or part.settled):
            break
        formula = part
    return formula


def _picking(ends: list[int]) -> _Ends:
    if len(ends) == 1:
        only = ends[0]
        return lambda flat: (flat[only],)
    return cast("_Ends", itemgetter(*ends))
