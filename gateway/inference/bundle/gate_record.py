"""`gate.json`: held-out cycles that a bundle's figures are measured on, as exact decimals.

A list of runs, each a list of cycles, each what was measured and what was in force when the cycle ended, in
the order of the bundle's tags.
"""

from __future__ import annotations

from fractions import Fraction

import msgspec

from gateway.core.errors import cause
from gateway.inference.bundle.files import BundleError
from gateway.inference.bundle.manifest import GATE_FILE, Bundle

Cycle = tuple[tuple[str, ...], tuple[str, ...]]  # measured, in force
Run = list[Cycle]

LEAST_CYCLES = 2  # of a run: the second is the first that has a past


def read_gate_record(bundle: Bundle) -> list[Run]:
    """The held-out runs; raises `BundleError` where there are none, or not of this bundle's tags."""
    if GATE_FILE not in bundle.manifest.files:
        problem = (
            f"it has no {GATE_FILE}, the held-out cycles its figures are measured on: "
            "write some with `o3ctl model hold-out`"
        )
        raise BundleError(bundle.directory, problem)
    try:
        record = msgspec.json.decode((bundle.directory / GATE_FILE).read_bytes(), type=list[Run])
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as exc:
        raise _unusable(bundle, cause(exc)) from exc
    if not any(record):
        raise BundleError(bundle.directory, f"{GATE_FILE} has no cycles: {_AGAIN}")
    lengths = len(bundle.manifest.inputs), len(bundle.manifest.outputs)
    for number, run in enumerate(record, start=1):
        for measured, in_force in run:
            if (len(measured), len(in_force)) != lengths:
                said = f"run {number} has a cycle of {len(measured)} and {len(in_force)} values, the bundle"
                raise _unusable(bundle, f"{said} {lengths[0]} inputs and {lengths[1]} outputs")
            for text in (*measured, *in_force):
                _check_number(bundle, number, text)
    return [run for run in record if run]


def written_gate_record(runs: list[Run]) -> bytes:
    """The content of `gate.json`."""
    return msgspec.json.encode(runs)


_AGAIN = "write it again with `o3ctl model hold-out`"


def _check_number(bundle: Bundle, run: int, text: str) -> None:
    try:
        Fraction(text)
    except (ValueError, ZeroDivisionError) as exc:
        raise _unusable(bundle, f"run {run}: `{text}` is no decimal") from exc


def _unusable(bundle: Bundle, why: str) -> BundleError:
    return BundleError(bundle.directory, f"{GATE_FILE} is no record of held-out cycles ({why}): {_AGAIN}")
