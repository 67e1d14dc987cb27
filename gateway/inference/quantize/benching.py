"""How long a bundle's forwards take, and what it takes in memory, in this process and on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gateway.core.errors import InferenceError
from gateway.inference.bundle.files import MODEL_FILE
from gateway.inference.bundle.kv_bytes import predicted
from gateway.inference.bundle.manifest import Bundle
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.kv.backend import CacheId, KvBackend
from gateway.inference.kv.ort_session import Provider
from gateway.inference.quantize.figures import Progress
from gateway.inference.quantize.resident import resident_bytes
from gateway.inference.serving.backends import make_backend
from gateway.inference.serving.job import PREFILL_CHUNK

_WARM = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Forwards of one shape: `batch` sequences that hold `context` tokens get `tokens` new ones each."""

    forward: str
    batch: int
    tokens: int
    context: int
    p50_ms: float
    p99_ms: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A bundle's speed and size."""

    provider: str
    timed: tuple[Timed, ...]
    model_bytes: int
    kv_pool_bytes: int
    resident_bytes: int  # by how much this process grew

    def plain(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def bench(
    bundle: Bundle,
    provider: Provider = "cpu",
    batches: tuple[int, ...] = (1, 8),
    rounds: int = 200,
    progress: Progress = lambda _, __: None,
) -> Bench:
    """Time decode steps and prefill chunks; raises `InferenceError` where the bundle cannot run."""
    if not batches or min(batches) < 1 or rounds < 1:
        raise InferenceError("a batch has at least one sequence, and at least one round is timed")
    manifest = bundle.manifest
    context = manifest.window.length - PREFILL_CHUNK - 1
    if context < 1:
        raise InferenceError(f"a window of {manifest.window.length} tokens holds no chunk of {PREFILL_CHUNK}")
    each = -(-manifest.window.length // manifest.block) + 1
    pages, before = each * max(batches) + 2, resident_bytes()
    backend = make_backend(bundle, provider=provider, pages=pages)
    timed, shapes = [], [(kind, batch) for batch in batches for kind in ("decode", "prefill")]
    for at, (kind, batch) in enumerate(shapes):
        caches = [_filled(backend, bundle, context, row) for row in range(batch)]
        tokens = 1 if kind == "decode" else PREFILL_CHUNK

        def advance(part: float, at: int = at) -> None:
            progress("forwards", (at + part) / len(shapes))

        took = _time(backend, bundle, caches, context, tokens, rounds, advance)
        timed.append(_figures(kind, batch, tokens, context, took))
        for cache in caches:
            backend.close(cache)
    return Bench(
        provider=backend.truth.actual,
        timed=tuple(timed),
        model_bytes=manifest.files[MODEL_FILE].bytes,
        kv_pool_bytes=predicted(bundle, pages).pool,
        resident_bytes=max(0, resident_bytes() - before),
    )


def _figures(kind: str, batch: int, tokens: int, context: int, took: list[float]) -> Timed:
    p50, p99 = (float(np.percentile(took, share)) * 1e3 for share in (50, 99))
    return Timed(
        forward=kind,
        batch=batch,
        tokens=tokens,
        context=context,
        p50_ms=p50,
        p99_ms=p99,
        tokens_per_s=batch * tokens / p50 * 1e3,
    )


def _filled(backend: KvBackend, bundle: Bundle, context: int, row: int) -> CacheId:
    cache = backend.open()
    tokens = _tokens(bundle, context, row)
    for at in range(0, context, PREFILL_CHUNK):
        backend.forward([(cache, tokens[at : at + PREFILL_CHUNK])])
    return cache


def _time(
    backend: KvBackend,
    bundle: Bundle,
    caches: list[CacheId],
    context: int,
    tokens: int,
    rounds: int,
    advance: Callable[[float], None],
) -> list[float]:
    took = []
    for at in range(rounds + _WARM):
        rows = [(cache, _tokens(bundle, tokens, at + row)) for row, cache in enumerate(caches)]
        began = time.perf_counter()
        backend.forward(rows)
        took.append(time.perf_counter() - began)
        for cache in caches:
            backend.truncate(cache, context)
        advance(at / (rounds + _WARM))
    return took[_WARM:]


def _tokens(bundle: Bundle, count: int, begin: int) -> list[Token]:
    specs = (*bundle.manifest.inputs, *bundle.manifest.outputs)
    return [
        Token(spec.first_token + (7 * (at + begin)) % (len(spec.knots) - 1), 0.0)
        for at in range(count)
        for spec in [specs[at % len(specs)]]
    ]
