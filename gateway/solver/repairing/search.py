"""The register counts nearest to an aim that fulfil conditions: linear programs, rounded and divided.

What HiGHS finds between two register values is rounded to both sides; only counts that fulfil every condition
in whole numbers count. Where none does, or a nearer one may be left, the counts are divided: by an
alternative, or below and above what lies between two counts.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import floor, gcd
from typing import NamedTuple

from gateway.solver.decoding.counts import ALWAYS, NEVER, AllOf, Condition, Line, OneOf, Span, simplified
from gateway.solver.decoding.projection import narrowed
from gateway.solver.repairing.aim import Aim, Counts
from gateway.solver.repairing.linear import Bound, Least, LinearProgram, UnsolvedError

_BETWEEN = 1e-6  # of a count: nearer to a whole one it is taken for that
_MOST_ROUNDED = 4  # outputs of which both neighbours are tried together


class Allowance:
    """How much one search may cost: parts of the counts looked at, and time."""

    def __init__(self, parts: int, late: Callable[[], bool]) -> None:
        self._left, self._late = parts, late
        self.spent = False

    def takes(self) -> bool:
        """Whether one more part may be looked at; from the first refusal on the search is not complete."""
        self._left -= 1
        if self._left < 0 or self._late():
            self.spent = True
        return not self.spent

    def unsolved(self) -> None:
        """A part of which nobody knows."""
        self.spent = True


class _Part(NamedTuple):
    """Counts in a box that fulfil lines and still have to fulfil alternatives."""

    box: tuple[Span, ...]
    lines: tuple[Line, ...]
    open: tuple[OneOf, ...]


def nearest(
    aim: Aim,
    box: Sequence[Span],
    conditions: Iterable[Condition],
    program: LinearProgram,
    allowance: Allowance,
    most: int | None = None,
) -> Counts | None:
    """The nearest counts, at most so far away; None where there are none, or the allowance is spent.

    After the distance each output in the order of ties is moved as little as it can be.
    """
    root = _part(box, (), conditions)
    if root is None:
        return None
    limits = [] if most is None else [(aim.weights, most)]
    best = _Hunt(aim, Least(aim.wanted, aim.weights, limits), aim.distance, program, allowance).best(root)
    if best is None:
        return None
    limits = [(aim.weights, aim.distance(best))]
    for place in aim.ties:
        if not aim.weights[place]:
            continue
        alone = tuple(int(k == place) for k in range(len(box)))
        if best[place] != aim.wanted[place]:
            goal = Least(aim.wanted, alone, tuple(limits))
            hunt = _Hunt(aim, goal, _change(aim, place), program, allowance)
            best = hunt.best(root, best) or best
        limits.append((alone, aim.change(place, best)))
    return best


def in_order(
    aim: Aim,
    box: Sequence[Span],
    conditions: Iterable[Condition],
    program: LinearProgram,
    allowance: Allowance,
) -> Iterator[Counts]:
    """All counts that fulfil conditions, by their distance; until the allowance is spent."""
    root = _part(box, (), conditions)
    number = itertools.count()
    waiting: list[tuple[float, int, _Part, Bound | None]] = []
    if root is not None:
        waiting.append((0.0, next(number), root, None))
    goal, seen = Least(aim.wanted, aim.weights), set[Counts]()
    while waiting and allowance.takes():
        far, _, part, bound = heapq.heappop(waiting)
        counts = tuple(low for low, _ in part.box)
        if all(low == high for low, high in part.box):
            if counts not in seen and _fulfils(part, counts):
                seen.add(counts)
                yield counts
            continue
        if bound is None:
            try:
                bound = program.least(goal, part.box, part.lines)
            except UnsolvedError:
                allowance.unsolved()
                continue
            if bound is not None:
                heapq.heappush(waiting, (max(far, bound.value), next(number), part, bound))
            continue
        for piece in _around(part, bound.at):
            near = aim.distance(_clamped(aim.wanted, piece.box))
            heapq.heappush(waiting, (max(far, near), next(number), piece, None))


def _around(part: _Part, at: Sequence[float]) -> Iterator[_Part]:
    """The counts nearest to a point alone, and the others; or by an alternative that these do not fulfil."""
    counts = _clamped([round(x) for x in at], part.box)
    if not all(fulfilled(condition, counts) for condition in part.open):
        yield from filter(None, _pieces(part, at))
        return
    box = list(part.box)
    for place, (count, (low, high)) in enumerate(zip(counts, part.box, strict=True)):
        for span in ((low, count - 1), (count + 1, high)):
            if span[0] <= span[1]:
                box[place] = span
                if (piece := _part(box, part.lines, part.open)) is not None:
                    yield piece
        box[place] = (count, count)
    yield _Part(tuple(box), part.lines, part.open)


def _clamped(counts: Iterable[int], box: Sequence[Span]) -> Counts:
    return tuple(min(max(count, low), high) for count, (low, high) in zip(counts, box, strict=True))


def _change(aim: Aim, place: int) -> Callable[[Counts], int]:
    return lambda counts: aim.change(place, counts)


@dataclass(frozen=True, slots=True)
class _Hunt:
    """One thing made as small as it can be."""

    aim: Aim
    goal: Least
    measure: Callable[[Counts], int]
    program: LinearProgram
    allowance: Allowance

    def best(self, root: _Part, best: Counts | None = None) -> Counts | None:
        """The counts with the least measure, better than `best` where that is given."""
        parts = [root]
        while parts and self.allowance.takes():
            part = parts.pop()
            try:
                bound = self.program.least(self.goal, part.box, part.lines)
            except UnsolvedError:
                self.allowance.unsolved()
                continue
            if bound is None or self._no_better(bound, best):
                continue
            for counts in _rounded(bound.at, part.box):
                if self._allowed(part, counts) and (best is None or self._key(counts) < self._key(best)):
                    best = counts
            if not self._no_better(bound, best):
                parts += self._divided(part, bound.at)
        return best

    def _key(self, counts: Counts) -> tuple[int, object]:
        return self.measure(counts), self.aim.key(counts)

    def _allowed(self, part: _Part, counts: Counts) -> bool:
        return _fulfils(part, counts) and all(
            sum(w * abs(c - a) for w, c, a in zip(weights, counts, self.aim.wanted, strict=True)) <= most
            for weights, most in self.goal.limits
        )

    def _no_better(self, bound: Bound, best: Counts | None) -> bool:
        """Whether a part cannot hold anything that is better by a whole step, or by more than rounding."""
        if best is None:
            return False
        step = gcd(*self.goal.weights)
        return bound.value > self.measure(best) - max(bound.slack, step - bound.slack)

    def _divided(self, part: _Part, at: Sequence[float]) -> list[_Part]:
        """Parts that together hold the same counts, the nearest last."""
        found = [p for p in _pieces(part, at) if p is not None]
        return sorted(found, key=lambda p: -self._at_least(p.box))

    def _at_least(self, box: Sequence[Span]) -> int:
        return self.aim.distance(_clamped(self.aim.wanted, box))


def _part(box: Sequence[Span], lines: Iterable[Line], conditions: Iterable[Condition]) -> _Part | None:
    """What conditions leave of a box, each settled as far as the box settles it; None where it is nothing."""
    waiting, kept, here = list(conditions), list(lines), list(box)
    while True:
        alternatives: list[OneOf] = []
        while waiting:
            condition = simplified(waiting.pop(), here)
            match condition:
                case Line():
                    kept.append(condition)
                case AllOf(parts):
                    waiting += parts
                case OneOf():
                    if condition == NEVER:
                        return None
                    alternatives.append(condition)
        before = list(here)
        case = narrowed(here, kept)
        if case is None:
            return None
        here, kept = case.box, list(case.lines)
        if here == before or not alternatives:
            return _Part(tuple(here), tuple(kept), tuple(reversed(alternatives)))
        waiting = list(alternatives)


def _fulfils(part: _Part, counts: Counts) -> bool:
    conditions: tuple[Condition, ...] = (*part.lines, *part.open)
    inside = all(low <= count <= high for count, (low, high) in zip(counts, part.box, strict=True))
    return inside and all(fulfilled(condition, counts) for condition in conditions)


def fulfilled(condition: Condition, counts: Counts) -> bool:
    """Whether counts fulfil a condition."""
    return simplified(condition, [(count, count) for count in counts]) == ALWAYS


def _rounded(at: Sequence[float], box: Sequence[Span]) -> Iterator[Counts]:
    """Counts on both sides of what lies between, the others at the nearest."""
    between = sorted((k for k, x in enumerate(at) if abs(x - round(x)) > _BETWEEN), key=lambda k: _off(at[k]))
    chosen = between[-_MOST_ROUNDED:]
    sides = [(floor(x), floor(x) + 1) if k in chosen else (round(x),) for k, x in enumerate(at)]
    for counts in itertools.product(*sides):
        yield _clamped(counts, box)


def _off(x: float) -> float:
    return abs(x - round(x))


def _pieces(part: _Part, at: Sequence[float]) -> Iterator[_Part | None]:
    counts = _clamped([round(x) for x in at], part.box)
    for number, condition in enumerate(part.open):
        if not fulfilled(condition, counts):
            others = part.open[:number] + part.open[number + 1 :]
            for alternative in condition.parts:
                yield _part(part.box, part.lines, (*others, alternative))
            return
    place = max(range(len(at)), key=lambda k: (_off(at[k]), part.box[k][1] - part.box[k][0]))
    low, high = part.box[place]
    if _off(at[place]) > _BETWEEN:
        cuts = [(low, floor(at[place])), (floor(at[place]) + 1, high)]
    else:  # there, and not fulfilled by a hair
        place = max(range(len(at)), key=lambda k: part.box[k][1] - part.box[k][0])
        low, high = part.box[place]
        cuts = [(low, counts[place] - 1), (counts[place],) * 2, (counts[place] + 1, high)]
        if low == high:
            return
    for span in cuts:
        if low <= span[0] <= span[1] <= high:
            box = (*part.box[:place], span, *part.box[place + 1 :])
            yield _part(box, part.lines, part.open)
