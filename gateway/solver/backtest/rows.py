"""Worst cases of conditions over many intervals at once: `interval` in floats, and where they cannot tell."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm

import numpy as np

from gateway.solver.backtest.evidence import Bools, Floats
from gateway.solver.backtest.spans import GRID, near
from gateway.solver.backtest.symbols import Symbols
from gateway.solver.interval import SCALE, ProductRow, Row, Rows, Scaled

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
    """

    value: Floats
    alone: Bools
    off: Floats
    doubtful: Bools
    sure: Bools


class Sheet:
    """Formulas over the symbols of some decisions; rows that several formulas share are worked out once."""

    def __init__(self, symbols: Symbols, step: Fraction) -> None:
        self._symbols, self._step = symbols, step
        self._rows: dict[tuple[Row, int], Worst] = {}

    def worst(self, formula: Scaled) -> Worst:
        """The worst case of a formula."""
        return self._node(formula.formula, formula.unit)

    def _node(self, node: Row | Rows, unit: int) -> Worst:
        if isinstance(node, Row):
            if (node, unit) not in self._rows:
                self._rows[node, unit] = self._row(node, unit)
            return self._rows[node, unit]
        parts = [self._node(part, unit) for part in node.parts]
        return self._every(parts) if node.every else self._some(node, parts)

    def _filled(self, value: float, *, doubtful: bool = False) -> Worst:
        count = self._symbols.count
        yes, no = np.ones(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
        return Worst(np.full(count, value), yes, np.zeros(count), yes if doubtful else no, yes)

    def _row(self, row: Row, unit: int) -> Worst:
        if isinstance(row, ProductRow):
            return self._products(row, unit)
        total = np.full(self._symbols.count, float(Fraction(row.constant, unit)))
        size, off = np.abs(total), np.zeros(self._symbols.count)
        for name, factor in row.terms:
            span, share = self._symbols[name], float(Fraction(factor * SCALE, unit))
            end, wide = span.end(upper=factor > 0)
            total, size = total + share * end, size + np.abs(share * end)
            off = off + abs(share) * np.asarray(wide)
        return self._settled(row, unit, -total, off, size)

    def _settled(self, row: Row, unit: int, slack: Floats, off: Floats, size: Floats) -> Worst:
        """One row's verdict: a slack of whole grid steps that is nearer to 0 than one step is 0."""
        close = np.abs(slack) <= off + near(size)
        exact = (off == 0) & (1 / self._gap(row, unit) > 2 * near(size))
        zero = close & exact
        slack = np.where(zero, _BELOW if row.strict else 0.0, slack)
        alone = np.full(len(slack), row.settled)
        return Worst(slack, alone, off + near(size), close & ~exact, np.ones(len(slack), dtype=np.bool_))

    def _gap(self, row: Row, unit: int) -> float:
        """The denominator of what a row can come to where all its symbols lie on the grid."""
        step = self._step.numerator if any(n.startswith("rate:") for n, _ in row.terms) else 1
        parts = [Fraction(row.constant, unit), *(Fraction(factor * SCALE, unit) for _, factor in row.terms)]
        return float(lcm(*(part.denominator for part in parts)) * GRID * step)

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
        return Worst(slack, np.full(count, row.settled), tolerance, np.abs(slack) <= tolerance, sure)

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
        for part in parts:
            holds = holds | (part.alone & (part.value >= 0) & ~part.doubtful)
            doubtful, off = doubtful | part.doubtful, np.maximum(off, part.off)
            stateful = np.where(part.alone, stateful, np.maximum(stateful, part.value))
            settled = np.where(part.alone, np.maximum(settled, part.value), settled)
            others = others + ~part.alone
        has = others > 0
        value = np.where(holds, VACUOUS, np.where(has, stateful, settled))
        fixed = self._points(node)
        sure = (others <= 1) & fixed
        for part in parts:
            sure = sure & part.sure
        return Worst(value, holds | ~has, off, doubtful & ~holds, sure)

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
