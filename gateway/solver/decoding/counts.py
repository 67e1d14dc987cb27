"""Conditions on the register counts of some outputs, in whole numbers, and sets of counts.

Outputs are told by their place in an order of decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

from gateway.core.spans import Span, Spans, holds, join, meet

__all__ = [
    "ALWAYS",
    "NEVER",
    "AllOf",
    "Condition",
    "Line",
    "OneOf",
    "Span",
    "Spans",
    "all_of",
    "holds",
    "join",
    "least",
    "line",
    "meet",
    "most",
    "one_of",
    "places",
    "simplified",
    "spans",
    "ways",
]


class Line(NamedTuple):
    """`sum(factor * count) <= limit`; at least one factor, none zero, without a common divisor."""

    terms: tuple[tuple[int, int], ...]  # place, factor; places ascending
    limit: int


@dataclass(frozen=True, slots=True)
class AllOf:
    """True when every part is."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class OneOf:
    """True when one part is."""

    parts: tuple[Condition, ...]


Condition = Line | AllOf | OneOf
ALWAYS, NEVER = AllOf(()), OneOf(())


def line(factors: Mapping[int, int], limit: int) -> Condition:
    """The condition in lowest terms: a sum of whole multiples of n is at most a multiple of n."""
    kept = {place: factor for place, factor in factors.items() if factor}
    if not kept:
        return ALWAYS if limit >= 0 else NEVER
    common = gcd(*kept.values())
    if len(kept) == 1:
        ((place, factor),) = kept.items()
        return Line(((place, factor // common),), limit // common)
    return Line(tuple(sorted((p, f // common) for p, f in kept.items())), limit // common)


def all_of(parts: Iterable[Condition]) -> Condition:
    """Their conjunction, without what is always true."""
    found: dict[Condition, None] = {}
    for part in parts:
        if isinstance(part, AllOf):
            found.update(dict.fromkeys(part.parts))
        elif isinstance(part, OneOf) and not part.parts:
            return NEVER
        else:
            found[part] = None
    return next(iter(found)) if len(found) == 1 else AllOf(tuple(found))


def one_of(parts: Iterable[Condition]) -> Condition:
    """Their disjunction, without what is never true."""
    found: dict[Condition, None] = {}
    for part in parts:
        if isinstance(part, OneOf):
            found.update(dict.fromkeys(part.parts))
        elif isinstance(part, AllOf) and not part.parts:
            return ALWAYS
        else:
            found[part] = None
    return next(iter(found)) if len(found) == 1 else OneOf(tuple(found))


def least(found: Line, box: Sequence[Span]) -> int:
    """The least value of a line's sum over a box."""
    return sum(factor * box[place][factor < 0] for place, factor in found.terms)


def most(found: Line, box: Sequence[Span]) -> int:
    """The greatest value of a line's sum over a box."""
    return sum(factor * box[place][factor > 0] for place, factor in found.terms)


def simplified(condition: Condition, box: Sequence[Span]) -> Condition:
    """The same within a box of one span for each place, without what is settled there."""
    match condition:
        case Line():
            if most(condition, box) <= condition.limit:
                return ALWAYS
            return NEVER if least(condition, box) > condition.limit else condition
        case AllOf(parts):
            return all_of(simplified(part, box) for part in parts)
        case OneOf(parts):
            return one_of(simplified(part, box) for part in parts)


def places(condition: Condition) -> frozenset[int]:
    """The outputs that a condition is about."""
    if isinstance(condition, Line):
        return frozenset(place for place, _ in condition.terms)
    return frozenset[int]().union(*map(places, condition.parts))


def spans(condition: Condition, within: Spans) -> Spans:
    """The counts that fulfil a condition about one output."""
    match condition:
        case Line(((_, factor),), limit):
            bound = limit // factor if factor > 0 else -(limit // -factor)
            side = (within[0][0], bound) if factor > 0 else (bound, within[-1][1])
            return meet(within, (side,)) if side[0] <= side[1] else ()
        case AllOf(parts):
            for part in parts:
                within = spans(part, within) if within else ()
            return within
        case OneOf(parts):
            return join(span for part in parts for span in spans(part, within))
        case _:
            msg = "a condition about several outputs has no counts of one"
            raise ValueError(msg)


def ways(condition: Condition, most_ways: int, fits: Callable[[Line], bool]) -> list[list[Line]] | None:
    """Conjunctions of lines of which one must hold, each line by itself possible; None where too many."""
    match condition:
        case Line():
            return [[condition]] if fits(condition) else []
        case OneOf(parts):
            found: list[list[Line]] = []
            for part in parts:
                mine = ways(part, most_ways, fits)
                if mine is None or len(found) + len(mine) > most_ways:
                    return None
                found += mine
            return found
        case AllOf(parts):
            found = [[]]
            for part in parts:
                mine = ways(part, most_ways, fits)
                if mine is None or len(found) * len(mine) > most_ways:
                    return None
                found = [[*before, *lines] for before in found for lines in mine]
            return found
