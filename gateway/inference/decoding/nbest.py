"""The n best answers of one request, each a value for every output: a beam, level by level. Pure.

The first line is the answer that is given without a list, whatever its rank; behind it stand those that have
most of the model's probability near them. An output of a line is decoded on the line's own outputs before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from gateway.inference.decoding.decode import LEAST_LISTED, DecodedOutput, Option

MOST_PROPOSALS = 8  # of one list


@dataclass(frozen=True, slots=True)
class Line:
    """Outputs decoded so far, and the probability near all of them, each given those before it."""

    outputs: tuple[DecodedOutput, ...] = ()
    share: float = 1.0

    @property
    def raws(self) -> list[int]:
        """Their counts."""
        return [output.raw for output in self.outputs]


class Grown(NamedTuple):
    """A line one output longer than the line at place `parent` of the level before."""

    parent: int
    line: Line


def least_share(others: Sequence[float], most: int, line: Line) -> float:
    """What an option of a line must have to be among `most` lines, beside `others` that are found already."""
    enough = sorted(others, reverse=True)[most - 2 : most - 1] if most > 1 else []
    return max([LEAST_LISTED, *enough]) / line.share if line.share > 0.0 else inf


def grown(level: Sequence[tuple[Line, Sequence[Option]]], most: int) -> list[Grown]:
    """The next level, `most` lines at the most, from each line and what its next output may be.

    The first line's first option stays first. The others follow by rank, of equals those of earlier lines
    first; lines with less than `LEAST_LISTED` are no proposals.
    """
    found = [
        Grown(parent, Line((*line.outputs, option.output), line.share * option.share))
        for parent, (line, options) in enumerate(level)
        for option in options
    ]
    first, *others = found
    others = [each for each in others if each.line.share >= LEAST_LISTED]
    return [first, *sorted(others, key=lambda each: -each.line.share)[: most - 1]]
