"""A row of logits to one register value: masks, masked expectation, rounding. Pure.

The mask of an output is its range, of that what one decision may change it by, and with guidance only those
counts that can still lead to a permitted block: what the rules in force leave of its range, its ramp and its
named values. A knot stays while it has a share in a value that may be answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, isfinite
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gateway.core.errors import InferenceError
from gateway.core.spans import Span, Spans, holds, meet, nearest
from gateway.inference.bundle.described import Decoding
from gateway.inference.bundle.tokenizer import TagCodec

LEAST_SHARE = (
    1e-3  # of the range's probability: with less on what is permitted, the nearest to what was wanted
)
_ROUGH_BELOW, _ROUGH_OFF = 2.0**28, 2.0**-22  # counts
NOTHING_PROPOSED = "nothing is proposed, let another bundle take over if it happens again"
LEAST_LISTED = 1e-6  # of the range's probability: what the model believes less is no proposal of its own


@dataclass(frozen=True, slots=True)
class OutputRange:
    """An output's permitted counts and what one count means; all exact."""

    scale: Fraction
    offset: Fraction
    low: int
    high: int
    most: int | None = None  # counts between the value in force and an answer; None: any number

    def value(self, raw: int) -> Fraction:
        """The exact engineering value of a count."""
        return raw * self.scale + self.offset

    def within(self, permitted: Spans) -> Spans:
        """Those of some counts that lie in the range."""
        return meet(permitted, ((self.low, self.high),))

    def reach(self, in_force: Fraction) -> Spans | None:
        """Counts within the most change of a value in force; None where any change may be made.

        Where none of the range lies so near, the range's nearest count: never nothing.
        """
        if self.most is None:
            return None
        at = self.counts(in_force)
        low, high = max(self.low, ceil(at - self.most)), min(self.high, floor(at + self.most))
        if low > high:
            low = high = self.nearest(in_force)
        return ((low, high),)

    def nearest(self, value: float | Fraction) -> int:
        """The count nearest to `value`, inside the range; halves go away from zero."""
        raw = self._nearest_rough(float(value))
        if raw is None:
            exact = self.counts(value)
            raw = int(abs(exact) + Fraction(1, 2)) * (1 if exact >= 0 else -1)
        return min(max(raw, self.low), self.high)

    def _nearest_rough(self, value: float) -> int | None:
        """The same in floats, at a third of the cost; None where their rounding might decide.

        Of counts below 2^28 they are off by less than 2^-22.
        """
        scale, offset = float(self.scale), float(self.offset)
        if abs(value) + abs(offset) >= abs(scale) * _ROUGH_BELOW:
            return None
        counts = (value - offset) / scale
        low = floor(counts)
        return None if abs(counts - low - 0.5) < _ROUGH_OFF else floor(counts + 0.5)

    def nearest_of(self, permitted: Spans, value: float) -> int:
        """The nearest of some counts; between two spans that are equally near, the lower one's."""
        raw = self.nearest(value)
        return raw if holds(permitted, raw) else nearest(permitted, self.counts(value))

    def counts(self, value: float | Fraction) -> Fraction:
        """An engineering value as a number of counts, not rounded."""
        return (Fraction(value) - self.offset) / self.scale


@dataclass(frozen=True, slots=True)
class DecodedOutput:
    """One output: its count, the value fed back, and how sure the model was."""

    raw: int
    value: Fraction
    masked_out: float  # probability on tokens that may not be answered here: a drift signal
    concentration: float  # probability of a value by itself, within one knot of an expectation


class Option(NamedTuple):
    """One of several answers for an output, and the probability near it: what it is ranked by."""

    output: DecodedOutput
    share: float


class Distribution(NamedTuple):
    """What the model thinks of one output."""

    share: NDArray[np.float64]  # probability by knot of the range, of that within the range
    mass: float  # that within the range, of all
    wanted: float  # the value that it comes to


