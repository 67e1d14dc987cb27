"""Sums as a certificate's bounds state them: multipliers, the ends they count with, what it comes to."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Point = Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class Sum:
    """`constant + sum(multiplier * symbol) <= 0`, and below 0 where `strict`."""

    constant: Fraction
    terms: tuple[tuple[str, Fraction, Fraction], ...]  # symbol, multiplier, end
    worst: Fraction
    strict: bool

    def at(self, point: Point) -> Fraction:
        """Its value at a point."""
        return self.constant + sum((m * point[name] for name, m, _ in self.terms), Fraction(0))

    def holds(self, point: Point) -> bool:
        """Whether it keeps its limit at a point."""
        value = self.at(point)
        return value < 0 or (value == 0 and not self.strict)


def sums_of(proof: Mapping[str, Any]) -> Iterator[Sum]:
    """All sums of a proof; raises `KeyError` and the like for what is none."""
    if "all" in proof:
        yield from itertools.chain.from_iterable(sums_of(part) for part in proof["all"])
    elif "any" in proof:
        yield from sums_of(proof["of"])
    else:
        said = proof["sum"]
        yield Sum(
            Fraction(said["constant"]),
            tuple((str(n), Fraction(m), Fraction(e)) for n, m, e in said["terms"]),
            Fraction(said["worst"]),
            bool(said["strict"]),
        )
