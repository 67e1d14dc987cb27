"""What moves with an output, as straight lines in its register count: one of them is the end of the interval.

The symbols of a plan that a proposal changes are intervals whose ends are the greatest and the least of a few
points, each straight in the count. Between two counts where two points cross the same point stays the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, pairwise
from math import lcm
from typing import NamedTuple

from gateway.core.tag import TagId
from gateway.solver.condense import Plan
from gateway.solver.interval import SCALE, outward
from gateway.solver.module import Ramp, Variable
from gateway.solver.predict import Facts
from gateway.solver.ruleset import RuleSet


class Point(NamedTuple):
    """`(slope * count + start) / unit` in units of 1 / `SCALE`."""

    slope: int
    start: int
    unit: int

    def at(self, count: Fraction) -> Fraction:
        """Its value at a count, which need not be whole."""
        return (self.slope * count + self.start) / self.unit


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
    bounded: bool = False  # not what it is, but what it is at most or at least

    @property
    def cells(self) -> int:
        """How many there are."""
        return len(self.highs)

    @property
    def unit(self) -> int:
        """A multiple of every point's."""
        return lcm(*(point.unit for point in (*self.high, *self.low)))

    def ends(self, factor: int) -> tuple[Point, ...]:
        """The points of which the one that is worst for a factor is the end."""
        return self.high if factor > 0 else self.low

    def end(self, cell: int, factor: int) -> Point:
        """The end that is worst for a factor."""
        return self.highs[cell] if factor > 0 else self.lows[cell]

    def at_proposal(self) -> Track:
        """The symbol at one value that it has wherever the state is."""
        if self.bounded:
            return self
        one = (self.proposal,)
        many = one * self.cells
        return replace(self, high=one, low=one, highs=many, lows=many, loose=False)


Memo = dict[TagId, tuple[object, dict[str, Track]]]  # by output: what its tracks follow from, and they


def tracks(
    rules: RuleSet, plan: Plan, facts: Facts, order: Sequence[TagId], memo: Memo | None = None
) -> dict[str, Track]:
    """By symbol, for one state. `memo` is kept by who asks about one rule set, plan and order repeatedly."""
    memo = {} if memo is None else memo
    named: dict[str, list[str]] = {str(tag): [] for tag in order}
    for name in plan.symbols:
        if name.startswith(("new:", "rate:", "e", "b")):
            named[name.partition(":")[2]].append(name)
    found: dict[str, Track] = {}
    for place, tag in enumerate(order):
        pasts = tuple(_pasts(facts, tag, rules.modules[0].step))
        told = facts.old[tag], pasts
        if tag not in memo or memo[tag][0] != told:
            memo[tag] = told, dict(_of_output(rules, facts, tag, place, named[tag], pasts))
        found.update(memo[tag][1])
    return found


def _of_output(
    rules: RuleSet,
    facts: Facts,
    tag: TagId,
    place: int,
    names: Sequence[str],
    pasts: Sequence[tuple[Fraction, Fraction]],
) -> Iterator[tuple[str, Track]]:
    variable = rules.variables[tag]
    scale, offset = variable.definition.scale, variable.definition.offset
    value = _point(scale, offset)
    old = facts.old[tag]
    before = outward(min(old), max(old))
    rates = tuple(dict.fromkeys(_point(scale / within, (offset - past) / within) for past, within in pasts))
    most, least = Point(0, before[1], 1), Point(0, before[0], 1)
    lines = ((value, most, least), rates)
    crossings = sorted({c for several in lines for c in _crossings(several)})
    samples = _between(crossings)
    least_ever, most_ever = _ever(rules, variable, old)
    for name in names:
        high: tuple[Point, ...]
        low: tuple[Point, ...]
        match name[0]:
            case "n":
                high = low = (value,)
            case "r":
                high = low = rates
            case "e":
                high, low = (value, most), (value, least)
            case _:
                high, low = (Point(0, least_ever, 1),), (Point(0, most_ever, 1),)
        yield (
            name,
            Track(
                place=place,
                high=high,
                low=low,
                highs=tuple(max(high, key=lambda p: p.at(at)) for at in samples),
                lows=tuple(min(low, key=lambda p: p.at(at)) for at in samples),
                proposal=high[0],
                loose=name[0] in "eb" or len(high) > 1,
                bounded=name[0] == "b",
            ),
        )


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
        slope = Fraction(one.slope, one.unit) - Fraction(other.slope, other.unit)
        if slope:
            yield (Fraction(other.start, other.unit) - Fraction(one.start, one.unit)) / slope


def _between(crossings: Sequence[Fraction]) -> list[Fraction]:
    """A count in each cell."""
    if not crossings:
        return [Fraction(0)]
    return [crossings[0] - 1, *((a + b) / 2 for a, b in pairwise(crossings)), crossings[-1] + 1]


def _ever(rules: RuleSet, variable: Variable, old: Sequence[Fraction]) -> tuple[int, int]:
    """Where an output may be at all while the backup acts."""
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
    return outward(min(ends), max(ends))
