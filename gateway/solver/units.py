"""Units as texts: equal or not, and per second."""

from __future__ import annotations

from typing import Literal

_SAME = {"degC": "°C", "m^3/h": "m3/h"}


def canonical(unit: str) -> str:
    """One spelling for each unit."""
    return _SAME.get(unit, unit)


def per_second(unit: str) -> str:
    """The unit of a change of `unit` per second."""
    return f"{unit}/s" if unit else "1/s"


def joined(left: str | None, right: str | None) -> str | Literal[False] | None:
    """The common unit of two addends, None when neither claims one, False when they are unlike."""
    if left is None:
        return right
    if right is None or canonical(left) == canonical(right):
        return left
    return False
