"""Columns of numbers: whole numbers over one denominator where they fit 64 bits, else floats and a bound.

A column is what one instruction leaves for many points at once. `Exact` is exactly right. `Near` is a float
with an outward bound of its distance from the exact value, infinite where nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import lcm

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_MOST = 1 << 62  # of a whole number: the sum of two still fits
_FLOAT_WHOLE = 1 << 53  # up to here every whole number is a float
_UNIT = 2.0**-52  # twice the error of one rounding: the bound's own roundings are covered, too
_TINY = 1e-300  # more than all roundings of numbers next to 0
_PLACES = 9  # decimal places that a column is tried with


@dataclass(frozen=True, slots=True)
class Exact:
    """`numbers / denominator`; no number is further from 0 than `most`."""

    numbers: Ints
    denominator: int
    most: int


@dataclass(frozen=True, slots=True)
class Near:
    """`values`, each at most `bounds` from the exact one."""

    values: Floats
    bounds: Floats


Column = Exact | Near


def constant(value: Fraction) -> Column:
    """One number for all points."""
    if abs(value.numerator) < _MOST and value.denominator < _MOST:
        return Exact(np.array([value.numerator], dtype=np.int64), value.denominator, abs(value.numerator))
    try:
        rounded = np.array([float(value)])
    except OverflowError:
        return Near(np.array([np.nan]), np.array([np.inf]))
    return Near(rounded, np.abs(rounded) * _UNIT + _TINY)


def column(values: npt.NDArray[np.generic]) -> Column:
    """Recorded values; a float stands for the shortest decimal that reads back as it. They are finite.

    `k / 10**p` is rounded correctly while both are floats, and differs for different `k` of up to 15 digits:
    so a float that it gives back stands for just that decimal. Raises `ValueError` for whole numbers that no
    float can be.
    """
    if values.dtype == np.bool_ or np.issubdtype(values.dtype, np.integer):
        if len(values) and max(int(values.max()), -int(values.min())) >= _FLOAT_WHOLE:
            raise ValueError(f"a column holds whole numbers of {_FLOAT_WHOLE} and more")
        return _exact(values.astype(np.int64), 1)
    floats = values.astype(np.float64)
    for places in range(_PLACES + 1):
        scale = 10**places
        counts = np.rint(floats * scale)
        if np.abs(counts).max(initial=0.0) >= 1e15:  # noqa: PLR2004  15 digits
            break
        if np.array_equal(counts / scale, floats):
            return _exact(counts.astype(np.int64), scale)
    return _near(floats)


def near(found: Column) -> Near:
    """The same as floats."""
    if isinstance(found, Near):
        return found
    values = found.numbers / float(found.denominator)
    if found.most < _FLOAT_WHOLE and found.denominator == 1:
        return Near(values, np.zeros(1))
    return Near(values, np.abs(values) * (2 * _UNIT) + _TINY)


def aligned(*columns: Column) -> tuple[Exact, ...] | None:
    """All over one denominator, None where some are not exact or it does not fit."""
    exact = [c for c in columns if isinstance(c, Exact)]
    if len(exact) < len(columns):
        return None
    denominator = reduce(lcm, (c.denominator for c in exact), 1)
    factors = [denominator // c.denominator for c in exact]
    if denominator >= _MOST or any(c.most * f >= _MOST for c, f in zip(exact, factors, strict=True)):
        return None
    return tuple(
        c if f == 1 else Exact(c.numbers * f, denominator, c.most * f)
        for c, f in zip(exact, factors, strict=True)
    )


def added(left: Column, right: Column, sign: int = 1) -> Column:
    """`left + sign * right`."""
    both = aligned(left, right)
    if both is not None:
        a, b = both
        if a.most + b.most < _MOST:
            return Exact(a.numbers + sign * b.numbers, a.denominator, a.most + b.most)
    x, y = near(left), near(right)
    values = x.values + sign * y.values
    return Near(values, _rounded(x.bounds + y.bounds, values))


def multiplied(left: Column, right: Column) -> Column:
    """`left * right`."""
    if isinstance(left, Exact) and isinstance(right, Exact):
        most, denominator = left.most * right.most, left.denominator * right.denominator
        if most < _MOST and denominator < _MOST:
            return Exact(left.numbers * right.numbers, denominator, most)
    x, y = near(left), near(right)
    values = x.values * y.values
    bounds = np.abs(x.values) * y.bounds + np.abs(y.values) * x.bounds + x.bounds * y.bounds
    return Near(values, _rounded(bounds, values))


def divided(left: Column, right: Column) -> Column:
    """`left / right`; nothing is known where the divisor may be 0."""
    if isinstance(right, Exact) and len(right.numbers) == 1 and right.numbers[0]:
        return multiplied(left, constant(Fraction(right.denominator, int(right.numbers[0]))))
    x, y = near(left), near(right)
    least = np.abs(y.values) - y.bounds
    known = least > 0
    divisor = np.where(known, y.values, 1.0)
    values = x.values / divisor
    bounds = (x.bounds + np.abs(values) * (1 + _UNIT) * y.bounds) / np.where(known, least, 1.0)
    return Near(values, np.where(known, _rounded(bounds, values), np.inf))


def negated(found: Column) -> Column:
    """`-found`."""
    if isinstance(found, Exact):
        return Exact(-found.numbers, found.denominator, found.most)
    return Near(-found.values, found.bounds)


def absolute(found: Column) -> Column:
    """`abs(found)`."""
    if isinstance(found, Exact):
        return Exact(np.abs(found.numbers), found.denominator, found.most)
    return Near(np.abs(found.values), found.bounds)


def picked(columns: tuple[Column, ...], rank: int) -> Column:
    """Of each point the value that is at place `rank` when they are sorted: least, greatest, median."""
    exact = aligned(*columns)
    if exact is not None:
        numbers = np.sort(np.stack(np.broadcast_arrays(*(c.numbers for c in exact))), axis=0)[rank]
        return Exact(numbers, exact[0].denominator, max(c.most for c in exact))
    every = [near(c) for c in columns]
    values = np.stack(np.broadcast_arrays(*(c.values for c in every)))
    bounds = np.stack(np.broadcast_arrays(*(np.broadcast_to(c.bounds, c.values.shape) for c in every)))
    # A rank moves no further than the value that moves most.
    return Near(np.sort(values, axis=0)[rank], bounds.max(axis=0))


def chosen(yes: Bools, may: Bools, first: Column, second: Column) -> Column:
    """`first` where `yes`, `second` where not `may`; nothing is known in between."""
    both = aligned(first, second)
    if both is not None and yes is may:
        a, b = both
        return Exact(np.where(yes, a.numbers, b.numbers), a.denominator, max(a.most, b.most))
    x, y = near(first), near(second)
    bounds = np.where(yes, x.bounds, y.bounds)
    return Near(np.where(yes, x.values, y.values), np.where(yes == may, bounds, np.inf))


def difference(left: Column, right: Column) -> tuple[Floats | Ints, Floats | None]:
    """`left - right` up to a factor above 0, and the bound of its error: None where it is exact."""
    both = aligned(left, right)
    if both is not None:
        a, b = both
        return a.numbers - b.numbers, None
    found = added(near(left), near(right), -1)
    assert isinstance(found, Near)  # noqa: S101  of two that are near
    return found.values, found.bounds


def _exact(numbers: Ints, denominator: int) -> Exact:
    return Exact(numbers, denominator, int(np.abs(numbers).max(initial=0)))


def _near(values: Floats) -> Near:
    whole = (values == np.rint(values)) & (np.abs(values) < _FLOAT_WHOLE)
    return Near(values, np.where(whole, 0.0, np.abs(values) * _UNIT + _TINY))


def _rounded(bounds: Floats, values: Floats) -> Floats:
    """A bound after one more rounding of the values, and its own."""
    return bounds * (1 + 4 * _UNIT) + np.abs(values) * _UNIT + _TINY
