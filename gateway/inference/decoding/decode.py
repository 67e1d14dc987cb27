"""A row of logits to one register value: masks, masked expectation, rounding. Pure.

The mask of an output is its range, of that what one decision may change it by, and with guidance only those
counts that can still lead to a permitted block: what the rules in force leave of its range, its ramp and its
named values. A knot stays while it has a share in a value that may be answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
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
        exact = self.counts(value)
        raw = int(abs(exact) + Fraction(1, 2)) * (1 if exact >= 0 else -1)
        return min(max(raw, self.low), self.high)

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
    concentration: float  # 1 when all probability is within one knot of the answer


class Distribution(NamedTuple):
    """What the model thinks of one output."""

    share: NDArray[np.float64]  # probability by knot of the range, of that within the range
    mass: float  # that within the range, of all
    wanted: float  # the value that it comes to


class OutputMask:
    """The tokens of one output that may be answered."""

    def __init__(self, codec: TagCodec, limits: OutputRange, decoding: Decoding) -> None:
        if limits.low > limits.high or limits.scale == 0:
            message = f"tag `{codec.tag}`: no register value lies inside its range"
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
        """What `logits` `[vocabulary]` say of this output; raises `InferenceError` unless they are finite."""
        row = logits.astype(np.float64)
        weights = np.exp(row - row.max())
        allowed = weights[self._tokens]
        mass = float(allowed.sum())
        if not np.isfinite(mass) or mass <= 0.0:
            message = "the model answered with no usable probabilities: nothing is proposed"
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
            concentration=self._near(share, wanted),
        )

    def _near(self, share: NDArray[np.float64], wanted: float) -> float:
        """The probability within one knot of a value."""
        at = float(np.interp(wanted, self._knots, self._places))
        return float(share[max(0, ceil(at - 1.0)) : floor(at + 1.0) + 1].sum())

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


def _shares(knots: NDArray[np.float64], low: float, high: float) -> tuple[int, int]:
    """First knot, and the one after the last, that have a share in values from `low` to `high`.

    The outermost knot on each side stays: a value between it and the limit is its neighbour's share.
    """
    first = max(0, int(np.searchsorted(knots, low, side="right")) - 1)
    last = min(len(knots) - 1, int(np.searchsorted(knots, high, side="left")))
    return first, last + 1
