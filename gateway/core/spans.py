"""Sets of whole numbers as spans."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

Span = tuple[int, int]  # both ends belong to it
Spans = tuple[Span, ...]  # ascending, with something left out between two


def meet(one: Spans, other: Spans) -> Spans:
    """What both hold."""
    both = ((max(a, c), min(b, d)) for a, b in one for c, d in other)
    return tuple(sorted(span for span in both if span[0] <= span[1]))


def join(found: Iterable[Span]) -> Spans:
    """What one of them holds."""
    joined: list[Span] = []
    for low, high in sorted(found):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], high)
        else:
            joined.append((low, high))
    return tuple(joined)


def holds(found: Spans, count: int) -> bool:
    """Whether a count is among them."""
    return any(low <= count <= high for low, high in found)


def without(found: Spans, count: int) -> Spans:
    """All of them but one count."""
    return meet(found, ((found[0][0], count - 1), (count + 1, found[-1][1]))) if found else ()


def nearest(found: Spans, value: float | Fraction) -> int:
    """The count of them nearest to a number of counts, the lower of two; `ValueError` where there is none."""
    ends = [min(max(round(value), low), high) for low, high in found]
    return min(ends, key=lambda count: (abs(count - value), count))
