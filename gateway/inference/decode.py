"""A row of logits to one register value: range mask, masked expectation, rounding. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gateway.core.errors import InferenceError
from gateway.inference.bundle import Decoding
from gateway.inference.tokenizer import TagCodec


@dataclass(frozen=True, slots=True)
class OutputRange:
    """An output's permitted counts and what one count means; all exact."""

    scale: Fraction
    offset: Fraction
    low: int
    high: int

    def value(self, raw: int) -> Fraction:
        """The exact engineering value of a count."""
        return raw * self.scale + self.offset

    def nearest(self, value: float) -> int:
        """The count nearest to `value`, inside the range; halves go away from zero."""
        exact = (Fraction(value) - self.offset) / self.scale
        raw = int(abs(exact) + Fraction(1, 2)) * (1 if exact >= 0 else -1)
        return min(max(raw, self.low), self.high)


@dataclass(frozen=True, slots=True)
class DecodedOutput:
    """One output: its count, the value fed back, and how sure the model was."""

    raw: int
    value: Fraction
    masked_out: float  # probability on tokens that may not be answered here: a drift signal
    concentration: float  # 1 when all probability is within one knot of the answer


class RangeMask:
    """The tokens of one output that its configured range lets through."""

    def __init__(self, codec: TagCodec, limits: OutputRange, decoding: Decoding) -> None:
        if limits.low > limits.high or limits.scale == 0:
            message = f"tag `{codec.tag}`: no register value lies inside its range"
            raise InferenceError(message)
        self._limits, self._decoding = limits, decoding
        ends = sorted((float(limits.value(limits.low)), float(limits.value(limits.high))))
        knots = np.array(codec.knots, dtype=np.float64)
        # The outermost knot on each side stays: a value between it and the limit is its neighbour's share.
        first = max(0, int(np.searchsorted(knots, ends[0], side="right")) - 1)
        last = min(len(knots) - 1, int(np.searchsorted(knots, ends[1], side="left")))
        self._tokens = slice(codec.first_token + first, codec.first_token + last + 1)
        self._knots = knots[first : last + 1]

    def decode(self, logits: NDArray[np.float32]) -> DecodedOutput:
        """The answer for `logits` `[vocabulary]`; raises `InferenceError` when they are not finite."""
        row = logits.astype(np.float64)
        weights = np.exp(row - row.max())
        allowed = weights[self._tokens]
        mass = float(allowed.sum())
        if not np.isfinite(mass) or mass <= 0.0:
            message = "the model answered with no usable probabilities"
            raise InferenceError(message)
        share = allowed / mass
        if self._decoding == "expectation":
            wanted = float(share @ self._knots)
        else:
            wanted = float(self._knots[int(share.argmax())])
        raw = self._limits.nearest(wanted)
        near = np.abs(np.arange(len(share)) - np.interp(wanted, self._knots, np.arange(len(share)))) <= 1.0
        return DecodedOutput(
            raw=raw,
            value=self._limits.value(raw),
            masked_out=max(0.0, 1.0 - mass / float(weights.sum())),
            concentration=float(share[near].sum()),
        )
