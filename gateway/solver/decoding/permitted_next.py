"""Guidance for decoding: which register counts of the next output can still lead to a permitted decision.

An answer is about a block of outputs that is decoded one by one, in a fixed order. For the output whose turn
it is, it has the counts v for which counts of all later outputs exist, such that the check permits the whole
block, every register as decoded. What a restraint (S12) would make of a block afterwards is no part of it.
A permitted count is never left out. `Exactly` these counts are the permitted ones; `AtMost` these are, and
why some may lead nowhere is told. The whole block needs the check all the same: nothing is permitted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.solver.decoding.counts import Spans, holds


@dataclass(frozen=True, slots=True)
class Exactly:
    """These counts, and no others, can still lead to a permitted decision; none where nothing can."""

    counts: Spans


@dataclass(frozen=True, slots=True)
class AtMost:
    """No other counts can lead to a permitted decision; `because` some of these may not either."""

    counts: Spans
    because: str


@dataclass(frozen=True, slots=True)
class NotKnown:
    """Nobody can decide on these premises: nothing would be permitted."""

    because: str


PermittedNext = Exactly | AtMost | NotKnown


def mask(found: PermittedNext, counts: Sequence[int]) -> list[bool]:
    """Of some counts, such as those nearest to a model's bins, which may be decoded."""
    if isinstance(found, NotKnown):
        return [False] * len(counts)
    return [holds(found.counts, count) for count in counts]