class OutputMask:
    """The tokens of one output that may be answered."""

    def __init__(self, codec: TagCodec, limits: OutputRange, decoding: Decoding) -> None:
        if limits.low > limits.high or limits.scale == 0:
            message = (
                f"tag `{codec.tag}`: no register value lies inside its range: correct its scale or range"
            )
            raise InferenceError(message)
        self.limits, self._decoding = limits, decoding
        knots = np.array(codec.knots, dtype=np.float64)
        first, end = _shares(knots, *self._ends((limits.low, limits.high)))
        self._tokens = slice(codec.first_token + first, codec.first_token + end)
        self._knots = knots[first:end]
        self._places = np.arange(end - first, dtype=np.float64)

    def decode(self, logits: NDArray[np.float32], permitted: Spans | None = None) -> DecodedOutput:
        """The answer for `logits` `[vocabulary]`; see `read` and `answer`."""
        return self.answer(self.read(logits), permitted)

    def read(self, logits: NDArray[np.float32]) -> Distribution:
        """What `logits` `[vocabulary]` say of this output; raises `InferenceError` for no numbers."""
        row = logits.astype(np.float64)
        peak = float(row.max())
        weights = np.exp(row - peak) if isfinite(peak) else np.zeros(len(row))
        allowed = weights[self._tokens]
        mass = float(allowed.sum())
        if not mass > 0.0:
            message = f"the model answered with no usable probabilities: {NOTHING_PROPOSED}"
            raise InferenceError(message)
        share = allowed / mass
        return Distribution(share, mass / float(weights.sum()), self._wanted(share))

    def answer(self, read: Distribution, permitted: Spans | None) -> DecodedOutput:
        """The count for a distribution.

        `permitted` is not empty and `within` the range: no other count is answered. One that is answered
        without it stays where it is among them.
        """
        share, wanted, kept = read.share, read.wanted, 1.0
        raw = self.limits.nearest(wanted)
        if permitted is not None:
            mask = self._mask(permitted)
            kept = 1.0 if mask.all() else float(share[mask].sum())
            if not holds(permitted, raw):
                if kept >= LEAST_SHARE:
                    wanted = self._wanted(np.where(mask, share, 0.0) / kept)
                raw = self.limits.nearest_of(permitted, wanted)
                wanted = float(self.limits.value(raw))
        return DecodedOutput(
            raw=raw,
            value=self.limits.value(raw),
            masked_out=max(0.0, 1.0 - kept * read.mass),
            concentration=self._around(share, self._place(wanted)),
        )

    def options(
        self,
        read: Distribution,
        answer: DecodedOutput,
        permitted: Spans | None,
        most: int,
        least: float = LEAST_LISTED,
    ) -> list[Option]:
        """`answer`, which was given for this distribution, then others that may be, the likeliest first.

        Of an expectation another is one around another bin, two bins from each before it at the least; of a
        most probable value it is another value. With less than `least` it is left out.
        """
        apart = 2 if self._decoding == "expectation" else 1
        at = self._place(float(answer.value))
        places, found = [at], [Option(answer, self._around(read.share, at))]
        around = self._around_each(read.share)
        if permitted is not None:
            around = np.where(self._mask(permitted), around, 0.0)
        for place in np.argsort(-around, kind="stable"):
            if len(found) == most or around[place] < least:
                break
            if all(abs(place - other) >= apart for other in places):
                output = self._around_bin(read, int(place), permitted, answer.masked_out)
                if all(self._differ(output, other.output) for other in found):
                    places.append(float(place))
                    found.append(Option(output, float(around[place])))
        return found

    def _differ(self, one: DecodedOutput, other: DecodedOutput) -> bool:
        """Whether two answers are worth looking at both: bins far apart can share one that outweighs them."""
        if self._decoding == "most_probable":
            return one.raw != other.raw
        return abs(self._place(float(one.value)) - self._place(float(other.value))) >= 1.0

    def _around_bin(
        self, read: Distribution, place: int, permitted: Spans | None, masked_out: float
    ) -> DecodedOutput:
        """The answer of a distribution that has nothing further than a bin from one of its bins."""
        wanted = float(self._knots[place])
        if self._decoding == "expectation":
            near = slice(max(0, place - 1), place + 2)
            wanted = float(read.share[near] @ self._knots[near] / read.share[near].sum())
        raw = self.limits.nearest(wanted)
        if permitted is not None:
            raw = self.limits.nearest_of(permitted, wanted)
        value = self.limits.value(raw)
        return DecodedOutput(raw, value, masked_out, self._around(read.share, self._place(float(value))))

    def _around(self, share: NDArray[np.float64], place: float) -> float:
        """The probability of an answer at a place: of a value by itself, within one bin of an expectation."""
        return _within_one(share, place) if self._decoding == "expectation" else float(share[round(place)])

    def _around_each(self, share: NDArray[np.float64]) -> NDArray[np.float64]:
        """`_around` of every bin."""
        around = share.copy()
        if self._decoding == "expectation":
            around[1:] += share[:-1]
            around[:-1] += share[1:]
        return around

    def _place(self, value: float) -> float:
        return float(np.interp(value, self._knots, self._places))

    def _wanted(self, share: NDArray[np.float64]) -> float:
        if self._decoding == "expectation":
            return float(share @ self._knots)
        return float(self._knots[int(share.argmax())])

    def _mask(self, permitted: Spans) -> NDArray[np.bool_]:
        mask = np.zeros(len(self._knots), dtype=np.bool_)
        for span in permitted:
            first, end = _shares(self._knots, *self._ends(span))
            mask[first:end] = True
        return mask

    def _ends(self, span: Span) -> tuple[float, float]:
        low, high = sorted(float(self.limits.value(raw)) for raw in span)
        return low, high


def _within_one(share: NDArray[np.float64], place: float) -> float:
    return float(share[max(0, ceil(place - 1.0)) : floor(place + 1.0) + 1].sum())


def _shares(knots: NDArray[np.float64], low: float, high: float) -> tuple[int, int]:
    """First knot, and the one after the last, that have a share in values from `low` to `high`.

    The outermost knot on each side stays: a value between it and the limit is its neighbour's share.
    """
    first = max(0, int(np.searchsorted(knots, low, side="right")) - 1)
    last = min(len(knots) - 1, int(np.searchsorted(knots, high, side="left")))
    return first, last + 1
