"""Worst cases of conditions over many intervals at once: `interval` in floats, and where they cannot tell."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm
from typing import Protocol

import numpy as np

from gateway.solver.backtest.evidence import Bools, Floats, Ints
from gateway.solver.backtest.spans import GRID, NEAR, Span, near
from gateway.solver.rules.interval import SCALE, SETTLED, ProductRow, Row, Rows, Scaled

VACUOUS = np.inf
_MOST_CORNERS = (
    6  # symbols of products whose corners are all looked at here; of more the exact judge is asked
)
_BELOW = -1e-18  # of a strict limit that is just reached


@dataclass(frozen=True, slots=True)
class Worst:
    """The least distance of each decision to a limit, in the user's unit; it holds where that is not below 0.

    `alone`: what decides is about actions alone. `off`: how far the distance may be from the exact one.
    `doubtful`: floats cannot tell. `sure`: where it does not hold, the point that says so surely violates it.
    `row`: the row that decides, by its place in the sheet; -1: none.
    """

    value: Floats
    alone: Bools
    off: Floats
    doubtful: Bools
    sure: Bools
    row: Ints


class Intervals(Protocol):
    """What a sheet asks for its symbols."""

    count: int

    def __getitem__(self, name: str) -> Span:
        """A symbol's interval in each decision."""
        ...


class Corners:
    """For some decisions, the point that is worst for one row; others are low if settled, else halfway."""

    def __init__(self, intervals: Intervals, rows: Ints, row: Row) -> None:
        self._intervals, self._rows = intervals, rows
        self._upper = {name: factor > 0 for name, factor in row.terms}
        self.count = len(rows)

    def __getitem__(self, name: str) -> Span:
        span = self._intervals[name]
        if name in self._upper:
            end, wide = span.end(upper=self._upper[name])
        elif name.startswith(SETTLED):
            end, wide = span.end(upper=False)
        else:
            end, wide = (span.low + span.high) / 2, np.maximum(np.asarray(span.off), NEAR)
        off = np.broadcast_to(np.asarray(wide, dtype=np.float64), end.shape)
        return Span(end[self._rows], end[self._rows], off[self._rows])


@dataclass(frozen=True, slots=True)
class Scale:
    """A row in the user's unit; `gap`: the denominator of its value where its symbols lie on the grid."""

    constant: float
    shares: tuple[tuple[str, float], ...]
    gap: float


class Scales:
    """The scales of rows, worked out once; a step's numerator is in every rate."""

    def __init__(self, step: Fraction) -> None:
        self._step = step
        self._known: dict[tuple[Row, int], Scale] = {}

    def of(self, row: Row, unit: int) -> Scale:
        """The scale of a row whose formula has that unit."""
        if (row, unit) not in self._known:
            constant = Fraction(row.constant, unit)
            shares = [(name, Fraction(factor * SCALE, unit)) for name, factor in row.terms]
            step = self._step.numerator if any(name.startswith("rate:") for name, _ in shares) else 1
            whole = lcm(constant.denominator, *(share.denominator for _, share in shares))
            self._known[row, unit] = Scale(
                float(constant), tuple((n, float(s)) for n, s in shares), float(whole * GRID * step)
            )
        return self._known[row, unit]


