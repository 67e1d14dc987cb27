"""Where the plant may be some time later, in whole numbers: what every check works out, several times.

Ends are in units of 1 / `FINE` and rounded outward after each step. Decimals of a rule set and of a reading
need no rounding for the first steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from gateway.solver.language.affine import Affine
from gateway.solver.modules.module import Interval, Variable

FINE = 10**24
_MOST_PARTS = 64  # lengths of steps whose factors are kept

Whole = tuple[int, int]  # an interval in units of 1 / `FINE`
_NOTHING: Mapping[str, Whole] = {}


def fine(interval: Interval) -> Whole:
    """An interval that holds this one."""
    low, high = interval
    return low.numerator * FINE // low.denominator, -(-high.numerator * FINE // high.denominator)


@dataclass(frozen=True, slots=True)
class _Form:
    """The next value of one variable: `(constant + sum(factor * value)) / divisor`."""

    tag: str
    constant: int
    terms: tuple[tuple[str, int], ...]
    divisor: int


@dataclass(frozen=True, slots=True)
class Sensor:
    """What a rule set says of one variable's readings."""

    error: int
    low: int  # of the range, rounded inward as `high` is: what only may be outside it is
    high: int
    physical: Whole | None
    max_age: float  # the greatest age in seconds that is no more than the variable's

    @staticmethod
    def of(variable: Variable) -> Sensor:
        """In units of 1 / `FINE`."""
        low, high = variable.range
        return Sensor(
            fine((variable.uncertainty, variable.uncertainty))[1],
            fine((low, low))[1],
            fine((high, high))[0],
            None if variable.physical is None else fine(variable.physical),
            math.inf if variable.max_age is None else _at_most(variable.max_age),
        )


class Steps:
    """The dynamics of one rule set; not changed by what is asked."""

    # INVARIANT: `_parts` holds only what its keys tell, at most `_MOST_PARTS` of it.

    def __init__(
        self,
        measured: Sequence[Variable],
        forms: Mapping[str, Affine],
        disturbances: Mapping[str, Interval],
        step: Fraction,
    ) -> None:
        self._forms, self._step = forms, step
        self._disturbances = {name: fine(interval) for name, interval in disturbances.items()}
        self._free = [v for v in measured if v.tag not in forms]
        self._range = {str(v.tag): fine(v.roams) for v in self._free}
        self._physical = {str(v.tag): fine(v.physical) for v in self._free if v.physical is not None}
        self._parts: dict[Fraction, list[_Form]] = {}
        self.sensors = {v.tag: Sensor.of(v) for v in measured}
        self.upstream = {tag: _upstream(tag, forms) for tag in forms}

    def forward(
        self,
        start: Mapping[str, Whole],
        acting: Mapping[str, Whole],
        seconds: Fraction,
        held: Mapping[str, Whole] = _NOTHING,
    ) -> dict[str, Whole]:
        """Where every measured variable may be later, any of `acting` being in force at any time.

        What is `held`, a variable without dynamics, is known for all of that time.
        """
        state = dict(start)
        left = seconds
        while left > 0:
            part = min(left, self._step)
            left -= part
            during: dict[str, Whole] = {**self._disturbances, **acting, **state}
            after = {
                str(v.tag): held[v.tag] if v.tag in held else self.grown(v, state[v.tag], part)
                for v in self._free
            }
            during.update(after)
            for form in self._during(part):
                low = high = form.constant
                for name, factor in form.terms:
                    first, last = during[name]
                    low += factor * (first if factor > 0 else last)
                    high += factor * (last if factor > 0 else first)
                after[form.tag] = low // form.divisor, -(-high // form.divisor)
            state = after
        return state

    def grown(self, variable: Variable, interval: Whole, seconds: Fraction) -> Whole:
        """`motion.grown` of a variable without dynamics, for more than no time where it has no rate."""
        low, high = interval
        if variable.max_rate is None:
            first, last = self._range[variable.tag]
            low, high = min(low, first), max(high, last)
        else:
            rate = variable.max_rate
            reach = -(-rate.numerator * seconds.numerator * FINE // (rate.denominator * seconds.denominator))
            low, high = low - reach, high + reach
            if variable.sort != "real":  # it may count up at any moment
                low, high = low // FINE * FINE, -(-high // FINE) * FINE
        if variable.tag in self._physical:
            first, last = self._physical[variable.tag]
            low, high = max(low, first), min(high, last)
        return low, high

    def _during(self, part: Fraction) -> list[_Form]:
        """The forms of a step that is shorter than a whole one: a straight line between its ends."""
        if part not in self._parts:
            if len(self._parts) >= _MOST_PARTS:
                self._parts.clear()
            share = part / self._step
            self._parts[part] = [_form(tag, form, share) for tag, form in self._forms.items()]
        return self._parts[part]


def _upstream(tag: str, forms: Mapping[str, Affine]) -> frozenset[str]:
    """The other variables with dynamics that move one, at once or by way of others."""
    found: set[str] = set()
    left = {tag}
    while left:
        more = forms[left.pop()].symbols & forms.keys()
        left |= more - found
        found |= more
    return frozenset(found - {tag})


def _at_most(value: Fraction) -> float:
    found = float(value)
    return found if found <= value else math.nextafter(found, -math.inf)


def _form(tag: str, form: Affine, share: Fraction) -> _Form:
    factors = {name: c * share for name, c in form.terms.items()}
    factors[tag] = factors.get(tag, Fraction(0)) + 1 - share
    constant = form.constant * share
    divisor = lcm(constant.denominator, *(c.denominator for c in factors.values()))
    terms = tuple((name, int(c * divisor)) for name, c in factors.items() if c)
    return _Form(tag, int(constant * divisor) * FINE, terms, divisor)
