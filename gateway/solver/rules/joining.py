"""Two modules' views of one tag as one: the weaker of each assumption, the stronger of each demand (S3)."""

from __future__ import annotations

from dataclasses import replace

from gateway.solver.modules.module import Variable


def joined(one: Variable, other: Variable) -> Variable:
    """The common view; raises `ValueError` where there is none."""
    if (one.sort, one.action) != (other.sort, other.action):
        msg = (
            f"`{other.name}` ({other.tag}) is declared otherwise than `{one.name}` of another module in force"
        )
        raise ValueError(msg)
    if one.labels is not None and other.labels is not None and dict(one.labels) != dict(other.labels):
        msg = f"the labels of `{other.name}` ({other.tag}) differ from those of another module in force"
        raise ValueError(msg)
    ages = [age for age in (one.max_age, other.max_age) if age is not None]
    physical = max_rate = None  # what one module vouches for is no premise of the other's rules
    if one.physical is not None and other.physical is not None:
        physical = (min(one.physical[0], other.physical[0]), max(one.physical[1], other.physical[1]))
    if one.max_rate is not None and other.max_rate is not None:
        max_rate = max(one.max_rate, other.max_rate)
    # a reading outside either is not believed, but nothing keeps the plant inside the narrower one
    low, high = max(one.range[0], other.range[0]), min(one.range[1], other.range[1])
    if low > high:
        msg = f"the ranges of `{other.name}` ({other.tag}) have nothing in common"
        raise ValueError(msg)
    least, most = min(one.roams[0], other.roams[0]), max(one.roams[1], other.roams[1])
    return replace(
        one,
        range=(low, high),
        widest=None if one.action or (least, most) == (low, high) else (least, most),
        error=max(one.error, other.error),
        max_age=min(ages, default=None),
        max_rate=max_rate,
        physical=physical,
        min_on=max(one.min_on, other.min_on),
        min_off=max(one.min_off, other.min_off),
        accept_quality=one.accept_quality & other.accept_quality,
    )
