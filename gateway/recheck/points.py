"""Points at which a certificate's bounds are held against the words of a module."""

from __future__ import annotations

import operator
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gateway.recheck.source import Range, Source
from gateway.recheck.sums import Point, Sum
from gateway.recheck.tree import Kind

_SETTLED = ("kept_on:", "may_rise:", "for:", "good:")  # true or false: never halfway
_AT_ONCE = re.compile(r"x|was|new|old|[pb]\d+")  # symbols of one instant; the others are means of a stretch
_MANY = 1000  # whole numbers that are looked through
_AT_AN_END = 0.5
_SPREADS = (Fraction(1), Fraction(1), Fraction(10))  # how far outside the premises points may lie


@dataclass(frozen=True, slots=True)
class Points:
    """Points in and around premises.

    What counts in whole numbers, a label or a switch, has no value in between: words mean nothing there.
    """

    sources: Sequence[Source]
    premises: Mapping[str, Range]

    def near_limits(self, sums: Sequence[Sum], samples: int, chance: random.Random) -> Iterator[Point]:
        """Random points near the premises, each also moved so that one sum is exactly 0."""
        counted = {name for name in self.premises if self.counted(name)}
        for index in range(samples):
            point = self._near(_SPREADS[index % len(_SPREADS)], chance)
            yield point
            for total in sums:
                moved = (t for t in total.terms if not t[0].startswith(_SETTLED) and t[0] not in counted)
                free = [(name, m) for name, m, _ in moved]
                if free:
                    name, multiplier = chance.choice(free)
                    yield {**point, name: point[name] - total.at(point) / multiplier}

    def inside(self, chance: random.Random) -> Point:
        """A random point of the premises, at their ends half of the time."""
        point = self._near(Fraction(1), chance)
        ends = {name: chance.choice(self.premises[name]) for name in point if chance.random() < _AT_AN_END}
        return {**point, **{name: end for name, end in ends.items() if not self.counted(name)}}

    def with_real_values(self, point: Point) -> Iterator[Point]:
        """The point, and where a switch or a label stands between its values, the nearest below and above."""
        yield point
        listed = {name: values for name in point if (values := self.counted(name))}
        halfway = {name for name, values in listed.items() if point[name] not in values}
        for pick, past in ((max, operator.le), (min, operator.ge)) if halfway else ():
            near = {name: [v for v in listed[name] if past(v, point[name])] for name in halfway}
            yield {**point, **{name: Fraction(pick(values)) for name, values in near.items() if values}}

    def counted(self, name: str) -> Sequence[Fraction | int]:
        """All values that a symbol for a whole number or a label may have; none for any other."""
        kind, _, tag = name.partition(":")
        if not _AT_ONCE.fullmatch(kind):
            return ()
        found = (source.quantities[tag] for source in self.sources if tag in source.quantities)
        quantity = next(found, None)
        if quantity is None:
            return ()
        low, high = quantity.range or (Fraction(0), Fraction(1))
        listed = quantity.listed(low, high)
        if listed is None or quantity.sort.kind is Kind.BOOLEAN:
            return listed or ()
        return range(int(low) - 1, int(high) + 2)  # a register may hold what no label stands for

    def _near(self, spread: Fraction, chance: random.Random) -> dict[str, Fraction]:
        point: dict[str, Fraction] = {}
        for name, ends in self.premises.items():
            values = self.counted(name)
            if values:
                point[name] = _one_of(values, ends, spread, chance)
            elif name.startswith(_SETTLED) and spread > 1:
                point[name] = chance.choice((*ends, Fraction(0), Fraction(1)))
            elif name.startswith(_SETTLED):
                point[name] = chance.choice(ends)
            else:
                found = _between(ends, spread, chance)
                point[name] = max(found, Fraction(0)) if name.startswith("held:") else found
        return point


def _one_of(
    values: Sequence[Fraction | int], ends: Range, spread: Fraction, chance: random.Random
) -> Fraction:
    """A value inside the premise, or with a wider spread any that there is."""
    inside = (
        [value for value in ends if value in values]
        if len(values) > _MANY
        else [value for value in values if ends[0] <= value <= ends[1]]
    )
    return Fraction(chance.choice(inside if inside and spread == 1 else values))


def _between(ends: Range, spread: Fraction, chance: random.Random) -> Fraction:
    low, high = ends
    reach = (high - low if high > low else max(Fraction(1), abs(high))) * (spread - 1)
    low, high = low - reach, high + reach
    return low + (high - low) * Fraction(chance.randrange(1001), 1000)
