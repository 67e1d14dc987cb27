"""What moves with an output, as straight lines in its register count: one of them is the end of the interval.

The symbols of a plan that a proposal changes are intervals whose ends are the greatest and the least of a few
points, each straight in the count. Between two counts where two points cross the same point stays the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, pairwise
from math import gcd, lcm
from typing import NamedTuple

from gateway.core.tag import TagId
from gateway.solver.checking.afterwards import Line, Reach, reaches
from gateway.solver.checking.condense import Plan
from gateway.solver.checking.course import Course
from gateway.solver.checking.predict import Facts
from gateway.solver.decoding.counts import Span
from gateway.solver.modules.module import Ramp, Variable
from gateway.solver.rules.interval import SCALE, outward
from gateway.solver.rules.ruleset import RuleSet

MOVING = ("new:", "rate:", "e", "b", "c", "u")  # kinds of symbols that an output moves


class Point(NamedTuple):
    """`(slope * count + start) / unit` in units of 1 / `SCALE`."""

    slope: int
    start: int
    unit: int

    def at(self, count: Fraction) -> Fraction | int:
        """Its value at a count, which need not be whole, times the count's denominator."""
        found = self.slope * count.numerator + self.start * count.denominator
        return found if self.unit == 1 else Fraction(found, self.unit)


Points = tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One symbol: its greatest and least points, and which of them is the end in each cell of the counts."""

    place: int
    high: tuple[Point, ...]
    low: tuple[Point, ...]
    highs: tuple[Point, ...]  # by cell; the cells of all symbols of one output are the same
    lows: tuple[Point, ...]
    proposal: Point
    loose: bool
    best: tuple[Point, Point] | None = None  # of the backup's: no end is below the first or above the second
    at_best: tuple[bool, bool] = (False, False)  # whether the greatest, and the least, is told as that only

    @property
    def cells(self) -> int:
        """How many there are."""
        return len(self.highs)

    @property
    def unit(self) -> int:
        """A multiple of every point's."""
        return lcm(*(point.unit for point in (*self.high, *self.low)))

    @property
    def farthest(self) -> tuple[Points, Points]:
        """The greatest and the least points; of an end that is told at best, how far it may be."""
        if self.best is None:
            return self.high, self.low
        low, high = self.best
        return (high,) if self.at_best[0] else self.high, (low,) if self.at_best[1] else self.low

    def ends(self, factor: int) -> tuple[Point, ...]:
        """The points of which the one that is worst for a factor is the end."""
        return self.high if factor > 0 else self.low

    def end(self, cell: int, factor: int) -> Point:
        """The end that is worst for a factor."""
        return self.highs[cell] if factor > 0 else self.lows[cell]

    def bounded(self, factor: int) -> bool:
        """Whether the end that is worst for a factor is not what it is, but what it is at best."""
        return self.at_best[factor < 0]

    def at_proposal(self) -> Track:
        """The symbol at one value that it has wherever the state is; the backup's at its best."""
        high, low = self.best if self.best is not None and self.loose else (self.proposal, self.proposal)
        return replace(
            self,
            high=(high,),
            low=(low,),
            highs=(high,) * self.cells,
            lows=(low,) * self.cells,
            loose=self.best is not None and self.loose,
        )


