"""Everything a decision does not know, and courses of events drawn from it: corners first, then at random.

All values are whole counts of one unit, fine enough that every bound is one.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.recheck.source import Quantity, Range, Source

_FINE = 1024  # points that a unit of the bounds is divided into
_CORNER_LOOKS = 2048  # corners times instants
_FEWEST_CORNERS = 64
_MOST_CORNERS = 512
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Course:
    """One course of events: values at the snapshot by key, and per instant or segment by tag or disturbance.

    Keys are `now` (measured), `old` (in force), `prev` (one step ago), `for` (0 or 1) and `turn` (-1, 0 or 1:
    the way the sensor errs when the backup reads it).
    """

    at_first: Mapping[Key, int]
    paths: Mapping[str, Sequence[int]]
    means: Mapping[str, Sequence[int]]
    disturbances: Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Roaming:
    """How a measured variable without dynamics moves: by a rate, or anywhere at once (S4)."""

    rate: Fraction | None
    limits: tuple[Fraction | None, Fraction | None]


@dataclass(slots=True, kw_only=True)
class Unknowns:
    """Bounds of everything unknown; `listed` where only some values are possible."""

    at_first: dict[Key, list[Fraction]]  # corner values; a real may also lie between the ends
    listed: Mapping[Key, Sequence[Fraction | int]]
    roaming: Mapping[str, Roaming]
    discrete: Mapping[str, Quantity]  # measured tags that are no reals
    disturbances: Mapping[str, Range]
    cuts: Sequence[Fraction]
    others: Sequence[Fraction] = ()  # whatever else must count in whole units
    unit: int = field(init=False)

    def __post_init__(self) -> None:
        told = [value for values in self.at_first.values() for value in values]
        told += [value for pair in self.disturbances.values() for value in pair]
        told += [value for roam in self.roaming.values() for value in roam.limits if value is not None]
        for before, after in itertools.pairwise(self.cuts):
            told += [roam.rate * (after - before) for roam in self.roaming.values() if roam.rate is not None]
        self.unit = math.lcm(*(value.denominator for value in [*told, *self.others])) * _FINE

    def count(self, value: Fraction | int) -> int:
        """A value in units; rounded down where the unit is too coarse for it."""
        return value.numerator * self.unit // value.denominator

    def courses(self, samples: int, chance: random.Random) -> Iterator[Course]:
        """Corners of everything, all of them where they are few; then points inside."""
        spread: dict[Key, Sequence[int]] = {
            key: sorted({self.count(value) for value in values}) for key, values in self.at_first.items()
        }
        for tag in self.roaming if len(self.cuts) > 1 else ():
            spread["drift", tag] = (-1, 1)
        for name, ends in self.disturbances.items() if len(self.cuts) > 1 else ():
            spread["disturbance", name] = sorted({self.count(end) for end in ends})
        most = min(_MOST_CORNERS, max(_FEWEST_CORNERS, _CORNER_LOOKS // len(self.cuts)))
        if math.prod(len(values) for values in spread.values()) <= most:
            corners: Iterator[tuple[int, ...]] = itertools.product(*spread.values())
        else:
            corners = (tuple(chance.choice(values) for values in spread.values()) for _ in range(most))
        for corner in corners:
            yield self._corner(dict(zip(spread, corner, strict=True)))
        for _ in range(samples):
            yield self._inside(spread, chance)

    def _corner(self, chosen: Mapping[Key, int]) -> Course:
        paths = {
            tag: self._path(tag, chosen["now", tag], [chosen.get(("drift", tag), 0)] * (len(self.cuts) - 1))
            for tag in self.roaming
        }
        segments = len(self.cuts) - 1
        return Course(
            {key: value for key, value in chosen.items() if key[0] not in {"drift", "disturbance"}},
            paths,
            {tag: self._means(tag, path) for tag, path in paths.items()},
            {name: [chosen["disturbance", name]] * segments for name in self.disturbances if segments},
        )

    def _inside(self, spread: Mapping[Key, Sequence[int]], chance: random.Random) -> Course:
        segments = range(len(self.cuts) - 1)
        first = {
            key: self._point(key, values, chance)
            for key, values in spread.items()
            if key[0] not in {"drift", "disturbance"}
        }
        paths = {
            tag: self._path(tag, first["now", tag], [chance.choice((-1, 1, None)) for _ in segments], chance)
            for tag in self.roaming
        }
        return Course(
            first,
            paths,
            {tag: self._means(tag, path, chance) for tag, path in paths.items()},
            {
                name: [_between(spread["disturbance", name], chance) for _ in segments]
                for name in self.disturbances
                if segments
            },
        )

    def _point(self, key: Key, values: Sequence[int], chance: random.Random) -> int:
        if key[0] in {"old", "for", "turn"}:
            return chance.choice(values)
        if key in self.listed:
            return self.count(chance.choice(self.listed[key]))
        return _between(values, chance)

    def _path(
        self, tag: str, start: int, ways: Sequence[int | None], chance: random.Random | None = None
    ) -> list[int]:
        """Values at every instant; `ways` up, down or, where None, at random."""
        roam, path = self.roaming[tag], [start]
        low, high = (None if limit is None else self.count(limit) for limit in roam.limits)
        for (before, after), way in zip(itertools.pairwise(self.cuts), ways, strict=True):
            if roam.rate is None:
                if low is None or high is None:
                    path.append(path[-1])
                    continue
                reached = (low if way < 0 else high) if way is not None else _between((low, high), chance)
            else:
                reach = self.count(roam.rate * (after - before))
                reached = path[-1] + (reach * way if way is not None else _between((-reach, reach), chance))
            reached = reached if high is None else min(reached, high)
            path.append(reached if low is None else max(reached, low))
        return [start, *(self._possible(tag, value, start) for value in path[1:])]

    def _possible(self, tag: str, value: int, start: int) -> int:
        """Towards the start, the nearest value that a variable of this kind can have."""
        quantity = self.discrete.get(tag)
        if quantity is None:
            return value
        ends = sorted((Fraction(value, self.unit), Fraction(start, self.unit)))
        if quantity.whole:
            whole = ends[1] // 1 if value >= start else -(-ends[0] // 1)
            return self.count(Fraction(whole))
        found = quantity.listed(*ends) or [Fraction(start, self.unit)]
        return self.count(found[-1] if value >= start else found[0])

    def _means(self, tag: str, path: Sequence[int], chance: random.Random | None = None) -> list[int]:
        """What dynamics see of a variable during each segment: a value that it takes in it."""
        if tag in self.discrete:
            return list(path[:-1])
        roam = self.roaming[tag]
        if roam.rate is None and chance is not None and None not in roam.limits:
            ends = [self.count(limit) for limit in roam.limits if limit is not None]
            return [_between(ends, chance) for _ in path[:-1]]
        if roam.rate is None:
            return list(path[1:])
        return [(before + after) // 2 for before, after in itertools.pairwise(path)]


def _between(ends: Sequence[int], chance: random.Random | None) -> int:
    """An end or a point between the ends, each half of the time."""
    if chance is None or chance.random() < 0.5:  # noqa: PLR2004  half of the time
        return chance.choice((ends[0], ends[-1])) if chance is not None else ends[0]
    return chance.randint(ends[0], ends[-1])


def roaming_of(sources: Sequence[Source], tag: str) -> Roaming:
    """The rate that all modules vouch for, else their widest range; within physical bounds (S3)."""
    low, high = physical_of(sources, tag)
    rate = rate_of(sources, tag)
    if rate is not None:
        return Roaming(rate, (low, high))
    reach = range_of(sources, tag)
    return Roaming(None, reach if reach is not None else (None, None))


def rate_of(sources: Sequence[Source], tag: str) -> Fraction | None:
    """The fastest that any module expects; None where one of them vouches for none."""
    rates = [source.quantities[tag].max_rate for source in sources if tag in source.quantities]
    known = [rate for rate in rates if rate is not None]
    return max(known) if known and len(known) == len(rates) else None


def physical_of(sources: Sequence[Source], tag: str) -> tuple[Fraction | None, Fraction | None]:
    """What all modules vouch for together: no bound where one of them states none."""
    told = [source.quantities[tag].physical for source in sources if tag in source.quantities]
    known = [pair for pair in told if pair is not None]
    if not known or len(known) < len(told):
        return None, None
    return min(low for low, _ in known), max(high for _, high in known)


def cut(reach: Range, limits: tuple[Fraction | None, Fraction | None]) -> Range:
    """An interval within limits."""
    low, high = limits
    return reach[0] if low is None else max(reach[0], low), reach[1] if high is None else min(reach[1], high)


def range_of(sources: Sequence[Source], tag: str) -> Range | None:
    """Where a variable may be at all: the widest range within physical bounds; None where none is told."""
    ranges = [source.quantities[tag].range for source in sources if tag in source.quantities]
    known = [pair for pair in ranges if pair is not None]
    if not known or len(known) < len(ranges):
        return None
    widest = min(low for low, _ in known), max(high for _, high in known)
    return cut(widest, physical_of(sources, tag))
