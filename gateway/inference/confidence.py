"""How far an answer may be trusted, as information only: it never changes a verdict."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from gateway.inference.bundle import Manifest
from gateway.inference.decode import DecodedOutput


def concentration(decoded: Sequence[DecodedOutput]) -> float:
    """The least sure output's probability near its answer, less what was masked out."""
    return min(output.concentration * (1.0 - output.masked_out) for output in decoded)


def calibrated(manifest: Manifest, inputs: Sequence[float], decoded: Sequence[DecodedOutput]) -> float:
    """The share of held-out decisions of like concentration that agreed with the expert.

    0 when a measurement lies outside what training ever saw.
    """
    for spec, value in zip(manifest.inputs, inputs, strict=True):
        if not float(spec.trained[0]) <= value <= float(spec.trained[1]):
            return 0.0
    calibration = manifest.confidence
    return calibration.hit_rate[bisect_right(calibration.edges, concentration(decoded))]
