"""Decimal text of requests as numbers."""

from __future__ import annotations

import math
from fractions import Fraction

from gateway.core.errors import InferenceError


def numbers(texts: tuple[str, ...]) -> tuple[float, ...]:
    """The nearest floats to `exact_numbers`, mostly without making fractions of them."""
    try:
        values = tuple(map(float, texts))
    except ValueError:  # `p/q`, or none
        return tuple(map(float, exact_numbers(texts)))
    return values if all(map(math.isfinite, values)) else tuple(map(float, exact_numbers(texts)))


def exact_numbers(texts: tuple[str, ...]) -> tuple[Fraction, ...]:
    """Values as they travel, again; raises `InferenceError`."""
    try:
        values = tuple(Fraction(text) for text in texts)
        for value in values:
            float(value)
    except (ValueError, ZeroDivisionError, OverflowError) as exc:
        message = f"a value of {texts} is not a number"
        raise InferenceError(message) from exc
    return values
