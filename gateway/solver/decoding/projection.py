"""Which counts of one output leave some counts of the outputs after it, once those before it are fixed.

Conditions on all outputs are divided into cases of lines without alternatives, and in each the outputs are
taken out from the last to the first (Fourier and Motzkin's way). Two lines of which neither has the factor 1
meet at a point that need not be whole; there the answer holds more than there is, unless it can be shown not
to (the dark shadow of Pugh's Omega test lies within the case), and says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import numpy as np

from gateway.solver.decoding.counts import (
    ALWAYS,
    NEVER,
    AllOf,
    Condition,
    Line,
    Span,
    Spans,
    all_of,
    holds,
    join,
    least,
    line,
    meet,
    most,
    one_of,
    places,
    simplified,
    spans,
    ways,
)

_MOST_CASES = 64
_MOST_LINES = 400  # of one case
_FEW = 16  # counts of an output that may be told apart
_ROUNDS = 3  # of narrowing a case's box
_LONGEST = 2**62  # beyond it sums are not left to 64 bits

Box = list[Span]


@dataclass(frozen=True, slots=True)
class Case:
    """A box and lines that must all hold; one of several cases is enough."""

    box: Box
    lines: tuple[Line, ...]


@dataclass(slots=True)
class _Rows:
    """Lines of all cases at one place: `sum(matrix * before) + factor * count <= limit`."""

    case: list[int] = field(default_factory=list)
    factor: list[int] = field(default_factory=list)
    before: list[list[int]] = field(default_factory=list)
    limit: list[int] = field(default_factory=list)


class Level:
    """What is left of all conditions at one place of the order."""

    def __init__(self, place: int, allowed: Spans, cases: Sequence[Case], why: str) -> None:
        """`why` the answers may hold too much; empty where they never do."""
        self.place, self.allowed, self.why, self.cases = place, allowed, why, tuple(cases)
        self._table: _Table | None = None

    def values(self, fixed: Sequence[int]) -> Spans:
        """The counts of this output, those of the outputs before it being fixed within what is allowed."""
        if self._table is None:  # who only hands the cases on needs none
            self._table = _Table(self.place, self.cases)
        return meet(join(self._table.spans(fixed)), self.allowed)


class _Table:
    """The cases at one place as arrays."""

    def __init__(self, place: int, cases: Sequence[Case]) -> None:
        rows = _Rows()
        sizes = [0]
        for number, case in enumerate(cases):
            for found in case.lines:
                factors = dict(found.terms)
                rows.case.append(number)
                rows.factor.append(factors.get(place, 0))
                rows.before.append([factors.get(k, 0) for k in range(place)])
                rows.limit.append(found.limit)
                farthest = (abs(f) * max(map(abs, case.box[k])) for k, f in found.terms)
                sizes.append(abs(found.limit) + sum(farthest))
        kind = cast("type[np.int64]", np.int64 if max(sizes) < _LONGEST else np.object_)
        factor = np.array(rows.factor, dtype=kind)
        order = np.argsort(np.sign(factor).astype(np.int64), kind="stable")  # those below, without, above
        self._ends = int((factor < 0).sum()), int((factor <= 0).sum())
        self._case = np.array(rows.case, dtype=np.int64)[order]
        self._factor = np.abs(factor)[order]
        self._before = np.array(rows.before, dtype=kind).reshape(len(order), place)[order]
        self._limit = np.array(rows.limit, dtype=kind)[order]
        width = len(cases[0].box) if cases else place + 1
        boxes = np.array([case.box for case in cases], dtype=kind).reshape(len(cases), width, 2)
        self._first, self._last = boxes[:, :place, 0], boxes[:, :place, 1]
        self._low, self._high = boxes[:, place, 0], boxes[:, place, 1]
        self._kind = kind

    def spans(self, fixed: Sequence[int]) -> Iterable[Span]:
        """By case that is possible, the counts that it leaves."""
        if not len(self._low):
            return ()
        at = np.array(fixed, dtype=self._kind)
        possible = np.asarray(np.logical_and(self._first <= at, at <= self._last).all(axis=1), dtype=np.bool_)
        low, high = self._low, self._high
        if len(self._case):
            left = self._limit - self._before @ at
            below, above = self._ends
            if below:
                low = low.copy()
                np.maximum.at(low, self._case[:below], -(left[:below] // self._factor[:below]))
            if above < len(left):
                high = high.copy()
                np.minimum.at(high, self._case[above:], left[above:] // self._factor[above:])
            broken = self._case[below:above][left[below:above] < 0]
            possible = np.logical_and(possible, ~np.isin(np.arange(len(possible)), broken))
        possible = np.logical_and(possible, low <= high)
        return zip(low[possible].tolist(), high[possible].tolist(), strict=True)


@dataclass(frozen=True, slots=True)
class Projection:
    """By place, the counts that conditions on it alone allow, and what is left there of the others."""

    allowed: tuple[Spans, ...]
    levels: tuple[Level, ...]

    def values(self, fixed: Sequence[int]) -> Spans:
        """The counts of the output after those that are fixed."""
        if not all(self.allowed) or not all(map(holds, self.allowed, fixed)):
            return ()
        return self.levels[len(fixed)].values(fixed)


def projected(conditions: Iterable[Condition], domains: Sequence[Span]) -> Projection:
    """The conditions' projections on every place; `domains` are the counts that a register can hold."""
    allowed, joint = _alone(conditions, domains)
    if not all(allowed):
        return Projection(allowed, ())
    cases, why = _cases(allowed, joint)
    levels: list[Level] = []
    for place in reversed(range(len(domains))):
        levels.append(Level(place, allowed[place], cases, why))
        cases, reason = _all_without(cases, place)
        why = why or reason
    return Projection(allowed, tuple(reversed(levels)))


