"""Speed of a bundle under the names that the record keeps."""

from __future__ import annotations

from gateway.inference.bundle.manifest import Bundle
from gateway.inference.kv.ort_session import Provider
from gateway.inference.quantize.benching import bench

BATCHES = (1, 8)


def speed(name: str, bundle: Bundle, provider: Provider, rounds: int = 100) -> dict[str, float]:
    """Milliseconds and tokens a second of decode steps and prefill chunks; bytes of graph and pool."""
    found = bench(bundle, provider, BATCHES, rounds)
    figures: dict[str, float] = {}
    for timed in found.timed:
        row = f"{name}, {timed.forward}, {timed.batch} rows"
        figures[f"{row}: p50 ms"] = timed.p50_ms
        figures[f"{row}: p99 ms"] = timed.p99_ms
        figures[f"{row}: tokens/s"] = timed.tokens_per_s
    figures[f"{name}: graph bytes"] = float(found.model_bytes)
    figures[f"{name}: pool bytes"] = float(found.kv_pool_bytes)
    return figures
