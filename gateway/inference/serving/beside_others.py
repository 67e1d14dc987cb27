"""Whether an answer depends on who shares its forward, and what a forward of so many rows costs here.

Kernels may sum one row otherwise than many. Then a request's answer would depend on its neighbours, unless it
is never computed as one row.
"""

from __future__ import annotations

import statistics

import numpy as np

from gateway.inference.bundle.manifest import Bundle
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.kv.backend import CacheId, KvBackend, PoolExhaustedError
from gateway.inference.serving.costs import stopwatch

_HELD = 120  # tokens of the longest cache, less where the window is shorter
_APART = 11  # tokens by which the caches differ in length
_BUCKETS = (1, 2, 4, 8)
_ROUNDS = 7

Steps = tuple[tuple[int, float], ...]


def beside_others(backend: KvBackend, bundle: Bundle, widest: int) -> tuple[bool, Steps]:
    """Whether rows are the same bits in any company of up to `widest`, and `Costs.steps_ms`.

    Caches of different lengths take one token each, a cycle's measurements, and a whole cycle: what decoding
    asks for.
    """
    vocabulary, cycle = bundle.manifest.architecture.vocabulary, bundle.tokens_per_cycle
    held = max(1, min(_HELD, bundle.manifest.window.length - cycle))
    tokens = [Token(1 + 7 * at % (vocabulary - 2), 0.25 * (at % 4)) for at in range(held + cycle + widest)]
    whole = backend.open()
    caches: list[CacheId] = []
    try:
        for start in range(0, held, cycle):
            backend.forward([(whole, tokens[start : min(held, start + cycle)])])
        for at in range(widest):
            caches.append(backend.fork(whole))
            backend.truncate(caches[at], max(1, held - _APART * at))
        counts = sorted({1, len(bundle.manifest.inputs), cycle})
        independent = all(_alike(backend, caches, tokens[held:], count) for count in counts)
        if not independent and backend.even_out():
            independent = all(_alike(backend, caches, tokens[held:], count) for count in counts)
        return independent, _timed(backend, caches, tokens[held])
    except PoolExhaustedError:  # nobody has company in so small a pool
        return False, ()
    finally:
        for cache in (whole, *caches):
            backend.close(cache)


def _alike(backend: KvBackend, caches: list[CacheId], tokens: list[Token], count: int) -> bool:
    ends = [backend.span(cache).end for cache in caches]
    rows = [(cache, tokens[at : at + count]) for at, cache in enumerate(caches)]
    alone = [backend.forward([row])[0] for row in rows]
    same = True
    for size in range(2, len(rows) + 1):
        for cache, end in zip(caches, ends, strict=True):
            backend.truncate(cache, end)
        together = backend.forward(rows[-size:])
        same = same and together.tobytes() == np.stack(alone[-size:]).tobytes()
    for cache, end in zip(caches, ends, strict=True):
        backend.truncate(cache, end)
    return same


def _timed(backend: KvBackend, caches: list[CacheId], token: Token) -> Steps:
    steps, clock = [], stopwatch(backend.truth)
    for size in (bucket for bucket in _BUCKETS if bucket <= len(caches)):
        took = []
        for _ in range(_ROUNDS):
            ends = [backend.span(cache).end for cache in caches[:size]]
            began = clock()
            backend.forward([(cache, [token]) for cache in caches[:size]])
            took.append((clock() - began) * 1e3)
            for cache, end in zip(caches[:size], ends, strict=True):
                backend.truncate(cache, end)
        steps.append((size, statistics.median(took)))
    return tuple(steps)
