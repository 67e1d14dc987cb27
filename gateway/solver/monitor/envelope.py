"""Where something with a bounded rate may have been, known only at both ends of a time."""

from __future__ import annotations

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
        return _ordered(-self._floor.mean(start, end), self._roof.mean(start, end))

    def hull(self, start: Fraction, end: Fraction) -> Interval:
        """Least and greatest value between two moments."""
        return _ordered(-self._floor.most(start, end), self._roof.most(start, end))

    @property
    def _roof(self) -> _Roof:
        return _Roof(self.first[1], self.last[1], self.rate, self.whole)

    @property
    def _floor(self) -> _Roof:
        """Upside down."""
        return _Roof(-self.first[0], -self.last[0], self.rate, self.whole)


@dataclass(frozen=True, slots=True)
class _Roof:
    """The lesser of a line that goes up from `first` and one that comes down to `last`."""

    first: Fraction
    last: Fraction
    rate: Fraction
    whole: Fraction

    def mean(self, start: Fraction, end: Fraction) -> Fraction:
        """Between two moments; of no time the value then."""
        if self.rate == 0 or end <= start:
            return self.most(start, end)
        meet = self._meet(start, end)
        rising = (meet - start) * (self.first + self.rate * (start + meet) / 2)
        falling = (end - meet) * (self.last + self.rate * (self.whole - (meet + end) / 2))
        return (rising + falling) / (end - start)

    def most(self, start: Fraction, end: Fraction) -> Fraction:
        """The greatest between two moments."""
        if self.rate == 0:
            return min(self.first, self.last)
        meet = self._meet(start, end)
        return min(self.first + self.rate * meet, self.last + self.rate * (self.whole - meet))

    def _meet(self, start: Fraction, end: Fraction) -> Fraction:
        """Where the lines cross, or which of the two moments is nearer to that."""
        crossing = (self.last - self.first + self.rate * self.whole) / (2 * self.rate)
        return min(max(crossing, start), end)


def _ordered(one: Fraction, other: Fraction) -> Interval:
    return min(one, other), max(one, other)
