"""What a start costs: latencies of its first minute, with each cache off and all off; a worker's memory."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import psutil
from rich.console import Console
from rich.progress import track
from rich.table import Table

from gateway.inference.bundle.manifest import Bundle
from gateway.inference.client import engine_worker
from gateway.inference.client.model_engine import ModelEngine
from gateway.inference.client.point_state import PointState
from tests.bench.inference_kv import decisions_bundle
from tests.bench.inference_load import POINTS, Client, Seen, frozen
from tests.bench.report import Figure
from tests.unit.random_decoder import SMALL, TINY, definitions

RATE_HZ = 20
_ROUNDS = 3  # each way once in each
CYCLES = 48  # of each point, on record before the start


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What a start goes without."""

    sessions: bool = True  # else each request brings its history, and finds no session of its own
    prefixes: bool = True  # else nothing that was settled is found again
    warmed: bool = True  # else the worker is ready before it has the recorded histories


WAYS = {
    "all": Way(),
    "not warmed": Way(warmed=False),
    "no prefixes": Way(prefixes=False),
    "no sessions": Way(sessions=False),
    "none": Way(sessions=False, prefixes=False, warmed=False),
}


def start(console: Console, folder: Path, minute_s: float) -> list[Figure]:
    """Latencies from a start on: a new worker, recorded histories, then 20 decisions/s of 32 points."""
    bundle = decisions_bundle(folder, SMALL)
    seen: dict[str, list[Seen]] = {name: [] for name in WAYS}
    for name in track(list(WAYS) * _ROUNDS, "starts", console=console):
        with without(WAYS[name]), frozen():
            seen[name].append(asyncio.run(_first_minute(bundle, minute_s)))
    table = Table(
        *("kept", "p50 ms", "p99 ms", "slowest ms", "refused"),
        title=f"`small`, first {minute_s:g} s after a start, {RATE_HZ}/s, medians of {_ROUNDS} starts",
    )
    for name, each in seen.items():
        typical = (f"{_typical(each, share):.1f}" for share in (0.5, 0.99, 1.0))
        table.add_row(name, *typical, str(sum(one.failed for one in each)))
    console.print(table)
    p99 = {name: _typical(each, 0.99) for name, each in seen.items()}
    return [
        Figure("inference", "first_p99_ms", p99["all"]),
        *(
            Figure("inference", f"first_p99_{name.replace(' ', '_')}_over_all", p99[name] / p99["all"])
            for name in WAYS
            if name != "all"
        ),
    ]


def _typical(starts: list[Seen], share: float) -> float:
    return statistics.median(each.p(share) for each in starts)


def without(way: Way) -> ExitStack:
    """While it is open, engines that start go that way."""
    off = ExitStack()
    if not way.warmed:
        off.enter_context(mock.patch.object(engine_worker, "_MOST_WARMED", 0))
    if not way.sessions:
        off.enter_context(mock.patch.object(PointState, "missed", return_value=None))
    if not way.prefixes:
        off.enter_context(mock.patch.object(engine_worker, "_MODULE", "tests.bench.forgetful_worker"))
    return off


async def _first_minute(bundle: Bundle, seconds: float) -> Seen:
    async with started(bundle) as (_, client):
        return await client.open_loop(RATE_HZ, seconds, seed=1)


@asynccontextmanager
async def started(bundle: Bundle) -> AsyncIterator[tuple[ModelEngine, Client]]:
    """An engine and whoever asks it; histories come from the record, as the daemon's do."""
    engine = ModelEngine(bundle.directory, definitions(bundle), "cpu", points=POINTS)
    client = Client(engine, bundle, CYCLES)
    for _ in engine.adopt(client.past(CYCLES)):
        pass
    try:
        await engine.start()
        yield engine, client
    finally:
        await engine.aclose()


def memory(console: Console, folder: Path) -> list[Figure]:
    """What a worker's process takes for itself, after a thousand decisions of 32 points."""
    found = []
    for size in (SMALL, TINY):
        bundle = decisions_bundle(folder / size.name, size)
        found.append(Figure("inference", f"{size.name}_worker_mb", asyncio.run(_worker_mb(bundle))))
    console.print("unique set size: what would be free without the worker")
    return found


async def _worker_mb(bundle: Bundle) -> float:
    engine = ModelEngine(bundle.directory, definitions(bundle), "cpu", points=POINTS)
    await engine.start()
    try:
        client = Client(engine, bundle)
        for _ in range(1000):
            await client.ask(Seen(), time.perf_counter())
        mb: float = psutil.Process(engine.pid).memory_full_info().uss / 2**20
        return mb
    finally:
        await engine.aclose()
