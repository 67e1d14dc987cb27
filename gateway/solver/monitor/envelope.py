"""Where something with a bounded rate may have been, known only at both ends of a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from gateway.solver.modules.module import Interval


@dataclass(frozen=True, slots=True)
class Between:
    """In `first` at the start of `whole` seconds, in `last` at their end, at most `rate` a second between.

    Where those contradict each other the hull of what each end allows is told.
    """

    first: Interval
    last: Interval
    rate: Fraction
    whole: Fraction

    def mean(self, start: Fraction, end: Fraction) -> Interval:
        """Least and greatest mean between two moments, in seconds from the start of the whole."""
        return self._both(_mean_of_least, start, end)

    def hull(self, start: Fraction, end: Fraction) -> Interval:
        """Least and greatest value between two moments."""
        return self._both(_most_of_least, start, end)

    def _both(
        self, bound: Callable[[Between, Fraction, Fraction], Fraction], start: Fraction, end: Fraction
    ) -> Interval:
        mirrored = Between(
            (-self.first[1], -self.first[0]), (-self.last[1], -self.last[0]), self.rate, self.whole
        )
        high, low = bound(self, start, end), -bound(mirrored, start, end)
        return (low, high) if low <= high else (high, low)

    @property
    def _meet(self) -> Fraction:
        """Where the line up from the start and the line down to the end cross."""
        return (self.last[1] - self.first[1] + self.rate * self.whole) / (2 * self.rate)


def _mean_of_least(known: Between, start: Fraction, end: Fraction) -> Fraction:
    """The mean of the lesser of the two lines; of no time the value then."""
    first, last, rate = known.first[1], known.last[1], known.rate
    if rate == 0 or end <= start:
        return _most_of_least(known, start, end)
    meet = min(max(known._meet, start), end)  # noqa: SLF001  # of this module
    rising = (meet - start) * (first + rate * (start + meet) / 2)
    falling = (end - meet) * (last + rate * (known.whole - (meet + end) / 2))
    return (rising + falling) / (end - start)


def _most_of_least(known: Between, start: Fraction, end: Fraction) -> Fraction:
    """The greatest of the lesser of the two lines."""
    first, last, rate = known.first[1], known.last[1], known.rate
    if rate == 0:
        return min(first, last)
    meet = min(max(known._meet, start), end)  # noqa: SLF001  # of this module
    return min(first + rate * meet, last + rate * (known.whole - meet))
