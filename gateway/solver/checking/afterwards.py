"""Where an output may be while the backup acts, as straight lines in what is proposed for it.

An end of what `Way` says, of a place or of a mean, is the proposal itself, something on its way to the target
of a move, or the target. For a ramp to an end of the output's range, or beyond it, the end that is farther
from the target is the greatest, or the least, of such lines. The nearer one is not, nor is anything that
depends on a guard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gateway.solver.checking.way import PARTS, Way
from gateway.solver.modules.module import Variable
from gateway.solver.rules.interval import outward


class Line(NamedTuple):
    """`(slope * proposal + start) / over`, the proposal and the line in units of 1 / `SCALE`."""

    slope: int
    start: int
    over: int = 1


Lines = tuple[Line, ...]


class Reach(NamedTuple):
    """An end is the greatest, or the least, of a few lines; of none where it is nothing of the kind."""

    high: Lines = ()
    low: Lines = ()


_ITSELF = Line(1, 0)


def reaches(tag: str, ways: Sequence[Way], variable: Variable) -> Iterator[tuple[str, Reach]]:
    """By symbol `b{k}:TAG` and `u{k}:TAG`, for every proposal within the range."""
    for k, way in enumerate(ways):
        yield f"b{k}:{tag}", _place(way, variable)
        yield f"u{k}:{tag}", _mean(way, variable)


def _place(way: Way, variable: Variable) -> Reach:
    farthest = _farthest(way, variable)
    if way.at_once:
        return _both(way, () if way.gone else (_ITSELF,))
    gone = [Line(0, way.gone)] if farthest > way.gone else []  # of the distance to the target
    return _ends(way, variable, [*gone, *([Line(1, 0)] if way.gone else [])])


def _mean(way: Way, variable: Variable) -> Reach:
    """What `Way.mean` takes the least of, as far as it counts."""
    share, whole, farthest = way.share, 2 * PARTS, _farthest(way, variable)
    if way.at_once:
        assert way.target is not None, "what stays has no target"  # noqa: S101  an invariant
        return _both(way, (Line(PARTS - share, share * way.target[0], PARTS),))
    gone = [Line(2 * share, 0, whole)] if way.first else []
    gone += [Line(share, share * way.first, whole)] if farthest > way.first else []
    gone += [Line(0, share * (way.first + way.last), whole)] if farthest > way.last else []
    return _ends(way, variable, gone)


def _farthest(way: Way, variable: Variable) -> int:
    """From the target, within the range."""
    low, high = outward(*variable.range)
    return 0 if way.target is None else max(abs(end - at) for end in (low, high) for at in way.target)


def _both(way: Way, late: Lines) -> Reach:
    """Of a move that is made at once: there already, or as late as may be."""
    assert way.target is not None, "what stays has no target"  # noqa: S101  an invariant
    least, greatest = way.target
    if least != greatest:
        return Reach()
    lines = (*late, Line(0, greatest))
    return Reach(lines, lines)


def _ends(way: Way, variable: Variable, gone: Sequence[Line]) -> Reach:
    """`gone`: of which the least is gone of the distance to the target, each straight in it."""
    if way.target is None:
        return Reach((_ITSELF,), (_ITSELF,))
    least, greatest = way.target
    low, high = outward(*variable.range)
    if least == greatest and greatest <= low:
        return Reach(high=tuple(Line(g.over - g.slope, g.slope * greatest - g.start, g.over) for g in gone))
    if least == greatest and least >= high:
        return Reach(low=tuple(Line(g.over - g.slope, g.slope * least + g.start, g.over) for g in gone))
    return Reach()
