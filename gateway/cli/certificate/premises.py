"""The premises of a claim, worked out again by the checker that shares no code with the solver (S7)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from gateway.core.tag import TagValue, exact
from gateway.recheck.recorded import Recorded, premises
from gateway.solver.certificates.claims import Scene

_MICRO = 1_000_000


def premises_problem(scene: Scene, texts: Sequence[str]) -> str:
    """What the claim's state leaves out of what readings, ages and the state carried in allow; else empty.

    Raises `LanguageError` for a module that cannot be read.
    """
    request = scene.claim.examination.request
    carried = request.carried
    told = Recorded(
        readings={tag: n for tag, v in request.inputs.items() if (n := _number(v)) is not None},
        age_s={tag: _down(max(0.0, request.taken_at - v.confirmed_at)) for tag, v in request.inputs.items()},
        history={
            tag: [(entry.value, _down(entry.ceased_s_ago)) for entry in entries]
            for tag, entries in request.history.items()
        },
        held_s={},
        written={str(tag): value for tag, value in scene.claim.action.items()},
        hold_s=_down(max(0.0, request.hold_s - request.effect_delay_s)),
        effect_delay_s=_down(request.effect_delay_s),
        carried=None if carried is None else {tag: (i.low, i.high) for tag, i in carried.intervals.items()},
        gap_s=_down(request.taken_at - carried.at) if carried is not None else Fraction(0),
        kept=scene.facts.now,
    )
    found = premises(texts, told)
    if found.contradict:
        return f"reading and prediction of `{found.contradict}` do not meet"
    if found.left_out:
        return f"the claim's state leaves out values that `{found.left_out[0]}` may have"
    return ""


def _number(value: TagValue) -> Fraction | None:
    number = value.value
    if number is None or isinstance(number, str) or not math.isfinite(number):
        return None
    return exact(number)


def _down(seconds: float) -> Fraction:
    return Fraction(math.floor(seconds * _MICRO), _MICRO)
