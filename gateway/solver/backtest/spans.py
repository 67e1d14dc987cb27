"""Intervals of many decisions at once, in floats, each with how far its ends may be from the exact ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gateway.solver.backtest.evidence import Bools, Floats

GRID = 1_000_000  # the check rounds states outward to this grid, and so does this
NEAR = 1e-10  # more than all roundings of a float of everyday size, in its own unit
_RELATIVE = 1e-13


@dataclass(frozen=True, slots=True)
class Span:
    """`low` and `high`, each at most `off` from the exact end. `off` 0: whole multiples of 1e-6, exactly.

    `off_high`, where it is given, is that of `high` alone.
    """

    low: Floats
    high: Floats
    off: Floats | float = 0.0
    off_high: Floats | None = None

    def end(self, *, upper: bool) -> tuple[Floats, Floats | float]:
        """One end, and how far it may be off."""
        if not upper:
            return self.low, self.off
        return self.high, self.off if self.off_high is None else self.off_high

    def where(self, rows: Bools, other: Span) -> Span:
        """This one in some rows, another in the rest."""
        return Span(
            np.where(rows, self.low, other.low),
            np.where(rows, self.high, other.high),
            np.where(rows, self.off, other.off),
        )


def exactly(values: Floats) -> Span:
    """Values that are what they are; on the grid where they can be."""
    counts = np.rint(values * GRID)
    on_grid = (counts / GRID == values) & (np.abs(counts) < 1e15)  # noqa: PLR2004  a float tells these apart
    return Span(values, values, np.where(on_grid, 0.0, near(values)))


def constant(low: float, high: float, count: int) -> Span:
    """The same interval for all."""
    return Span(np.full(count, low), np.full(count, high), near(np.array(max(abs(low), abs(high)))))


def near(values: Floats) -> Floats:
    """More than the rounding of a value that some sums led to."""
    found: Floats = NEAR + _RELATIVE * np.abs(values)
    return found


def hull(one: Span, other: Span) -> Span:
    """Both."""
    return Span(
        np.minimum(one.low, other.low), np.maximum(one.high, other.high), np.maximum(one.off, other.off)
    )


def outward(span: Span) -> Span:
    """Rounded outward to the grid. An end that may lie on either side of a grid point is off by one."""
    low, low_off = _floored(span.low, span.off)
    high, high_off = _floored(-span.high, span.off)
    return Span(low, -high, np.maximum(low_off, high_off))


def _floored(values: Floats, off: Floats | float) -> tuple[Floats, Floats]:
    scaled = values * GRID
    nearest = np.rint(scaled)
    unsure = np.abs(scaled - nearest) <= np.maximum(np.asarray(off), near(values)) * GRID
    sure_on_grid = np.asarray(off) == 0
    found = np.where(unsure, nearest, np.floor(scaled)) / GRID
    return found, np.where(unsure & ~sure_on_grid, 1.5 / GRID, 0.0)
