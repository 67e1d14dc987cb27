"""Which rows hold wherever a state may be and whatever the outputs are: in floats, with room for rounding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from gateway.solver.decoding.counts import Span
from gateway.solver.decoding.tracks import Track
from gateway.solver.modules.module import Variable

_ROUNDING = 1e-9  # of the sizes that are added up, far more than their sums can be off by


class LinearRows:
    """`constant + sum(factor * symbol) <= 0`, for many rows at once."""

    def __init__(self, rows: Sequence[tuple[int, Mapping[str, int]]], domains: Sequence[Span]) -> None:
        """`domains`: by place, the counts that an output's register can hold."""
        self._domains = domains
        self._names = sorted({name for _, factors in rows for name in factors})
        at = {name: k for k, name in enumerate(self._names)}
        factors = np.zeros((len(rows), len(self._names)))
        for number, (_, mine) in enumerate(rows):
            for name, factor in mine.items():
                factors[number, at[name]] += factor
        self._constant = np.array([float(constant) for constant, _ in rows])
        self._over, self._under = np.maximum(factors, 0.0), np.minimum(factors, 0.0)

    def hold(self, known: Mapping[str, Span], moving: Mapping[str, Track]) -> NDArray[np.bool_]:
        """By row, True where it holds for certain; False says nothing."""
        ends = [known[name] if name in known else self._ends(moving[name]) for name in self._names]
        low, high = np.array(ends, dtype=np.float64).reshape(len(ends), 2).T
        worst = self._constant + self._over @ high + self._under @ low
        size = np.abs(self._constant) + (self._over - self._under) @ np.maximum(np.abs(low), np.abs(high))
        return np.asarray(worst + _ROUNDING * size < 0.0, dtype=np.bool_)

    def _ends(self, track: Track) -> tuple[float, float]:
        """A greatest of straight lines is greatest at an end of the counts, a least of them least."""
        counts = self._domains[track.place]
        highs, lows = track.farthest
        high = max((p.slope * c + p.start) / p.unit for p in highs for c in counts)
        low = min((p.slope * c + p.start) / p.unit for p in lows for c in counts)
        return low, high


def registers(variable: Variable) -> Span:
    """The counts that a register can hold; without a range of counts, those in the variable's range."""
    definition = variable.definition
    if definition.raw_range is not None:
        return definition.raw_range
    ends = [(end - definition.offset) / definition.scale for end in variable.range]
    return floor(min(ends)), ceil(max(ends))


def joined(*parts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The factors of a row's symbols."""
    found: dict[str, int] = {}
    for part in parts:
        for name, factor in part:
            found[name] = found.get(name, 0) + factor
    return found
