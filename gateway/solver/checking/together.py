"""Readings of several moments put at one of them: what was read at another was elsewhere by then (S4).

Where the dynamics of one variable ask for another that was read sooner or later, the other's reading says
nothing of where it was when the one was read. It cannot have been farther away than its fastest move, which
depends on where all of them were: a bound that holds itself up, or there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from gateway.core.ports import CheckRequest
from gateway.core.tag import TagId
from gateway.solver.checking.past import micros_down
from gateway.solver.language.affine import Affine, symbol
from gateway.solver.modules.module import Interval
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.rules.steps import FINE, Whole, fine

_TRIES = 16  # to find a bound that holds itself up
_CLOSER = 3


def together(
    rules: RuleSet,
    request: CheckRequest,
    tag: str,
    measured: Mapping[str, Whole],
    ages: Mapping[str, Fraction],
) -> Mapping[str, Whole] | None:
    """Where everything that moves `tag` was when `tag` was read; `measured` itself where all was read then.

    `ages` are those of readings in use. None where the readings lie too far apart for any bound.
    """
    around = {name: ages[name] for name in rules.steps.upstream[tag] | {tag} if name in ages}
    between = {name: abs(ages[tag] - age) for name, age in around.items() if age != ages[tag]}
    if not between:
        return measured
    apart = max(around.values()) - min(around.values())
    box = _box(rules, request, measured, max(around.values()))
    fastest = _fastest(rules, box, around, apart)
    if fastest is None:
        return None
    found = dict(measured)
    for name, seconds in between.items():
        low, high = box[name]
        reach = fastest[name] * seconds
        found[name] = fine(_possible(rules, name, (low - reach, high + reach)))
    return found


def _box(
    rules: RuleSet, request: CheckRequest, measured: Mapping[str, Whole], oldest: Fraction
) -> dict[str, Interval]:
    """Everything that dynamics ask for: as read, or wherever it may have been since the oldest reading."""
    box: dict[str, Interval] = dict(rules.disturbances)
    for variable in rules.actions:
        told = [e.value for e in request.history[variable.tag] if micros_down(e.ceased_s_ago) < oldest]
        box[str(variable.tag)] = min(told), max(told)
    for variable in rules.measured:
        low, high = (Fraction(end, FINE) for end in measured[variable.tag])
        if variable.tag not in rules.forms and variable.max_rate is None:
            low, high = min(low, variable.roams[0]), max(high, variable.roams[1])
        box[str(variable.tag)] = low, high
    return box


def _fastest(
    rules: RuleSet, box: Mapping[str, Interval], around: Mapping[str, Fraction], apart: Fraction
) -> dict[str, Fraction] | None:
    """By variable, its fastest move per second while none of them is farther from its reading than that."""

    def rates(reach: Mapping[str, Fraction]) -> dict[str, Fraction]:
        wider = {n: (box[n][0] - far, box[n][1] + far) for n, far in reach.items()}
        return {name: _rate(rules, name, {**box, **wider}) for name in around}

    reach = dict.fromkeys(around, Fraction(0))
    for _ in range(_TRIES):
        found = rates(reach)
        if all(found[name] * apart <= far for name, far in reach.items()):
            for _ in range(_CLOSER):  # what holds itself up still does when it is made as small as it says
                found = rates({name: rate * apart for name, rate in found.items()})
            return found
        reach = {name: max(far, 2 * apart * found[name]) for name, far in reach.items()}
    return None


def _rate(rules: RuleSet, name: str, box: Mapping[str, Interval]) -> Fraction:
    change = rules.forms[name].plus(symbol(name).times(Fraction(-1)))
    return max(map(abs, _ends(change, box))) / rules.modules[0].step


def _ends(form: Affine, box: Mapping[str, Interval]) -> Interval:
    low = high = form.constant
    for name, factor in form.terms.items():
        ends = sorted(factor * end for end in box[name])
        low, high = low + ends[0], high + ends[1]
    return low, high


def _possible(rules: RuleSet, name: str, ends: Interval) -> Interval:
    physical = rules.variables[TagId(name)].physical
    return ends if physical is None else (max(ends[0], physical[0]), min(ends[1], physical[1]))