def _all_without(cases: Sequence[Case], place: int) -> tuple[list[Case], str]:
    """The cases without one output; where only that can be exact, one for each of its counts."""
    found: list[Case] = []
    why = ""
    for number, case in enumerate(cases):
        taken, reason = _without(case, place)
        low, high = case.box[place]
        if reason and high - low < _FEW and len(found) + high - low + len(cases) - number <= _MOST_CASES:
            at = (
                narrowed([*case.box[:place], (v, v), *case.box[place + 1 :]], case.lines)
                for v in range(low, high + 1)
            )
            found += [_without(each, place)[0] for each in at if each is not None]
        else:
            found.append(taken)
            why = why or reason
    return list({(tuple(case.box), case.lines): case for case in found}.values()), why


def _alone(
    conditions: Iterable[Condition], domains: Sequence[Span]
) -> tuple[tuple[Spans, ...], list[Condition]]:
    """What conditions about one output allow, and the others as far as these leave them open."""
    allowed: list[Spans] = [(domain,) for domain in domains]
    joint = [part for condition in conditions for part in _parts(condition)]
    while True:
        several: list[Condition] = []
        for condition in joint:
            named = places(condition)
            if len(named) == 1:
                place = next(iter(named))
                allowed[place] = spans(condition, allowed[place]) if allowed[place] else ()
            elif condition == NEVER:
                return ((),) * len(domains), []
            else:
                several.append(condition)
        if not all(allowed):
            return tuple(allowed), []
        box = [(found[0][0], found[-1][1]) for found in allowed]
        again = [simplified(condition, box) for condition in several]
        again = [part for condition in again if condition != ALWAYS for part in _parts(condition)]
        if again == several:
            return tuple(allowed), several
        joint = again


def _parts(condition: Condition) -> Iterable[Condition]:
    return condition.parts if isinstance(condition, AllOf) else (condition,)


def _cases(allowed: Sequence[Spans], joint: Sequence[Condition]) -> tuple[list[Case], str]:
    """Boxes with lines that together say what all conditions say, or less, and why less."""
    first = narrowed(
        [(found[0][0], found[-1][1]) for found in allowed], [c for c in joint if isinstance(c, Line)]
    )
    cases = [] if first is None else [first]
    touched = sorted(frozenset[int]().union(*map(places, joint)))
    gaps = (one_of(map(partial(_between, k), allowed[k])) for k in touched if len(allowed[k]) > 1)
    why = ""
    for condition in (*gaps, *(c for c in joint if not isinstance(c, Line))):
        more = _divided(cases, condition)
        if more is None:
            why = "there are too many cases to tell apart"
        else:
            cases = more
    return cases, why


