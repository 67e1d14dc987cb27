"""What a check proved of its inputs' readings from acquisition until effect, for the last gate (S17)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from gateway.core.ports import ProvedBand
from gateway.core.tag import TagId
from gateway.solver.module import Variable
from gateway.solver.predict import Facts, reading_error
from gateway.solver.ruleset import RuleSet
from gateway.solver.steps import FINE, Whole, fine

_USABLE = (Fraction(1), Fraction(1))


def proved_bands(rules: RuleSet, facts: Facts, delay: Fraction) -> dict[TagId, ProvedBand]:
    """By measured tag: readings that agree with the premises until `delay` seconds after acquisition.

    Until the proposal's bytes leave, only the values in force act, so nothing else moves the prediction.
    """
    step = rules.modules[0].step
    acting = {tag: fine((min(values), max(values))) for tag, values in facts.old.items()}
    now = {tag: fine(ends) for tag, ends in facts.now.items()}
    states: list[tuple[Fraction, Mapping[str, Whole]]] = [(Fraction(0), now)]
    while states[-1][0] < delay:
        at, state = states[-1]
        part = min(step, delay - at)
        states.append((at + part, rules.steps.forward(state, acting, part)))
    bands: dict[TagId, ProvedBand] = {}
    for variable in rules.reported:
        tag = variable.tag
        if facts.quality.get(f"good({tag})", _USABLE)[0] == 0:
            continue  # its reading was no premise
        readings = _Readings(variable)
        since = readings.of(facts.read[tag])
        corners = [(-float(facts.age), *since), (0.0, *since)]
        corners += [(float(at), *readings.of(state[tag])) for at, state in states]
        bands[tag] = ProvedBand(tuple(corners))
    return bands


class _Readings:
    """Turns intervals of true values into readings: widened by the error, within what a check accepts."""

    def __init__(self, variable: Variable) -> None:
        error, (low, high) = reading_error(variable), variable.range
        self._error = math.nextafter(float(error), math.inf)
        self._least = math.nextafter(float(low + error), -math.inf)
        self._greatest = math.nextafter(float(high - error), math.inf)

    def of(self, interval: Whole) -> tuple[float, float]:
        """Least and greatest reading; each step of the arithmetic rounds outward."""
        low = math.nextafter(math.nextafter(interval[0] / FINE, -math.inf) - self._error, -math.inf)
        high = math.nextafter(math.nextafter(interval[1] / FINE, math.inf) + self._error, math.inf)
        return max(low, self._least), min(high, self._greatest)
