"""Units of numbers: unlike ones do not mix; temperatures and gauge or absolute pressures are points.

A point unit (`degC`, `bar(g)`) has a difference unit (`K`, `bar`): point - point is a difference, point +
difference a point, point + point nothing. A bare number takes any unit that makes sense, so what an
expression measures is a set of units, or None where anything goes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

Units = frozenset[str] | None  # None: bare, takes the unit it needs

_SAME = {"°C": "degC", "m^3/h": "m3/h"}
_PRESSURE = re.compile(r"(.+)\((?:g|a)\)")
_POINTS = {"K": ("degC",)}


class UnitError(Exception):
    """Two units do not go together; the text says which."""


def canonical(unit: str) -> str:
    """One spelling for each unit."""
    return _SAME.get(unit, unit)


def difference(unit: str) -> str:
    """The unit of a difference of two values of `unit`."""
    unit = canonical(unit)
    match = _PRESSURE.fullmatch(unit)
    return match.group(1) if match else "K" if unit == "degC" else unit


def per_second(unit: str) -> str:
    """The unit of a change of `unit` per second."""
    return f"{difference(unit)}/s" if unit else "1/s"


def of(unit: str) -> Units:
    """The units of a variable."""
    return frozenset((canonical(unit),))


def shown(units: Units) -> str:
    """For people: the first of them."""
    return f"`{min(units)}`" if units else "a bare number"


def joined(left: Units, right: Units) -> Units:
    """The common units of two values that are compared; raises `UnitError`."""
    if left is None or right is None:
        return right if left is None else left
    return _some(left & right, left, right)


def added(left: Units, right: Units) -> Units:
    """The units of a sum; raises `UnitError`."""
    if left is None and right is None:
        return None
    if left is None or right is None:
        known = left or right or frozenset()
        return known.union(*(_points(unit) for unit in known if not _is_point(unit)))
    found = {
        a if _is_point(a) else b for a in left for b in right if _adds(a, b) or (a == b and not _is_point(a))
    }
    return _some(found, left, right, "added")


def subtracted(left: Units, right: Units) -> Units:
    """The units of a difference; raises `UnitError`."""
    if left is None and right is None:
        return None
    if right is None:
        assert left is not None  # noqa: S101  one of the two is known
        return left | {difference(unit) for unit in left}
    if left is None:
        return frozenset(difference(u) for u in right).union(*(_points(u) for u in right if not _is_point(u)))
    found = {difference(a) for a in left for b in right if a == b}
    found |= {a for a in left for b in right if _is_point(a) and difference(a) == b}
    return _some(found, left, right, "subtracted")


def multiplied(units: Units) -> None:
    """Whether a value may be a factor; raises `UnitError` for a temperature that is no difference."""
    if units is not None and units <= {"degC"}:
        msg = (
            "a product of a temperature in degC has no meaning: write a difference such as `(t - 0)`, "
            "or declare the variable with a bare unit"
        )
        raise UnitError(msg)


def _is_point(unit: str) -> bool:
    return difference(unit) != unit


def _points(unit: str) -> Iterable[str]:
    return _POINTS.get(unit, (f"{unit}(a)", f"{unit}(g)") if unit else ())


def _adds(one: str, other: str) -> bool:
    """Whether one of the two is a point and the other a difference that moves it."""
    return one != other and difference(one) == difference(other) and _is_point(one) != _is_point(other)


def _some(
    found: Iterable[str],
    left: frozenset[str],
    right: frozenset[str],
    verb: Literal["added", "subtracted", "compared"] = "compared",
) -> frozenset[str]:
    units = frozenset(found)
    if units:
        return units
    if left == right:
        msg = f"two values in {shown(left)} cannot be {verb}: they are points on a scale, not amounts"
        raise UnitError(msg)
    msg = f"{shown(left)} and {shown(right)} are unlike units"
    raise UnitError(msg)
