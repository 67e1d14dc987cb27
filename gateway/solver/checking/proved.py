"""What a check proved of its inputs' readings from acquisition until effect, for the last gate (S17)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from gateway.core.ports import ProvedBand
from gateway.core.tag import TagId
from gateway.solver.checking.predict import Facts
from gateway.solver.modules.module import Variable
from gateway.solver.rules.interval import SCALE
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.rules.steps import FINE, Whole, fine

_FINER = FINE // SCALE
_USABLE = (Fraction(1), Fraction(1))


class Bands:
    """The bands of one rule set."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules
        self._readings = {v.tag: _Readings(v) for v in rules.reported}

    def of(self, facts: Facts, delay: Fraction) -> dict[TagId, ProvedBand]:
        """By measured tag: readings that agree with the premises until `delay` seconds after acquisition.

        Until the proposal's bytes leave, only the values in force act, so nothing else moves the prediction.
        """
        step = self._rules.modules[0].step
        acting = {tag: fine((min(values), max(values))) for tag, values in facts.old.items()}
        state: Mapping[str, Whole] = {
            tag: (low * _FINER, high * _FINER) for tag, (low, high) in facts.whole.items()
        }
        at = Fraction(0)
        states = [(0.0, state)]
        while at < delay:
            part = min(step, delay - at)
            at, state = at + part, self._rules.steps.forward(state, acting, part)
            states.append((float(at), state))
        bands: dict[TagId, ProvedBand] = {}
        oldest = -float(facts.age)
        for tag, readings in self._readings.items():
            if facts.quality.get(f"good({tag})", _USABLE)[0] == 0:
                continue  # its reading was no premise
            since = readings.of(facts.read[tag])
            corners = [(oldest, *since), (0.0, *since)]
            corners += [(seconds, *readings.of(then[tag])) for seconds, then in states]
            bands[tag] = ProvedBand(tuple(corners))
        return bands


class _Readings:
    """Turns intervals of true values into readings: widened by the error, within what a check accepts."""

    def __init__(self, variable: Variable) -> None:
        error, (low, high) = variable.uncertainty, variable.range
        self._error = math.nextafter(float(error), math.inf)
        self._least = math.nextafter(float(low + error), -math.inf)
        self._greatest = math.nextafter(float(high - error), math.inf)

    def of(self, interval: Whole) -> tuple[float, float]:
        """Least and greatest reading; each step of the arithmetic rounds outward."""
        low = math.nextafter(math.nextafter(interval[0] / FINE, -math.inf) - self._error, -math.inf)
        high = math.nextafter(math.nextafter(interval[1] / FINE, math.inf) + self._error, math.inf)
        return max(low, self._least), min(high, self._greatest)
