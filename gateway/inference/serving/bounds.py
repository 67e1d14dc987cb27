"""How much memory a worker may take: a graph can ask for all that the machine has."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

from gateway.inference.bundle.any_bundle import AnyBundle
from gateway.inference.bundle.kv_bytes import predicted
from gateway.inference.bundle.manifest import Bundle

_FREE_BYTES = 1 << 30  # for interpreter, runtime, and what a forward works with
_COPIES = 8  # of the weights, while they are read, fused and packed
_POOLS = 4  # of keys and values, while the start looks whether they are written in place


def bound_memory(bundle: AnyBundle, pages: int) -> None:
    """From here on this process gets no more than such a bundle needs; half of the machine's at the most.

    What asks for more fails by itself. Where the system has no such limit, nothing changes.
    """
    files = sum(spec.bytes for spec in bundle.manifest.files.values())
    pool = predicted(bundle, pages).pool if isinstance(bundle, Bundle) else 0
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    most = _held() + min(_FREE_BYTES + _COPIES * files + _POOLS * pool, machine // 2)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _held() -> int:
    """Bytes of data that are this process's now."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    return 0
