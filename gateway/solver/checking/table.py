"""Many formulas over one box at once: a sum that several rows share is added up once, in whole numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, lcm
from operator import itemgetter, mul
from typing import NamedTuple, cast

from gateway.solver.rules.interval import VACUOUS, Box, ProductRow, Row, Rows, Scaled, Slack


@dataclass(frozen=True, slots=True)
class _Parts:
    """Parts of which each must hold, or one. Where all are rows, those about actions alone are told apart."""

    every: bool
    nodes: tuple[int | _Parts, ...]
    settled: tuple[int, ...] | None = None  # None where a part is no row
    stateful: tuple[int, ...] = ()


class _Block(NamedTuple):
    """Rows of one group that must all hold unless one of `unless` does; or parts of another shape."""

    unless: tuple[int, ...]  # about actions alone
    rows: tuple[int, ...]
    numbers: Mapping[int, int]  # by row, the formula that it is of
    other: _Parts | None = None  # in place of rows
    number: int = 0  # the block's first formula


Nearest = tuple[int, int, int]  # a formula's number, its slack, and the row that decides it, -1 for none
_Ends = Callable[[Sequence[int]], tuple[int, ...]]
_NOTHING: Box = {}


class Table:
    """The least slack of groups of formulas, such as those of one rule; exactly what each formula says alone.

    Equal rows are looked at once, and so are sums of which one is a multiple of the other. The slack of a row
    is in the unit of its group while it is compared.
    """

    def __init__(self, groups: Sequence[Sequence[Scaled]], fixed: Box = _NOTHING) -> None:
        """A group's formulas may differ in unit; an empty group has no slack.

        `fixed`: symbols whose ends are these in every box that will be asked about.
        """
        self._fixed = fixed
        used = {name for group in groups for formula in group for name in formula.symbols}
        self._names = sorted(used - fixed.keys())
        self._at = {name: 2 * k for k, name in enumerate(self._names)}
        self._sums: list[tuple[tuple[int, ...], _Ends]] = []  # factors, and the ends that make it greatest
        self._sum_of: dict[tuple[tuple[str, int], ...], int] = {}
        self.rows: list[Row] = []
        self._factors: list[int] = []  # by row: from its formula's unit to its group's
        self._row_of: dict[tuple[Row, int], int] = {}
        self._plain: list[tuple[int, int, int]] = []  # by row, its slack: sum, factor, constant
        self._products: list[tuple[int, ProductRow, int]] = []
        self._groups = [self._group(group) for group in groups]
        self._pick = itemgetter(*self._names) if len(self._names) > 1 else None

    def least(self, box: Box) -> list[tuple[int, Slack] | None]:
        """By group, the number of the formula that comes nearest to its limit, and its slack."""
        return [
            None if near is None else (near[0], Slack(near[1], self.rows[near[2]] if near[2] >= 0 else None))
            for near in self.nearest(box)
        ]

    def nearest(self, box: Box) -> list[Nearest | None]:
        """The same, rows by their number in `rows`."""
        values = self._values(box)
        at = values.__getitem__
        return [self._nearest(group, values, at) for group in self._groups]

    def _group(self, formulas: Sequence[Scaled]) -> tuple[_Block, ...]:
        """What was there before is left out, and what must hold beside each other stands side by side."""
        unit = lcm(1, *(formula.unit for formula in formulas))
        seen: set[tuple[Row | Rows, int]] = set()
        blocks: dict[tuple[int, ...], dict[int, int]] = {}
        others: list[_Block] = []
        for number, formula in enumerate(formulas):
            if (formula.formula, formula.unit) in seen:
                continue
            seen.add((formula.formula, formula.unit))
            for part in self._side_by_side(formula.formula):
                node = self._node(part, unit // formula.unit)
                if isinstance(node, int):
                    blocks.setdefault((), {}).setdefault(node, number)
                elif not node.every and node.settled is not None and len(node.stateful) == 1:
                    blocks.setdefault(node.settled, {}).setdefault(node.stateful[0], number)
                else:
                    others.append(_Block((), (), {}, node, number))
        alike = (
            _Block(unless, tuple(rows), rows, None, min(rows.values())) for unless, rows in blocks.items()
        )
        return (*alike, *others)

    def _side_by_side(self, formula: Row | Rows) -> Iterator[Row | Rows]:
        if isinstance(formula, Rows) and formula.every and formula.parts:
            for part in formula.parts:
                yield from self._side_by_side(part)
        else:
            yield formula

    def _node(self, formula: Row | Rows, factor: int) -> int | _Parts:
        formula = _without_shell(formula)
        if not isinstance(formula, Rows):
            return self._row(formula, factor)
        nodes = tuple(self._node(part, factor) for part in _flat(formula))
        rows = [node for node in nodes if isinstance(node, int)]
        if len(rows) < len(nodes):
            return _Parts(formula.every, nodes)
        settled = tuple(row for row in rows if self.rows[row].settled)
        stateful = tuple(row for row in rows if not self.rows[row].settled)
        return _Parts(formula.every, nodes, settled, stateful)

    def _row(self, row: Row, factor: int) -> int:
        key = (row, factor)
        if key not in self._row_of:
            self._row_of[key] = len(self.rows)
            if isinstance(row, ProductRow):
                self._products.append((len(self.rows), row, factor))
                self._plain.append((-1, 0, 0))
            else:
                number, multiple, constant = self._sum(row)
                self._plain.append((number, -multiple * factor, -(constant + row.strict) * factor))
            self.rows.append(row)
            self._factors.append(factor)
        return self._row_of[key]

    def _sum(self, row: Row) -> tuple[int, int, int]:
        """The number of a row's sum, by how much to multiply it, and the greatest value of all the rest."""
        constant = row.constant
        terms: list[tuple[str, int]] = []
        for name, factor in row.terms:
            always = self._fixed.get(name)
            if always is None:
                terms.append((name, factor))
            else:
                constant += factor * always[factor > 0]
        if not terms:
            return -1, 0, constant
        common = gcd(*(factor for _, factor in terms))
        key = tuple((name, factor // common) for name, factor in terms)
        if key not in self._sum_of:
            self._sum_of[key] = len(self._sums)
            ends = [self._at[name] + (factor > 0) for name, factor in key]
            self._sums.append((tuple(factor for _, factor in key), _picking(ends)))
        return self._sum_of[key], common, constant

    def _values(self, box: Box) -> list[int]:
        """The slack of every row."""
        intervals = self._pick(box) if self._pick is not None else [box[name] for name in self._names]
        flat = tuple(itertools.chain.from_iterable(intervals))
        sums = [sum(map(mul, factors, ends(flat))) for factors, ends in self._sums]
        sums.append(0)  # of a row without symbols
        values = [constant + factor * sums[number] for number, factor, constant in self._plain]
        for number, product, factor in self._products:
            values[number] = product.slack(box) * factor
        return values

    def _nearest(
        self, group: tuple[_Block, ...], values: Sequence[int], at: Callable[[int], int]
    ) -> Nearest | None:
        least: tuple[int, int, int] | None = None
        for unless, rows, numbers, other, first in group:
            if other is not None:
                found = self._slack(other, values)
                mine = (found[0], first, found[1])
            elif unless and max(map(at, unless)) >= 0:
                mine = (VACUOUS, first, -1)
            else:
                row = min(rows, key=at) if len(rows) > 1 else rows[0]
                mine = (values[row], numbers[row], row)
            if least is None or mine < least:
                least = mine
        if least is None:
            return None
        value, number, row = least
        return number, value if row < 0 else value // self._factors[row], row

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
            if found[1] < 0 or self.rows[found[1]].settled:
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
