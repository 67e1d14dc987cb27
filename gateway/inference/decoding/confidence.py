"""How far an answer may be trusted, as information only: it never changes a verdict."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from gateway.inference.bundle.described import Confidence
from gateway.inference.bundle.manifest import Manifest
from gateway.inference.decoding.decode import DecodedOutput

_LEAST = 1e-6
_MOST_ODDS = 50.0


def concentration(decoded: Sequence[DecodedOutput]) -> float:
    """The least sure output's probability near its answer, less what was masked out."""
    return min(output.concentration * (1.0 - output.masked_out) for output in decoded)


def calibrated(
    manifest: Manifest,
    inputs: Sequence[float],
    in_force: Sequence[float],
    before: Sequence[float] | None,
    decoded: Sequence[DecodedOutput],
) -> float | None:
    """The share of held-out decisions of like concentration that agreed with the expert.

    0 where the inputs are not `like_training`; None where nobody has measured that share.
    """
    if not like_training(manifest, inputs, in_force, before):
        return 0.0
    return looked_up(manifest.confidence, concentration(decoded))


def like_training(
    manifest: Manifest, inputs: Sequence[float], in_force: Sequence[float], before: Sequence[float] | None
) -> bool:
    """False when a measurement lies outside what training saw, or moved since `before` as none there did.

    `before` is what was measured a cycle ago, None where nobody knows.
    """
    for spec, value in zip(manifest.inputs, inputs, strict=True):
        if not float(spec.trained[0]) <= value <= float(spec.trained[1]):
            return False
    return manifest.familiarity is None or manifest.familiarity.knows(inputs, in_force, before)


def looked_up(calibration: Confidence | None, sure: float) -> float | None:
    """What a bundle's calibration, or else its table, makes of a concentration."""
    if calibration is None:
        return None
    if (fitted := calibration.calibration) is not None:
        return scaled(log_odds(sure), fitted.temperature, fitted.offset)
    return calibration.hit_rate[bisect_right(calibration.edges, sure)]


def log_odds(sure: float) -> float:
    """Of a probability; of 0 and 1 those of nearly 0 and nearly 1."""
    inside = min(max(sure, _LEAST), 1.0 - _LEAST)
    return math.log(inside / (1.0 - inside))


def scaled(odds: float, temperature: float, offset: float) -> float:
    """The probability of log odds after a temperature and an offset."""
    return 1.0 / (1.0 + math.exp(-min(max(odds / temperature + offset, -_MOST_ODDS), _MOST_ODDS)))
