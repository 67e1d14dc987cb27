"""The inference engine: what reuse, caches, chunks and company are worth, in ratios of one run.

Decoders of random weights in two classes: `small` 0.94 M parameters, `tiny` 0.23 M. They say nothing of
plants. Work in this process is CPU time of its one thread; only latencies are by the wall clock, which other
work on the machine makes longer.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from tests.bench.report import Figure

PARTS = ("reuse", "step", "fragmentation", "caches", "chunks", "bare", "load", "start", "memory")


def run(console: Console, parts: tuple[str, ...] = (), minute_s: float = 12.0) -> list[Figure]:
    """Every figure of this benchmark, or of some of its `PARTS`; the first `minute_s` after a start count."""
    if importlib.util.find_spec("onnx") is None:
        console.print(
            "[yellow]not measured: the decoders are written with `onnx`, which extra `dev` installs[/]"
        )
        return []
    from tests.bench import inference_kv, inference_load, inference_start  # noqa: PLC0415  they need `onnx`

    todo: dict[str, Callable[[Path], list[Figure]]] = {
        "reuse": lambda folder: inference_kv.reuse(console, folder),
        "step": lambda folder: inference_kv.step(console, folder),
        "fragmentation": lambda folder: inference_kv.fragmentation(console, folder),
        "caches": lambda folder: inference_kv.caches(console, folder),
        "chunks": lambda folder: inference_load.chunks(console, folder),
        "bare": lambda folder: inference_load.bare(console, folder),
        "load": lambda folder: inference_load.load(console, folder),
        "start": lambda folder: inference_start.start(console, folder, minute_s),
        "memory": lambda folder: inference_start.memory(console, folder),
    }
    found: list[Figure] = []
    for name in parts or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            found += todo[name](Path(folder))
    return found
