"""How far an output has come, in one segment, on its way to where the backup brings it in any case.

Two courses hold all others. The fastest begins with the plan and moves at the start of every step; the
slowest begins when the PLC's patience ends and ramps from then on, at nine tenths of its rate. Where an
output is at a moment lies between the two. So does its mean over a segment between theirs: of the slowest the
mean counts the time before it began and the time it was on its way, each by its share of the segment, as the
state moves in a straight line for each. The fastest counts with the farthest it comes in the segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from gateway.solver.modules.module import Move, Ramp
from gateway.solver.rules.interval import SCALE, outward

SLOWEST_RAMP = Fraction(9, 10)  # a ramp that lost a tenth to jitter and rounding still does
PARTS = 10**6  # shares of a segment are told in these, so that most ends come out whole

_ALL = 10**40  # farther than any output can go
_EVEN = 2 * PARTS  # ways are told in multiples of this

Ends = tuple[int, int]  # in units of 1 / `SCALE`


@dataclass(frozen=True, slots=True)
class Times:
    """A segment from `start` to `end`, the backup taking over at `latest` at the latest; seconds."""

    start: Fraction
    end: Fraction
    latest: Fraction
    step: Fraction


@dataclass(frozen=True, slots=True)
class Way:
    """Of one output in one segment; ways in units of 1 / `SCALE`."""

    target: Ends | None = None  # None: it stays
    most: int = 0  # by the end, at most
    gone: int = 0  # at the start, at least
    first: int = 0  # at the start, or later in it as soon as it must move, at least
    last: int = 0  # at the end, at least
    share: int = 0  # of the segment in which it must move, in 1 / `PARTS`

    @staticmethod
    def of(move: Move | None, times: Times) -> Way:
        """Of a move that depends on nothing."""
        moving = max(Fraction(0), times.end - max(times.start, times.latest))
        share = moving * PARTS // (times.end - times.start)
        match move:
            case Ramp(target, rate):
                least = rate * SLOWEST_RAMP
                steps = -(-times.end // times.step)
                gone = _floored(least * max(Fraction(0), times.start - times.latest))
                last = _floored(least * max(Fraction(0), times.end - times.latest))
                most = outward(Fraction(0), rate * times.step * steps)[1]
                return Way(outward(target, target), most, gone, gone, last, share)
            case Fraction():
                gone = _ALL if times.start >= times.latest else 0
                return Way(outward(move, move), _ALL, gone, _ALL, _ALL, share)
            case _:
                return Way()

    @property
    def at_once(self) -> bool:
        """Whether it is there as soon as it moves."""
        return self.target is not None and self.most == _ALL

    def during(self, value: Ends) -> Ends:
        """Where the output may be in the segment, from where it was before the backup."""
        if self.target is None:
            return value
        least, greatest = self.target
        found: list[int] = []
        for end in value:
            if end <= least:
                found += min(end + self.most, greatest), min(end + self.gone, least)
            else:
                found += max(end - self.most, least), max(end - self.gone, greatest)
        return min(found), max(found)

    def mean(self, value: Ends) -> Ends:
        """Where its mean over the segment may be."""
        low, high = self.during(value)
        if self.target is None:
            return low, high
        least, greatest = self.target
        if value[1] > greatest:
            high = value[1] - self._gone_on_average(value[1] - greatest)
        if value[0] < least:
            low = value[0] + self._gone_on_average(least - value[0])
        return low, high

    def _gone_on_average(self, distance: int) -> int:
        """At least, of a distance to the target.

        Three straight pieces, each at most what it stands for where another is the least.
        """
        twice = min(2 * distance, distance + self.first, self.first + self.last)
        return self.share * twice // (2 * PARTS)


def _floored(way: Fraction) -> int:
    return int(way * SCALE) // _EVEN * _EVEN
