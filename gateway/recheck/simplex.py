"""A small exact linear program: the greatest value of a sum over a box cut by half-spaces, in rationals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

Row = list[Fraction]
Terms = Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class Best:
    """The greatest value and where it is taken."""

    value: Fraction
    at: Mapping[str, Fraction]


def greatest(
    terms: Terms,
    box: Mapping[str, tuple[Fraction, Fraction]],
    limits: Sequence[tuple[Terms, Fraction]],
) -> Best | None:
    """The greatest sum of `terms` over a box where each of `limits` has a sum of at most its bound.

    None where no point of the box keeps the limits. Every variable must have its interval in `box`.
    """
    names = list(box)
    low = {name: ends[0] for name, ends in box.items()}
    rows: list[Row] = [
        [*(Fraction(int(name == other)) for other in names), box[name][1] - low[name]] for name in names
    ]
    for sums, bound in limits:
        shifted = bound - sum((m * low[name] for name, m in sums.items()), Fraction(0))
        rows.append([sums.get(name, Fraction(0)) for name in names] + [shifted])
    table = _Table(rows, len(names))
    if not table.feasible():
        return None
    table.improve([terms.get(name, Fraction(0)) for name in names])
    at = {name: low[name] + value for name, value in zip(names, table.point(), strict=True)}
    return Best(sum((m * at[name] for name, m in terms.items()), Fraction(0)), at)


class _Table:
    """Rows `basic = bound - sum of the others`, pivoted by Bland's rule, so it ends."""

    def __init__(self, rows: Sequence[Row], count: int) -> None:
        self._count = count
        self._rows = [list(row) for row in rows]
        self._basic = [count + place for place in range(len(rows))]
        self._free = list(range(count))

    def feasible(self) -> bool:
        """Pivot until every bound is at least 0; False where that cannot be."""
        while True:
            short = [place for place, row in enumerate(self._rows) if row[-1] < 0]
            if not short:
                return True
            place = min(short, key=self._basic.__getitem__)
            columns = [c for c in range(len(self._free)) if self._rows[place][c] < 0]
            if not columns:
                return False
            self._pivot(place, min(columns, key=self._free.__getitem__))

    def improve(self, goal: Sequence[Fraction]) -> None:
        """Pivot to the greatest value of the sum of the first variables by `goal`."""
        while True:
            gains = self._gains(goal)
            columns = [c for c, gain in enumerate(gains) if gain > 0]
            if not columns:
                return
            column = min(columns, key=self._free.__getitem__)
            ratios = [
                (row[-1] / row[column], self._basic[place], place)
                for place, row in enumerate(self._rows)
                if row[column] > 0
            ]
            self._pivot(min(ratios)[2], column)

    def point(self) -> list[Fraction]:
        """Values of the first variables."""
        values = dict(zip(self._basic, (row[-1] for row in self._rows), strict=True))
        return [values.get(index, Fraction(0)) for index in range(self._count)]

    def _gains(self, goal: Sequence[Fraction]) -> list[Fraction]:
        found = [goal[index] if index < self._count else Fraction(0) for index in self._free]
        for index, row in zip(self._basic, self._rows, strict=True):
            if index < self._count and goal[index]:
                found = [gain - goal[index] * row[c] for c, gain in enumerate(found)]
        return found

    def _pivot(self, place: int, column: int) -> None:
        row = self._rows[place]
        share = row[column]
        row = [value / share for value in row]
        row[column] = 1 / share
        for other, values in enumerate(self._rows):
            times = values[column]
            if other != place and times:
                values[:] = [value - times * r for value, r in zip(values, row, strict=True)]
                values[column] = -times / share
        self._rows[place] = row
        self._basic[place], self._free[column] = self._free[column], self._basic[place]