def _divided(cases: Sequence[Case], condition: Condition) -> list[Case] | None:
    """The cases, each divided by what a condition may be fulfilled by; None where there would be too many."""
    found: dict[tuple[tuple[Span, ...], tuple[Line, ...]], Case] = {}
    for case in cases:
        box = case.box
        within = simplified(condition, box)
        mine = ways(within, _MOST_CASES, lambda each, box=box: least(each, box) <= each.limit)  # type: ignore[misc]
        for lines in mine if mine is not None else ():
            each = narrowed(list(box), (*case.lines, *lines))
            if each is not None:
                found[tuple(each.box), each.lines] = each
        if mine is None or len(found) > _MOST_CASES:
            return None
    return list(found.values())


def _between(place: int, span: Span) -> Condition:
    return all_of((line({place: 1}, span[1]), line({place: -1}, -span[0])))


def narrowed(box: Box, lines: Iterable[Line]) -> Case | None:
    """A case without counts that one of its lines excludes, and without lines that then say nothing."""
    kept = [Line(*found) for found in _tightest(lines).items()]
    for _ in range(_ROUNDS):
        before = list(box)
        for found in kept:
            lowest = least(found, box)
            for place, factor in found.terms:
                low, high = box[place]
                spare = found.limit - lowest + factor * box[place][factor < 0]
                bound = spare // factor if factor > 0 else -(spare // -factor)
                box[place] = (low, min(high, bound)) if factor > 0 else (max(low, bound), high)
                if box[place][0] > box[place][1]:
                    return None
                lowest = least(found, box)
        kept = [found for found in kept if most(found, box) > found.limit]
        if before == box:
            break
    return Case(box, tuple(kept))


def _tightest(lines: Iterable[Line]) -> dict[tuple[tuple[int, int], ...], int]:
    """By their sums, the least limits."""
    found: dict[tuple[tuple[int, int], ...], int] = {}
    for terms, limit in lines:
        found[terms] = min(limit, found.get(terms, limit))
    return found


def _without(case: Case, place: int) -> tuple[Case, str]:
    """A case without one output, and why it may now say too little; a contradiction stays one."""
    above = [(f, found) for found in case.lines if (f := dict(found.terms).get(place, 0)) > 0]
    below = [(-f, found) for found in case.lines if (f := dict(found.terms).get(place, 0)) < 0]
    low, high = case.box[place]
    lines = _tightest(found for found in case.lines if place not in dict(found.terms))
    why = ""
    pairs = itertools.chain(
        itertools.product(above, below),
        ((pair, (1, Line(((place, -1),), -low))) for pair in above),
        (((1, Line(((place, 1),), high)), pair) for pair in below),
    )
    for (first, one), (second, other) in pairs:
        factors: dict[int, int] = {}
        for times, found in ((second, one), (first, other)):
            for k, factor in found.terms:
                factors[k] = factors.get(k, 0) + times * factor
        limit = second * one.limit + first * other.limit
        made = line(factors, limit)
        if isinstance(made, Line) and most(made, case.box) <= made.limit:
            made = ALWAYS
        if first > 1 and second > 1 and not _whole(factors, limit - (first - 1) * (second - 1), case.box):
            why = "some outputs can only be met between two counts, perhaps"
        if isinstance(made, Line):
            lines[made.terms] = min(made.limit, lines.get(made.terms, made.limit))
        elif made == NEVER:
            return Case([(1, 0)] * len(case.box), ()), why
    if len(lines) > _MOST_LINES:
        tightest = sorted(lines.items(), key=lambda item: len(item[0]))[:_MOST_LINES]
        lines, why = dict(tightest), "there are too many conditions to bring together"
    return Case(case.box, tuple(Line(*found) for found in lines.items())), why


def _whole(factors: dict[int, int], limit: int, box: Box) -> bool:
    """Whether wherever in the box two lines leave room between them, they leave a whole count."""
    return sum(f * box[k][f > 0] for k, f in factors.items()) <= limit
