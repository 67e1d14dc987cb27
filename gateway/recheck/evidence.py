"""What a check was asked, as the independent checker is told of it: facts of the record, nothing concluded.

Times that the plant moved through are rounded as the record's own are, so that it is where it was taken to
be; others so that no more is possible here than there: what is found can be found by anybody.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from gateway.core.decision import CheckRequest, StateSet
from gateway.core.quality import StatusCode
from gateway.core.tag import TagValue, exact
from gateway.recheck.language import row_named
from gateway.recheck.recorded import EVER, Box, Recorded, Row

_MICRO = 1_000_000


def recorded_of(
    request: CheckRequest,
    written: Mapping[str, Fraction],
    *,
    as_backup: bool,
    kept: Mapping[str, tuple[Fraction, Fraction]] | None,
) -> Recorded:
    """The record of a check and of what was let out on it; `as_backup`: no minimum times to keep (S1)."""
    carried, at = request.carried, request.taken_at
    return Recorded(
        readings={tag: n for tag, v in request.inputs.items() if (n := _number(v)) is not None},
        quality={tag: _quality(v) for tag, v in request.inputs.items()},
        age_s={tag: _age(at - v.confirmed_at) for tag, v in request.inputs.items()},
        history={
            tag: [(entry.value, down(entry.ceased_s_ago)) for entry in entries]
            for tag, entries in request.history.items()
        },
        held_s={} if as_backup else {tag: _up(request.held_s.get(tag, 0.0)) for tag in request.history},
        written=written,
        hold_s=down(max(0.0, request.hold_s - request.effect_delay_s)),  # told from acquisition, acts later
        effect_delay_s=down(request.effect_delay_s),
        carried=None if carried is None else box_of(carried),
        gap_s=_up(at - carried.at) if carried is not None else Fraction(0),
        rows={} if carried is None else {row_named(r): _row(at, ends) for r, ends in carried.since.items()},
        earlier=[] if carried is None else [(down(at - e.at), box_of(e)) for e in carried.earlier],
        kept=kept,
    )


def box_of(state: StateSet) -> Box:
    """The intervals of a state set."""
    return {tag: (i.low, i.high) for tag, i in state.intervals.items()}


def down(seconds: float) -> Fraction:
    """Whole microseconds, rounded down."""
    return Fraction(math.floor(seconds * _MICRO), _MICRO)


def _up(seconds: float) -> Fraction:
    return Fraction(math.ceil(seconds * _MICRO), _MICRO)


def _age(seconds: float) -> Fraction:
    return _up(max(0.0, seconds)) if math.isfinite(seconds) else EVER


def _quality(value: TagValue) -> str:
    return "Good" if value.status.is_plain_good else StatusCode(value.status).name


def _row(at: float, ends: tuple[float | None, float | None]) -> Row:
    """Since how many seconds a condition has surely held, rounded up, and possibly, rounded down."""
    surely, possibly = ends
    return (
        None if surely is None else _up(at - surely) if math.isfinite(surely) else EVER,
        None if possibly is None else down(at - possibly) if math.isfinite(possibly) else EVER,
    )


def _number(value: TagValue) -> Fraction | None:
    number = value.value
    if number is None or isinstance(number, str) or not math.isfinite(number):
        return None
    return exact(number)
