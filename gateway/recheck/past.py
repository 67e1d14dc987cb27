"""What the checks before a decision tell: values one step ago, and how long conditions have held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from gateway.recheck.source import Range, Source
from gateway.recheck.tree import rows

_ABOUT = Fraction(1, 4)  # of a step: how far "one step ago" may be off
_MOMENT = Fraction(2, 1_000_000)  # times come rounded


def one_step_ago(earlier: Sequence[tuple[Fraction, Mapping[str, Range]]], step: Fraction) -> dict[str, Range]:
    """What the check nearest to one step ago showed; nothing where there was none about then.

    Of two that are equally near only what both show: nobody knows which of them was taken.
    """
    off = [(abs(ago - step), box) for ago, box in earlier if abs(ago - step) <= step * _ABOUT + _MOMENT]
    if not off:
        return {}
    least = min(distance for distance, _ in off)
    nearest = [box for distance, box in off if distance <= least + _MOMENT]
    found = dict(nearest[0])
    for box in nearest[1:]:
        for tag, (low, high) in box.items():
            if tag in found and max(low, found[tag][0]) <= min(high, found[tag][1]):
                found[tag] = max(low, found[tag][0]), min(high, found[tag][1])
    return found


def for_held(
    sources: Sequence[Source], since: Mapping[str, tuple[Fraction | None, Fraction | None]]
) -> dict[str, tuple[bool, bool]]:
    """By `MODULE/condition for N s`: whether it has surely and has possibly held that long until now.

    That it holds now is for whoever asks. Of a row that nobody has told of anything may be true.
    """
    found: dict[str, tuple[bool, bool]] = {}
    for row in rows([tree for source in sources for tree in source.trees]):
        name = f"{row.module}/{row.words}"
        if name in since:
            found[f"{name} for {row.told}"] = (
                _lasted(since[name][0], row.seconds),
                _lasted(since[name][1], row.seconds),
            )
    return found


def _lasted(seconds: Fraction | None, wanted: Fraction) -> bool:
    return seconds is not None and seconds >= wanted