class Sheet:
    """Formulas over the symbols of some decisions; rows that several formulas share are worked out once."""

    def __init__(self, symbols: Intervals, scales: Scales) -> None:
        self._symbols, self._scales = symbols, scales
        self._rows: dict[tuple[Row, int], Worst] = {}
        self._places: list[Row] = []

    def worst(self, formula: Scaled) -> Worst:
        """The worst case of a formula."""
        return self._node(formula.formula, formula.unit)

    def at_corners(self, formula: Scaled, rows: Ints, deciding: Ints) -> tuple[Bools, Bools]:
        """Whether the worst point of the deciding row violates the formula; and where floats cannot tell."""
        violates, doubtful = np.zeros(len(rows), dtype=np.bool_), np.zeros(len(rows), dtype=np.bool_)
        for place in np.unique(deciding):
            these = np.flatnonzero(deciding == place)
            if place < 0 or isinstance(self._places[place], ProductRow):
                doubtful[these] = True
                continue
            corners = Corners(self._symbols, rows[these], self._places[place])
            found = Sheet(corners, self._scales).worst(formula)
            violates[these] = found.value < 0
            doubtful[these] = found.doubtful
        return violates, doubtful

    def _node(self, node: Row | Rows, unit: int) -> Worst:
        if isinstance(node, Row):
            if (node, unit) not in self._rows:
                self._places.append(node)
                self._rows[node, unit] = self._row(node, unit)
            return self._rows[node, unit]
        parts = [self._node(part, unit) for part in node.parts]
        return self._every(parts) if node.every else self._some(node, parts)

    def _filled(self, value: float, *, doubtful: bool = False) -> Worst:
        count = self._symbols.count
        yes, no = np.ones(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
        none = np.full(count, -1)
        return Worst(np.full(count, value), yes, np.zeros(count), yes if doubtful else no, yes, none)

    def _row(self, row: Row, unit: int) -> Worst:
        if isinstance(row, ProductRow):
            return self._products(row, unit)
        scale = self._scales.of(row, unit)
        total = np.full(self._symbols.count, scale.constant)
        size, off = np.abs(total), np.zeros(self._symbols.count)
        for name, share in scale.shares:
            end, wide = self._symbols[name].end(upper=share > 0)
            part = share * end
            total += part
            size += np.abs(part)
            off += abs(share) * np.asarray(wide)
        return self._settled(row, scale.gap, -total, off, size)

    def _settled(self, row: Row, gap: float, slack: Floats, off: Floats, size: Floats) -> Worst:
        """One row's verdict: a slack of whole grid steps that is nearer to 0 than one step is 0."""
        rounding = near(size)
        close = np.abs(slack) <= off + rounding
        exact = (off == 0) & (1 / gap > 2 * rounding)
        slack = np.where(close & exact, _BELOW if row.strict else 0.0, slack)
        alone = np.full(len(slack), row.settled)
        sure, here = np.ones(len(slack), dtype=np.bool_), np.full(len(slack), len(self._places) - 1)
        return Worst(slack, alone, off + rounding, close & ~exact, sure, here)

    def _products(self, row: ProductRow, unit: int) -> Worst:
        names = sorted({name for pair, _ in row.corners for name in pair})
        if len(names) > _MOST_CORNERS:
            return self._filled(0.0, doubtful=True)
        count = self._symbols.count
        total = np.full(count, float(Fraction(row.constant, unit)))
        size, off = np.abs(total), np.zeros(count)
        for name, factor in row.inner:
            span, share = self._symbols[name], float(Fraction(factor * SCALE * SCALE, unit))
            inside = (span.low < 0) & (span.high > 0)
            least = np.where(inside, 0.0, np.minimum(np.abs(span.low), np.abs(span.high)))
            total, size = total + share * least**2, size + abs(share) * least**2
            off = off + abs(share) * (2 * least + 1) * np.asarray(span.off)
        linear = {name: float(Fraction(factor * SCALE, unit)) for name, factor in row.terms}
        for name, share in linear.items():
            span = self._symbols[name]
            most = np.maximum(np.abs(span.low), np.abs(span.high))
            size, off = size + abs(share) * most, off + abs(share) * np.asarray(span.off)
            if name not in names:
                total = total + share * (span.high if share > 0 else span.low)
        pairs = [(a, b, float(Fraction(f * SCALE * SCALE, unit))) for (a, b), f in row.corners]
        for a, b, share in pairs:
            one, two = self._symbols[a], self._symbols[b]
            most_a, most_b = (np.maximum(np.abs(s.low), np.abs(s.high)) for s in (one, two))
            size = size + abs(share) * most_a * most_b
            off = off + abs(share) * (most_a * np.asarray(two.off) + most_b * np.asarray(one.off))
        best: Floats | None = None
        for ends in itertools.product((False, True), repeat=len(names)):
            at = {
                n: self._symbols[n].high if high else self._symbols[n].low
                for n, high in zip(names, ends, strict=True)
            }
            value = sum((linear[n] * at[n] for n in names if n in linear), np.zeros(count))
            for a, b, share in pairs:
                value = value + share * at[a] * at[b]
            best = value if best is None else np.maximum(best, value)
        slack = -(total + (0.0 if best is None else best))
        tolerance = off + near(size)
        sure = np.ones(count, dtype=np.bool_)
        alone, here = np.full(count, row.settled), np.full(count, len(self._places) - 1)
        return Worst(slack, alone, tolerance, np.abs(slack) <= tolerance, sure, here)

    def _every(self, parts: list[Worst]) -> Worst:
        """The least. One that surely fails settles it, whatever is in doubt beside it."""
        if not parts:
            return self._filled(VACUOUS)
        found = parts[0]
        fails = (found.value < 0) & ~found.doubtful
        for part in parts[1:]:
            less, off = part.value < found.value, np.maximum(found.off, part.off)
            # Which of two that are equally near decides may matter to what is around them.
            tied = (part.alone != found.alone) & (np.abs(part.value - found.value) <= off)
            fails = fails | ((part.value < 0) & ~part.doubtful)
            found = Worst(
                np.where(less, part.value, found.value),
                np.where(less, part.alone, found.alone),
                off,
                found.doubtful | part.doubtful | tied,
                np.where(less, part.sure, found.sure),
                np.where(less, part.row, found.row),
            )
        return replace(found, doubtful=found.doubtful & ~fails)

    def _some(self, node: Rows, parts: list[Worst]) -> Worst:
        """One must hold. A part about actions alone is true or false; its distance means nothing."""
        if not parts:
            return self._filled(-VACUOUS)
        count = self._symbols.count
        low = np.full(count, -VACUOUS)
        stateful, settled = low, low
        holds = np.zeros(count, dtype=np.bool_)
        doubtful, off = holds, np.zeros(count)
        others = np.zeros(count)
        rows = [np.full(count, -1), np.full(count, -1)]  # of the greatest stateful and settled part
        for part in parts:
            holds = holds | (part.alone & (part.value >= 0) & ~part.doubtful)
            doubtful, off = doubtful | part.doubtful, np.maximum(off, part.off)
            more = ~part.alone & (part.value > stateful)
            stateful, rows[0] = np.where(more, part.value, stateful), np.where(more, part.row, rows[0])
            more = part.alone & (part.value > settled)
            settled, rows[1] = np.where(more, part.value, settled), np.where(more, part.row, rows[1])
            others = others + ~part.alone
        has = others > 0
        value = np.where(holds, VACUOUS, np.where(has, stateful, settled))
        fixed = self._points(node)
        sure = (others <= 1) & fixed
        for part in parts:
            sure = sure & part.sure
        row = np.where(holds, -1, np.where(has, rows[0], rows[1]))
        return Worst(value, holds | ~has, off, doubtful & ~holds, sure, row)

    def _points(self, node: Rows) -> Bools:
        """Where everything about actions alone is known exactly, so that its truth is the same everywhere."""
        found = np.ones(self._symbols.count, dtype=np.bool_)
        for name in _settled_names(node):
            span = self._symbols[name]
            found = found & (span.low == span.high)
        return found


def _settled_names(node: Row | Rows) -> set[str]:
    if isinstance(node, Row):
        names = {name for name, _ in node.terms}
        if isinstance(node, ProductRow):
            names |= {n for pair, _ in node.corners for n in pair} | {n for n, _ in node.inner}
        return names if node.settled else set()
    return set().union(*(_settled_names(part) for part in node.parts))
