"""Decimals for people: as many digits as the figures bear, bands rounded outward."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from gateway.solver.identify.fit import Fit


def rounded_fit(fit: Fit) -> Fit:
    """The same with every coefficient a decimal two digits finer than its standard error."""
    return replace(
        fit, effects=tuple(replace(e, value=float(rounded(e.value, e.error))) for e in fit.effects)
    )


def rounded(value: float, error: float) -> Fraction:
    """A decimal so near to `value` that the difference is nothing beside `error`; never 0 for another."""
    finest = abs(value) * 1e-9
    places = max(0, 2 - math.floor(math.log10(max(error, finest, 1e-15))))
    return Fraction(round(Fraction(value) * 10**places), 10**places)


def rounded_out(value: Fraction, digits: int) -> Fraction:
    """The next decimal of so many digits that is not below `value`."""
    if not value:
        return value
    places = digits - 1 - math.floor(math.log10(abs(value)))
    scale = Fraction(10) ** places
    return Fraction(math.ceil(value * scale)) / scale
