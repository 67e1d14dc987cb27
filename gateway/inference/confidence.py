"""How far an answer may be trusted, as information only: it never changes a verdict."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from gateway.inference.bundle import Confidence, Manifest
from gateway.inference.decode import DecodedOutput


def concentration(decoded: Sequence[DecodedOutput]) -> float:
    """The least sure output's probability near its answer, less what was masked out."""
    return min(output.concentration * (1.0 - output.masked_out) for output in decoded)


def calibrated(manifest: Manifest, inputs: Sequence[float], decoded: Sequence[DecodedOutput]) -> float | None:
    """The share of held-out decisions of like concentration that agreed with the expert.

    0 when a measurement lies outside what training ever saw; None where nobody has measured that share.
    """
    for spec, value in zip(manifest.inputs, inputs, strict=True):
        if not float(spec.trained[0]) <= value <= float(spec.trained[1]):
            return 0.0
    return looked_up(manifest.confidence, concentration(decoded))


def looked_up(calibration: Confidence | None, sure: float) -> float | None:
    """The rate of a bundle's table."""
    if calibration is None:
        return None
    return calibration.hit_rate[bisect_right(calibration.edges, sure)]
