"""A hundred bundles take over from one another under load: nothing is lost, and nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest

from gateway.inference.client.model_engine import ModelEngine
from gateway.inference.client.served import ServedModel
from tests.integration.house import tell
from tests.model_load import Load, full_pasts, swap
from tests.unit.inference_demo import BUFFER_TANK, RECKLESS, demo_definitions

pytestmark = [pytest.mark.integration, pytest.mark.nightly, pytest.mark.timeout(3600)]

SWAPS = 100
SETTLING = 10  # swaps before anything is counted: allocators and caches fill up once
PER_S, DEADLINE_S = 50.0, 30.0
MOST_GROWTH_MB = 4.0
MOST_LATE = 0.02  # a machine that stands still for half a second has no place for a point's fifth request


@dataclass(frozen=True, slots=True)
class Held:
    """What this process and the worker in service hold."""

    main_mb: float
    worker_mb: float
    descriptors: int
    threads: int
    children: int


def _held(served: ServedModel) -> Held:
    gc.collect()
    own, worker = psutil.Process(), psutil.Process(served.engine.pid)
    return Held(
        own.memory_info().rss / 2**20,
        worker.memory_info().rss / 2**20,
        own.num_fds(),
        own.num_threads(),
        len(own.children(recursive=True)),
    )


def _make(folder: Path, on_lost: Callable[[], None]) -> ModelEngine:
    return ModelEngine(folder, demo_definitions(), "cpu", on_lost=on_lost)


async def _alone(served: ServedModel) -> None:
    """Returns when every engine that was replaced has ended."""
    async with asyncio.timeout(180):
        while served.swap_statistics().draining:  # noqa: ASYNC110  # a count gives no event
            await asyncio.sleep(0.01)


async def test_a_hundred_swaps_under_load_lose_nothing_and_leave_nothing_behind(tmp_path: Path) -> None:
    first, second = (Path(shutil.copytree(each, tmp_path / each.name)) for each in (BUFFER_TANK, RECKLESS))
    served = ServedModel("buffer-tank", [first], _make)
    served.recall(full_pasts())  # as long as it gets: what grows after that is a leak
    await served.start()
    load, until = Load(served, PER_S, DEADLINE_S), asyncio.Event()
    try:
        loading = asyncio.create_task(load.run(until))
        try:
            await swap(served, (second, first), SETTLING)
            await _alone(served)
            before = _held(served)
            took = sorted(await swap(served, (second, first), SWAPS))
            await _alone(served)
            after = _held(served)
        finally:
            until.set()
            await loading
        tell(f"{SWAPS} swaps, median {took[len(took) // 2]:.2f} s, longest {took[-1]:.2f} s")
        p50, p99 = np.percentile(load.answered_ms, (50, 99))
        tell(f"{load.asked} requests, {load.late} late, p50 {p50:.1f} ms, p99 {p99:.1f} ms")
        tell(f"{before} -> {after}")

        assert load.lost == []
        assert load.late <= MOST_LATE * load.asked
        assert len(load.digests) == 2
        assert served.statistics().proposals == len(load.answered_ms)
        assert served.statistics().lost == 0
        assert (served.swap_statistics().swaps, served.swap_statistics().swaps_failed) == (
            SWAPS + SETTLING,
            0,
        )
        assert after.main_mb - before.main_mb <= MOST_GROWTH_MB
        assert after.worker_mb - before.worker_mb <= MOST_GROWTH_MB
        assert (after.descriptors, after.children) == (before.descriptors, before.children)
        assert after.threads <= before.threads + 4  # the loop's own pool fills up by and by
    finally:
        await served.aclose()
