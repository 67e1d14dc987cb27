"""What the readings alone say of one instant, and what has acted since another: the monitor's facts (S16)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

from gateway.core.ports import CheckRequest
from gateway.core.tag import TagId, exact
from gateway.solver.checking.motion import hull
from gateway.solver.checking.past import micros_down, micros_up
from gateway.solver.modules.module import Variable
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.rules.steps import Whole, fine

_MOST_PIECES = 8  # of the time between two decisions, by what was in force


@dataclass(slots=True)
class Piece:
    """A time in which these values may have acted."""

    seconds: Fraction
    acting: dict[str, Whole]


@dataclass(frozen=True, slots=True)
class Moment:
    """Where each variable may be at one instant by its reading alone, and when that was confirmed."""

    at: Fraction
    sets: dict[str, Whole]
    confirmed_at: dict[str, float]

    def newer(self, tag: TagId, before: Moment | None) -> bool:
        """Whether there is a reading of a tag that was not there before."""
        if tag not in self.confirmed_at:
            return False
        return before is None or self.confirmed_at[tag] > before.confirmed_at.get(tag, -math.inf)


def moment(rules: RuleSet, request: CheckRequest, at: Fraction) -> Moment:
    """The readings of a request, each carried on by its age; without one, wherever it physically can be."""
    raw: dict[str, Whole] = {}
    ages: dict[str, Fraction] = {}
    confirmed: dict[str, float] = {}
    for variable in rules.measured:
        tag = str(variable.tag)
        number = None if variable.hidden else _number(variable, request)
        if number is None:
            raw[tag] = fine(variable.physical or variable.roams)
            continue
        error = variable.uncertainty
        raw[tag] = fine((number - error, number + error))
        confirmed[tag] = request.inputs[variable.tag].confirmed_at
        ages[tag] = micros_up(max(0.0, request.taken_at - confirmed[tag]))
    return Moment(at, _by_now(rules, request, raw, ages), confirmed)


def _by_now(
    rules: RuleSet, request: CheckRequest, raw: dict[str, Whole], ages: dict[str, Fraction]
) -> dict[str, Whole]:
    sets = dict(raw)
    moved: dict[Fraction, dict[str, Whole]] = {}  # most tags are read together
    for variable in rules.measured:
        tag = str(variable.tag)
        age = ages.get(tag)
        if not age:
            continue
        if tag in rules.forms:
            if age not in moved:
                state = raw
                for piece in pieces(rules, request, age):
                    state = rules.steps.forward(state, piece.acting, piece.seconds)
                moved[age] = state
            sets[tag] = moved[age][tag]
        elif variable.max_rate is not None:
            reach = fine((variable.max_rate * age,) * 2)[1]
            sets[tag] = raw[tag][0] - reach, raw[tag][1] + reach
    return sets


def _number(variable: Variable, request: CheckRequest) -> Fraction | None:
    """A reading that may be used, None where there is none."""
    sample = request.inputs.get(variable.tag)
    if sample is None or sample.value is None or isinstance(sample.value, str):
        return None
    if not math.isfinite(sample.value) or not math.isfinite(sample.confirmed_at):
        return None
    if not sample.status.is_plain_good and sample.status.name not in variable.accept_quality:
        return None
    return exact(sample.value)


def pieces(rules: RuleSet, request: CheckRequest, seconds: Fraction) -> list[Piece]:
    """The newest `seconds` in pieces, oldest first, each with what may have acted in it."""
    ceased = {
        str(v.tag): [(e.value, micros_down(e.ceased_s_ago)) for e in request.history[v.tag]]
        for v in rules.actions
    }
    cuts = sorted({ago for told in ceased.values() for _, ago in told if 0 < ago < seconds}, reverse=True)
    moments = [seconds, *cuts[: _MOST_PIECES - 1], Fraction(0)]
    return [
        Piece(
            start - end,
            {
                tag: fine(hull(*(v for v, ago in told if ago < start or not ago)))
                for tag, told in ceased.items()
            },
        )
        for start, end in itertools.pairwise(moments)
    ]
