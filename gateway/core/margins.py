"""How margins are counted: one scale for every unit, 1-2-5 a decade on both sides of 0."""

from __future__ import annotations

from bisect import bisect_right

_DECADES = range(-3, 4)
_POSITIVE = tuple(float(f"{digit}e{decade}") for decade in _DECADES for digit in (1, 2, 5))
EDGES: tuple[float, ...] = (*(-edge for edge in reversed(_POSITIVE)), 0.0, *_POSITIVE)
BINS = len(EDGES) + 1


def bin_of(margin: float) -> int:
    """Which of `BINS` bins a margin falls into; bin `i` reaches from `EDGES[i - 1]` to below `EDGES[i]`."""
    return bisect_right(EDGES, margin)


def ends_of(number: int) -> tuple[float | None, float | None]:
    """Least margin of a bin and the first above it; None where it is open."""
    return (EDGES[number - 1] if number else None, EDGES[number] if number < len(EDGES) else None)
