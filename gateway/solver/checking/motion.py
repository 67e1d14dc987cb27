"""Where the plant may be some time later: from one state set on, and from that of the last check (S2)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from fractions import Fraction

from gateway.core.ports import CheckRequest, InForce
from gateway.solver.checking.past import micros_down, micros_up, usable
from gateway.solver.modules.module import Interval, Variable
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.rules.steps import Whole, fine

TOLD_S = Fraction(120)  # a pipeline lists what ceased since then
_MOST_PIECES = 8  # of the time since the last check, by what was in force


def grown(variable: Variable, interval: Interval, seconds: Fraction) -> Interval:
    """Where a variable without dynamics may be that many seconds later."""
    if variable.max_rate is None:
        low, high = variable.roams if seconds else interval
        low, high = min(low, interval[0]), max(high, interval[1])
    else:
        reach = variable.max_rate * seconds
        low, high = interval[0] - reach, interval[1] + reach
        if variable.sort != "real":  # it may count up at any moment
            low, high = Fraction(math.floor(low)), Fraction(math.ceil(high))
    if variable.physical is not None:
        low, high = max(low, variable.physical[0]), min(high, variable.physical[1])
    return low, high


def predicted(rules: RuleSet, request: CheckRequest) -> dict[str, Whole] | None:
    """Where the last check's state set has come to since; None where there is none to carry."""
    carried = usable(rules, request)
    if carried is None:
        return None
    state = {tag: fine((i.low, i.high)) for tag, i in carried.intervals.items() if tag in rules.variables}
    if state.keys() != {str(v.tag) for v in rules.measured}:
        return None
    return since(rules, request, state, micros_up(request.taken_at - carried.at))


def since(
    rules: RuleSet, request: CheckRequest, start: Mapping[str, Whole], seconds: Fraction
) -> dict[str, Whole]:
    """Where the plant is, from where it was so many seconds ago; what ceased meanwhile acted until then.

    What acted longer ago than is told may have been anything.
    """
    ceased = {str(v.tag): _ceased(request.history[v.tag]) for v in rules.actions}
    cuts = sorted({ago for told in ceased.values() for _, ago in told if 0 < ago < seconds}, reverse=True)
    moments = [seconds, *cuts[: _MOST_PIECES - 1], Fraction(0)]
    if seconds > TOLD_S:
        moments = [seconds, *(moment for moment in (TOLD_S, *moments[1:]) if moment <= TOLD_S)]
    anything = {str(v.tag): v.range for v in rules.actions}
    state = dict(start)
    for begins, ends in itertools.pairwise(moments):
        acting = {
            tag: fine(
                hull(
                    *(v for v, ago in told if ago < begins or not ago),
                    *(anything[tag] if begins > TOLD_S else ()),
                )
            )
            for tag, told in ceased.items()
        }
        state = rules.steps.forward(state, acting, begins - ends)
    return state


def hull(*values: Fraction) -> Interval:
    """Least and greatest."""
    return min(values), max(values)


def _ceased(entries: tuple[InForce, ...]) -> tuple[tuple[Fraction, Fraction], ...]:
    """Values with how long ago each ceased at the earliest."""
    return tuple((e.value, micros_down(e.ceased_s_ago)) for e in entries)