class Tracks:
    """All symbols of a plan that outputs in one order move; those of the state asked about last are kept."""

    def __init__(self, rules: RuleSet, plan: Plan, order: Sequence[TagId], domains: Sequence[Span]) -> None:
        """`domains`: by place, the counts that an output's register can hold."""
        self._rules, self._order, self._domains = rules, tuple(order), domains
        self._named: dict[str, list[str]] = {str(tag): [] for tag in order}
        for name in plan.symbols:
            if name.startswith(MOVING):
                self._named[name.partition(":")[2]].append(name)
        ways = Course(rules, plan).ways
        self._reaches = dict(
            each for tag in order if tag in ways for each in reaches(tag, ways[tag], rules.variables[tag])
        )
        self._kept: dict[TagId, tuple[object, dict[str, Track]]] = {}  # and what they follow from

    def of(self, facts: Facts) -> dict[str, Track]:
        """By symbol, for one state."""
        found: dict[str, Track] = {}
        for place, tag in enumerate(self._order):
            pasts = tuple(_pasts(facts, tag, self._rules.modules[0].step))
            told = facts.old[tag], pasts
            if tag not in self._kept or self._kept[tag][0] != told:
                self._kept[tag] = told, dict(self._of_output(place, facts.old[tag], pasts))
            found.update(self._kept[tag][1])
        return found

    def _of_output(
        self, place: int, old: Sequence[Fraction], pasts: Sequence[tuple[Fraction, Fraction]]
    ) -> Iterator[tuple[str, Track]]:
        tag = self._order[place]
        variable = self._rules.variables[tag]
        scale, offset = variable.definition.scale, variable.definition.offset
        value = _point(scale, offset)
        before = outward(min(old), max(old))
        rates = tuple(
            dict.fromkeys(_point(scale / within, (offset - past) / within) for past, within in pasts)
        )
        most, least = Point(0, before[1], 1), Point(0, before[0], 1)
        best = _ever(self._rules, variable, old)
        ends: dict[str, tuple[Points, Points]] = {}
        at_best: dict[str, tuple[bool, bool]] = {}
        for name in self._named[tag]:
            match name[0]:
                case "n":
                    ends[name] = (value,), (value,)
                case "r":
                    ends[name] = rates, rates
                case "e":
                    ends[name] = (value, most), (value, least)
                case _:
                    reach = self._reaches.get(f"b{name[1:]}" if name[0] == "c" else name, Reach())
                    high, low = _points(reach.high, value), _points(reach.low, value)
                    at_best[name] = not high, not low
                    if name[0] == "c":
                        high, low = high and (*high, most), low and (*low, least)
                    ends[name] = high or best[:1], low or best[1:]
        samples = _samples({points for both in ends.values() for points in both}, self._domains[place])
        for name, (high, low) in ends.items():
            yield (
                name,
                Track(
                    place=place,
                    high=high,
                    low=low,
                    highs=tuple(max(high, key=lambda p: p.at(at)) for at in samples),
                    lows=tuple(min(low, key=lambda p: p.at(at)) for at in samples),
                    proposal=high[0],
                    loose=high != low or len(high) > 1,
                    best=best if name in at_best else None,
                    at_best=at_best.get(name, (False, False)),
                ),
            )


def _points(lines: Sequence[Line], value: Point) -> Points:
    """What an end is the greatest or the least of, in the register count that has this value."""
    found = (
        Point(
            line.slope * value.slope,
            line.slope * value.start + line.start * value.unit,
            value.unit * line.over,
        )
        for line in lines
    )
    return tuple(_shortened(point) for point in found)


def _shortened(point: Point) -> Point:
    common = gcd(*point)
    return Point(*(part // common for part in point))


def _point(scale: Fraction, offset: Fraction) -> Point:
    slope, start = scale * SCALE, offset * SCALE
    unit = lcm(slope.denominator, start.denominator)
    return Point(int(slope * unit), int(start * unit), unit)


def _pasts(facts: Facts, tag: TagId, step: Fraction) -> Iterator[tuple[Fraction, Fraction]]:
    """Values that were in force, with the time that a change since them is taken over (S6)."""
    for past, ago in facts.history[tag]:
        yield past, max(step, ago + step) if ago else step


def _crossings(points: Sequence[Point]) -> Iterator[Fraction]:
    for one, other in combinations(points, 2):
        slope = one.slope * other.unit - other.slope * one.unit
        if slope:
            yield Fraction(other.start * one.unit - one.start * other.unit, slope)


def _samples(groups: Iterable[Points], domain: Span) -> list[Fraction]:
    """A count in each cell of a domain: in none of them do two points of a group cross."""
    crossings = {c for points in groups for c in _crossings(points) if domain[0] < c < domain[1]}
    ends = [Fraction(domain[0]), *sorted(crossings), Fraction(domain[1])]
    return [(a + b) / 2 for a, b in pairwise(ends)]


def _ever(rules: RuleSet, variable: Variable, old: Sequence[Fraction]) -> tuple[Point, Point]:
    """The ends of where an output may be at all while the backup acts."""
    ends = [*variable.range, *old]
    definition = variable.definition
    if definition.raw_range is not None:
        ends += [definition.engineering(raw) for raw in definition.raw_range]
    for step in rules.backup:
        move = step.entry.moves.get(variable.tag)
        if isinstance(move, Ramp):
            ends.append(move.target)
        elif isinstance(move, Fraction):
            ends.append(move)
    low, high = outward(min(ends), max(ends))
    return Point(0, low, 1), Point(0, high, 1)
