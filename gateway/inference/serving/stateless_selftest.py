"""What a stateless model shows before its first request: its answers are numbers, and its own; its speed."""

from __future__ import annotations

import statistics

import numpy as np

from gateway.core.errors import InferenceError
from gateway.inference.bundle.stateless import StatelessBundle
from gateway.inference.serving.costs import stopwatch
from gateway.inference.serving.selftest import SelfTest
from gateway.inference.serving.stateless_engine import StatelessEngine
from gateway.inference.serving.stateless_model import Answers, Rows

_WIDEST = 8
_PROBES = 24
_ROUNDS = 24
_PAUSES = 2  # rounds that may be slow because the machine paused, and not the model


def self_test_stateless(engine: StatelessEngine, bundle: StatelessBundle) -> SelfTest:
    """Answer probes all over the trained ranges; raises `InferenceError` where one has no usable answer.

    Requests share a forward afterwards only where every probe's answer is the same bits in any company.
    """
    asked = probes(bundle)
    alone = []
    for probe in asked:
        parts = engine.model.run([probe])
        _read(engine, parts)
        alone.append([part[0] for part in parts])
    took, clock = [], stopwatch(engine.truth)
    for probe in (asked * _ROUNDS)[:_ROUNDS]:
        began = clock()
        _read(engine, engine.model.run([probe]))
        took.append((clock() - began) * 1e3)
    independent = engine.model.widest is None and _independent(engine, asked, alone)
    if independent:
        engine.merges(_WIDEST)
    slow = sorted(took)[-1 - _PAUSES]
    return SelfTest(0.0, statistics.median(took), slow, statistics.median(took), 0.0, independent)


def probes(bundle: StatelessBundle) -> list[Rows]:
    """Histories of trained values: the least, the most, the middle, and others, always the same."""
    manifest = bundle.manifest
    trained = [spec.trained for spec in (*manifest.inputs, *manifest.outputs)]
    least = np.array([float(low) for low, _ in trained])
    most = np.array([float(high) for _, high in trained])
    rng = np.random.default_rng(7)
    shares = [0.0, 1.0, 0.5, *rng.uniform(size=(_PROBES, bundle.steps, len(trained)))]
    return [least + (most - least) * np.broadcast_to(share, (bundle.steps, len(trained))) for share in shares]


def _read(engine: StatelessEngine, parts: Answers) -> None:
    try:
        for reader, part in zip(engine.readers, parts, strict=True):
            reader.read(part[0])
    except InferenceError as exc:
        message = f"asked about values it was trained for: {exc}; train the model again, or export it again"
        raise InferenceError(message) from exc


def _independent(engine: StatelessEngine, asked: list[Rows], alone: list[list[np.ndarray]]) -> bool:
    """Whether every probe's tensors are the same bits alone and with up to seven others, at every place."""
    for size in range(2, _WIDEST + 1):
        for first in range(0, len(asked) - size + 1, 3):
            try:
                parts = engine.model.run(asked[first : first + size])
            except InferenceError:
                return False
            for at in range(size):
                for part, exact in zip(parts, alone[first + at], strict=True):
                    if part[at].tobytes() != exact.tobytes():
                        return False
    return True
