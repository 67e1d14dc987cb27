"""What an engine shows of itself before its first request: exactness of KV reuse, and its speed here."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import numpy as np

from gateway.core.errors import InferenceError
from gateway.inference.bundle.manifest import Bundle
from gateway.inference.messages import Answer, Cycle, Propose
from gateway.inference.serving.beside_others import beside_others
from gateway.inference.serving.costs import stopwatch
from gateway.inference.serving.engine import Engine
from gateway.inference.serving.job import chunks

_ROUNDS = 24
_PAUSES = 2  # rounds that may be slow because the machine paused, and not the model
_TOLERANCE = 1e-4  # relative; float32 rounding through a few layers stays near 1e-6
# In fewer bits a history that begins elsewhere, and is rotated otherwise, is rounded otherwise: then the two
# differ by as much as each does from float32.
_ROUNDED_TOLERANCE = 0.02


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Relative difference of reused and recomputed logits, and milliseconds as `stopwatch` counts them."""

    incremental_error: float
    decision_ms: float  # median, warm
    slow_ms: float  # the slowest of about ten, warm
    prefill_ms: float  # a whole history from nothing
    chunk_ms: float  # one chunk of it
    batch_independent: bool  # an answer is the same bits alone and beside others
    steps_ms: tuple[tuple[int, float], ...] = ()  # see `Costs`


def self_test(engine: Engine, bundle: Bundle) -> SelfTest:
    """Run a moving history twice, reused and recomputed; raises `InferenceError` when they disagree.

    Requests share a forward afterwards only where an answer is the same bits in any company.
    """
    independent, steps_ms = beside_others(engine.backend, bundle, engine.widest)
    if not independent:
        engine.merges(1)
    cycles = _moving_history(bundle)
    first = len(cycles) - _ROUNDS
    reused, whole = "self-test-reused", "self-test-whole"
    clock = stopwatch(engine.truth)
    began = clock()
    _ask(engine, reused, cycles, first, rebuild=True)
    prefill_ms = (clock() - began) * 1e3
    took = []
    for at in range(first + 1, len(cycles)):
        began = clock()
        _ask(engine, reused, cycles, at, rebuild=False)
        took.append((clock() - began) * 1e3)
    _ask(engine, whole, cycles, len(cycles) - 1, rebuild=True)
    exact, ours = engine.first_logits(whole), engine.first_logits(reused)
    error = float(np.linalg.norm(exact - ours) / np.linalg.norm(exact))
    engine.release(reused)
    engine.release(whole)
    kept = bundle.manifest.quantization
    in_float32 = kept.kv == "float32" and kept.kind in {"none", "matmul_nbits", "unfolded"}
    tolerance = _TOLERANCE if in_float32 else _ROUNDED_TOLERANCE
    if not error <= tolerance:
        message = (
            f"reused KV differs from recomputed by {error:.2g} (at most {tolerance:g}): change the runtime"
        )
        raise InferenceError(message)
    decision_ms = statistics.median(took)
    parts = chunks(first * bundle.tokens_per_cycle + 1)
    chunk_ms = max(0.0, prefill_ms - decision_ms) / parts
    slow_ms = sorted(took)[-1 - _PAUSES]
    return SelfTest(error, decision_ms, slow_ms, prefill_ms, chunk_ms, independent, steps_ms)


def _ask(engine: Engine, session: str, cycles: list[Cycle], at: int, *, rebuild: bool) -> None:
    history = tuple(cycles[:at]) if rebuild else None
    request = Propose(
        session=session, cycle=at, inputs=cycles[at].inputs, in_force=cycles[at - 1].in_force, history=history
    )
    try:
        answer = engine.propose(request)
    except InferenceError as exc:
        message = f"asked about values of its own bins: {exc}; train the model again, or export it again"
        raise InferenceError(message) from exc
    assert isinstance(answer, Answer), "the history is held or sent"  # noqa: S101 - an invariant


def _moving_history(bundle: Bundle) -> list[Cycle]:
    inputs, outputs = bundle.manifest.inputs, bundle.manifest.outputs
    return [
        Cycle(
            tuple(spec.knots[(7 * at + 3 * tag) % len(spec.knots)] for tag, spec in enumerate(inputs)),
            tuple(spec.knots[(5 * at + tag) % len(spec.knots)] for tag, spec in enumerate(outputs)),
        )
        for at in range(bundle.history_cycles + _ROUNDS)
    ]
