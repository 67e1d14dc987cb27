"""Guidance for decoding: which register counts of the next output can still lead to a permitted decision.

Plain data, made by the checker and read by whoever decodes a block of outputs one by one, in a fixed order.
A count that could lead to a permitted block is never left out; one that is not left out promises nothing: the
whole block is checked all the same, and nothing is permitted here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NewType

from gateway.core.spans import Span, Spans, holds, join, meet, without
from gateway.core.tag import TagId

PackedGuidance = NewType("PackedGuidance", bytes)  # a `Guidance` as the checker encodes and engines decode it
NOTHING = "no block of outputs can be permitted"  # why a block is decoded unguided though guidance came
Terms = tuple[tuple[int, int], ...]  # place in the order, factor; places ascending


@dataclass(frozen=True, slots=True)
class GuidanceCase:
    """A box, a span for each place, and lines `sum(factor * count) <= limit`, all of which must hold."""

    box: tuple[Span, ...]
    lines: tuple[tuple[Terms, int], ...]


@dataclass(frozen=True, slots=True)
class GuidanceLevel:
    """Of one place, once all before it are fixed: one of the cases must hold, within what is allowed.

    `why` some of what is left may lead nowhere; empty where all of it can lead to a permitted block.
    """

    allowed: Spans
    cases: tuple[GuidanceCase, ...]
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guidance:
    """All answers for one state.

    `refused` are counts that a check has refused together already; None stands for any count.
    """

    order: tuple[TagId, ...]
    levels: tuple[GuidanceLevel, ...]  # one for each output, or none where nothing can be permitted
    refused: tuple[tuple[int | None, ...], ...] = ()

    @property
    def exact(self) -> bool:
        """Whether a block decoded along it is permitted for certain, if its state is the one checked."""
        return not any(level.why for level in self.levels)

    def after(self, fixed: Sequence[int]) -> Spans:
        """The counts of the output after those that are fixed; some output must be left."""
        place = len(fixed)
        if not self.levels or not all(
            holds(level.allowed, count) for level, count in zip(self.levels, fixed, strict=False)
        ):
            return ()
        level = self.levels[place]
        found = join(span for case in level.cases if (span := _span(case, fixed)) is not None)
        left = meet(found, level.allowed)
        for block in self.refused:
            count = block[place]
            settled = all(other is None for other in block[place + 1 :])
            if count is not None and settled and _meets(block, fixed):
                left = without(left, count)
        return left


@dataclass(frozen=True, slots=True)
class Unguided:
    """There is no guidance, and why."""

    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A block of counts that a check of this decision has refused, and for what."""

    block: tuple[int, ...]  # in the order of decoding
    module: str
    constraint: str
    witness: Mapping[str, Fraction]  # the counterexample's assignment


Refusals = tuple[Refusal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """How a model's proposal was decoded. Information: no verdict depends on it."""

    guided: bool
    because: str = ""  # why it was not guided, or why guidance was not exact
    attempts: int = 1
    masked_out: Mapping[TagId, float] = field(default_factory=dict)  # share of probability not answerable

    def said(self) -> str:
        """In words, for people."""
        tries = f", attempt {self.attempts} after {self.attempts - 1} refused" if self.attempts > 1 else ""
        if not self.guided:
            return f"not guided{tries}: {self.because}"
        return f"guided{tries}" + (
            f"; some of what it left may not be permitted: {self.because}" if self.because else ""
        )


def _meets(block: tuple[int | None, ...], fixed: Sequence[int]) -> bool:
    return all(mine is None or mine == count for mine, count in zip(block, fixed, strict=False))


def _span(case: GuidanceCase, fixed: Sequence[int]) -> Span | None:
    """What a case leaves of the place after those that are fixed."""
    place = len(fixed)
    if not all(low <= count <= high for count, (low, high) in zip(fixed, case.box, strict=False)):
        return None
    low, high = case.box[place]
    for terms, limit in case.lines:
        left, factor = limit, 0
        for at, times in terms:
            if at == place:
                factor = times
            else:
                left -= times * fixed[at]
        if factor > 0:
            high = min(high, left // factor)
        elif factor < 0:
            low = max(low, -(left // -factor))
        elif left < 0:
            return None
    return (low, high) if low <= high else None
