"""Bundles that take over from one another under load: what is lost, what it costs, what memory does."""

from __future__ import annotations

import asyncio
import gc
import shutil
import statistics
import sys
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from gateway.inference.client.model_engine import ModelEngine
from gateway.inference.client.served import ServedModel
from gateway.supervision.loop import before_traffic
from tests.bench.report import Figure
from tests.model_load import Load, full_pasts, swap
from tests.unit.inference_demo import BUFFER_TANK, demo_definitions

_T = TypeVar("_T")
SWAPS = 100
SETTLING = 10  # swaps before memory is looked at: allocators and caches fill up once
PER_S = 50.0
DEADLINE_S = 1.0
QUIET_S = 10.0


def run(console: Console) -> list[Figure]:
    """One gateway's inference in this process, its workers as children; the demo's bundle in two folders."""
    return asyncio.run(_run(console))


async def _run(console: Console) -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        second = Path(shutil.copytree(BUFFER_TANK, Path(name) / "second"))
        served = ServedModel("buffer-tank", [BUFFER_TANK], _make)
        served.recall(full_pasts())
        await served.start()
        turns_s = sys.getswitchinterval()
        before_traffic()  # as the daemon
        try:
            return await _measured(console, served, (second, BUFFER_TANK))
        finally:
            gc.enable()
            gc.unfreeze()
            sys.setswitchinterval(turns_s)
            await served.aclose()


def _make(folder: Path, on_lost: object) -> ModelEngine:
    del on_lost
    return ModelEngine(folder, demo_definitions(), "cpu")


async def _measured(console: Console, served: ServedModel, folders: tuple[Path, Path]) -> list[Figure]:
    quiet = Load(served, PER_S, DEADLINE_S)
    await _loaded(quiet, asyncio.sleep(QUIET_S))
    await _loaded(Load(served, PER_S, DEADLINE_S), swap(served, folders, SETTLING))
    before = _rss_mb(served)
    load = Load(served, PER_S, DEADLINE_S)
    took = await _loaded(load, swap(served, folders, SWAPS))
    after = _rss_mb(served)
    figures = {
        "lost": float(len(load.lost)),
        "late_percent": 100.0 * load.late / load.asked,
        "take_over_median_s": statistics.median(took),
        "p50_over_quiet": _percentile(load, 50) / _percentile(quiet, 50),
        "p99_added_ms": _percentile(load, 99) - _percentile(quiet, 99),
        "main_growth_mb": after[0] - before[0],
        "worker_growth_mb": after[1] - before[1],
    }
    table = Table("what", "quiet", f"{SWAPS} swaps")
    table.add_row("requests", str(quiet.asked), str(load.asked))
    table.add_row("late", str(quiet.late), str(load.late))
    table.add_row("p50 ms", f"{_percentile(quiet, 50):.2f}", f"{_percentile(load, 50):.2f}")
    table.add_row("p99 ms", f"{_percentile(quiet, 99):.2f}", f"{_percentile(load, 99):.2f}")
    table.add_row("main RSS MB", f"{before[0]:.1f}", f"{after[0]:.1f}")
    table.add_row("worker RSS MB", f"{before[1]:.1f}", f"{after[1]:.1f}")
    table.add_row("longest swap s", "", f"{max(took):.2f}")
    table.add_row("histories sent", "", str(served.statistics().histories_sent))
    console.print(table)
    for problem in load.lost[:5]:
        console.print(f"lost: {problem!r}")
    return [Figure("model_swap", name, value) for name, value in figures.items()]


async def _loaded(load: Load, work: Coroutine[Any, Any, _T]) -> _T:
    """What the work gives, done under load."""
    until = asyncio.Event()
    loading = asyncio.create_task(load.run(until), name="load")
    try:
        return await work
    finally:
        until.set()
        await loading


def _percentile(load: Load, share: float) -> float:
    return float(np.percentile(load.answered_ms, share))


def _rss_mb(served: ServedModel) -> tuple[float, float]:
    """Main and the worker in service, after a full collection, in MB."""
    gc.collect()
    assert served.engine.pid is not None
    sizes = (psutil.Process().memory_info().rss, psutil.Process(served.engine.pid).memory_info().rss)
    return sizes[0] / 2**20, sizes[1] / 2**20
