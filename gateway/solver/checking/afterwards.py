"""Where an output may be while the backup acts, as straight lines in what is proposed for it.

An end of what `Course` says is the proposal itself, a way nearer to the target of a move, or the target. For
a ramp to an end of the output's range, or beyond it, the end that is farther from the target is the greatest,
or the least, of two such lines. The nearer one is not, nor is anything that depends on a guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gateway.solver.checking.course import Course, StepMove
from gateway.solver.modules.module import Variable
from gateway.solver.rules.interval import outward

Pick = Callable[[int, int], int]  # the greater, or the lesser


@dataclass(frozen=True, slots=True)
class End:
    """The greatest, or the least, of `proposal + shift` and `limit`, in units of 1 / `SCALE`."""

    shift: int | None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Reach:
    """Both ends of an output in one segment; None where an end is nothing of the kind."""

    high: End | None
    low: End | None


def reaches(course: Course, variable: Variable) -> Iterator[tuple[str, Reach]]:
    """By symbol `b{k}:TAG`; nothing of an output whose moves depend on a guard."""
    tag = str(variable.tag)
    acting = Reach(End(0), End(0))
    for k, move, idle in course.unguarded(tag) or ():
        moved = _moved(acting, move, variable)
        during = Reach(_either(acting.high, moved.high, max), _either(acting.low, moved.low, min))
        acting = during if idle else moved
        yield f"b{k}:{tag}", during


def _moved(acting: Reach, move: StepMove, variable: Variable) -> Reach:
    """After a move, whatever the proposal within the range."""
    if move.target is None:
        return acting
    least, greatest = move.target
    if not move.paces:
        return Reach(End(None, greatest), End(None, least))
    nearest = min(pace[0] for pace in move.paces)  # the way that is certainly gone
    low, high = outward(*variable.range)
    above = least == greatest and greatest <= low
    below = least == greatest and least >= high
    return Reach(
        _nearer(acting.high, -nearest, greatest) if above else None,
        _nearer(acting.low, nearest, least) if below else None,
    )


def _nearer(end: End | None, way: int, target: int) -> End | None:
    """An end a way nearer to a target that it does not pass: the target is a limit from then on."""
    if end is None:
        return None
    return End(None if end.shift is None else end.shift + way, target)


def _either(one: End | None, other: End | None, pick: Pick) -> End | None:
    """The greatest of two greatest, or the least of two least."""
    if one is None or other is None:
        return None
    return End(_picked(one.shift, other.shift, pick), _picked(one.limit, other.limit, pick))


def _picked(one: int | None, other: int | None, pick: Pick) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return pick(one, other)
