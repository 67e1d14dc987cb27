"""How long requests take: by the wall clock, open loop, at random times of a given rate."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import time
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from unittest import mock

import psutil
from rich.console import Console
from rich.progress import track
from rich.table import Table

from gateway.core.clock import Deadline, SystemClock
from gateway.core.errors import InferenceError
from gateway.core.quality import StatusCode
from gateway.core.tag import TagId, TagValue
from gateway.core.tagstore import Snapshot
from gateway.inference.bundle import Bundle
from gateway.inference.client import ModelEngine
from gateway.inference.messages import Answer
from tests.bench.inference_kv import decisions_bundle, engine_of, history, request
from tests.bench.report import Figure, percentile
from tests.unit.random_decoder import SMALL, TINY, definitions

RATES = (50, 100, 150, 200, 300, 400, 500)
LIMITS_MS = {SMALL.name: (150, 12.0), TINY.name: (400, 5.0)}
CHUNKS = (16, 32, 48, 64, 100_000)
_POINTS = 32
_SECONDS = 4.0
_MIXED_RATE = 100
_CLOCK = SystemClock()


@dataclass(slots=True)
class _Seen:
    ms: list[float] = field(default_factory=list)
    failed: int = 0
    worst_late_ms: float = 0.0  # of our own clock: a request that left late was not the engine's doing

    def p(self, share: float) -> float:
        """A refused request counts as one that never came."""
        return percentile(self.ms + [float("inf")] * self.failed, share)


def load(console: Console, folder: Path) -> list[Figure]:
    """Random arrivals through a real worker: latency at each rate, and the highest rate within the limit."""
    found = []
    for size in (SMALL, TINY):
        bundle = decisions_bundle(folder / size.name, size)
        at_rate, limit_ms = LIMITS_MS[size.name]
        rows = asyncio.run(_rates(bundle))
        table = Table("requests/s", "p50 ms", "p99 ms", "refused", "rows/forward", title=f"`{size.name}`")
        for rate, seen, rows_a_forward in rows:
            table.add_row(
                str(rate),
                f"{seen.p(0.5):.1f}",
                f"{seen.p(0.99):.1f}",
                str(seen.failed),
                f"{rows_a_forward:.2f}",
            )
        console.print(table)
        p99 = {rate: seen.p(0.99) for rate, seen, _ in rows}
        beyond = [rate for rate in RATES if p99[rate] > limit_ms]
        within = [rate for rate in RATES if not beyond or rate < beyond[0]]
        found += [
            Figure("inference", f"{size.name}_p99_ms_at_{at_rate}", p99[at_rate]),
            Figure("inference", f"{size.name}_knee_hz", max(within, default=0)),
        ]
    return found


async def _rates(bundle: Bundle) -> list[tuple[int, _Seen, float]]:
    engine = ModelEngine(bundle.directory, definitions(bundle), "cpu")
    await engine.start()
    client = _Client(engine, bundle)
    try:
        for _ in range(3 * _POINTS):  # every point has a history
            await client.ask(_Seen(), time.perf_counter())
        rows = []
        for rate in RATES:
            before = (await engine.refresh()).worker
            seen = await client.open_loop(rate, _SECONDS, seed=rate)
            after = (await engine.refresh()).worker
            assert before is not None
            assert after is not None
            rows.append((rate, seen, (after.rows - before.rows) / max(1, after.forwards - before.forwards)))
        return rows
    finally:
        await engine.aclose()


class _Client:
    """Many decision points with a cycle of their own each, asked in turn."""

    def __init__(self, engine: ModelEngine, bundle: Bundle) -> None:
        self._engine, self._turn = engine, itertools.count()
        self._dice = random.Random(11)  # noqa: S311 - test data
        self._inputs = [TagId(spec.tag) for spec in bundle.manifest.inputs]
        self._in_force = {TagId(spec.tag): Fraction(50) for spec in bundle.manifest.outputs}

    async def ask(self, seen: _Seen, due: float) -> None:
        """One decision that was due at `due`."""
        turn = next(self._turn)
        at = float(turn // _POINTS)
        values = {
            tag: TagValue(
                value=self._dice.uniform(0, 100),
                status=StatusCode.Good,
                source_ts_ns=None,
                server_ts_ns=0,
                confirmed_at=at,
            )
            for tag in self._inputs
        }
        try:
            await self._engine.propose_for(
                f"point-{turn % _POINTS}", Snapshot(at, values), self._in_force, Deadline.after(1.0, _CLOCK)
            )
        except InferenceError:
            seen.failed += 1
        else:
            seen.ms.append((time.perf_counter() - due) * 1e3)

    async def open_loop(self, rate: float, seconds: float, seed: int) -> _Seen:
        """Arrivals as a Poisson process; they do not wait for answers."""
        dice, seen = random.Random(seed), _Seen()  # noqa: S311 - test data
        due = time.perf_counter()
        end = due + seconds
        async with asyncio.TaskGroup() as tasks:
            while (due := due + dice.expovariate(rate)) < end:
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                seen.worst_late_ms = max(seen.worst_late_ms, (time.perf_counter() - due) * 1e3)
                tasks.create_task(self.ask(seen, due))
        return seen


def chunks(console: Console, folder: Path) -> list[Figure]:
    """Decisions at 100/s beside histories that are always being computed, by the tokens of a chunk."""
    bundle = decisions_bundle(folder, SMALL)
    table = Table("chunk", "p50 ms", "p99 ms", "histories/s", title="`small`, 100 decisions/s beside prefill")
    p99 = {}
    for tokens in track(CHUNKS, description="chunks", console=console):
        with mock.patch("gateway.inference.job.PREFILL_CHUNK", tokens):
            seen, rebuilt = _mixed(bundle)
        p99[tokens] = seen.p(0.99)
        name = str(tokens) if tokens < CHUNKS[-1] else "whole"
        table.add_row(name, f"{seen.p(0.5):.1f}", f"{p99[tokens]:.1f}", f"{rebuilt / _SECONDS:.1f}")
    console.print(table)
    return [
        Figure("inference", f"p99_whole_over_chunks_of_{tokens}", p99[CHUNKS[-1]] / p99[tokens])
        for tokens in CHUNKS[:-1]
    ]


def _mixed(bundle: Bundle) -> tuple[_Seen, int]:
    engine, dice, seen = engine_of(bundle), random.Random(3), _Seen()  # noqa: S311 - test data
    past, at = history(bundle, 400, seed=1), dict.fromkeys(range(8), 2)
    long_past = history(bundle, 56, seed=2)
    with mock.patch.object(engine.backend, "adopt", return_value=0):  # each history is new
        for name in at:
            engine.propose(request(past, 1, str(name), rebuild=True))
        number, rebuilt, waiting = itertools.count(1), 0, dict[int, float]()
        due = time.perf_counter()
        end = due + _SECONDS
        long = 0
        while (now := time.perf_counter()) < end:
            while due <= now:
                name = dice.randrange(8)
                ticket = next(number)
                waiting[ticket] = due
                engine.submit(ticket, request(past, at[name], str(name), rebuild=False))
                at[name] = min(at[name] + 1, len(past) - 1)
                due += dice.expovariate(_MIXED_RATE)
            if not long:
                long = next(number)
                engine.submit(long, request(long_past, 55, "long", rebuild=True))
            engine.step()
            for ticket, reply in engine.drain():
                if ticket == long:
                    rebuilt, long = rebuilt + 1, 0
                    engine.release("long")
                elif isinstance(reply, Answer):
                    seen.ms.append((time.perf_counter() - waiting.pop(ticket)) * 1e3)
                else:
                    seen.failed += 1
    return seen, rebuilt


def start(console: Console, folder: Path, minute_s: float) -> list[Figure]:
    """p99 of the first requests after a lost worker's replacement is ready, with and without warming it."""
    bundle = decisions_bundle(folder, SMALL)
    seen = {}
    for warm in (True, False):
        with mock.patch("gateway.inference.engine_worker._MOST_WARMED", 32 if warm else 0):
            seen[warm] = asyncio.run(_first_minute(bundle, minute_s))
    table = Table(
        "warmed", "p50 ms", "p99 ms", "slowest ms", title=f"first {minute_s:g} s after a start, 20/s"
    )
    for warm, each in seen.items():
        table.add_row(*(str(warm), *(f"{each.p(share):.1f}" for share in (0.5, 0.99, 1.0))))
    console.print(table)
    return [Figure("inference", "first_p99_cold_over_warm", seen[False].p(0.99) / seen[True].p(0.99))]


async def _first_minute(bundle: Bundle, seconds: float) -> _Seen:
    engine = ModelEngine(bundle.directory, definitions(bundle), "cpu")
    await engine.start()
    client = _Client(engine, bundle)
    try:
        for _ in range(48 * _POINTS):
            await client.ask(_Seen(), time.perf_counter())
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        while engine.ready:  # noqa: ASYNC110 - nobody tells of the moment between
            await asyncio.sleep(0)  # the loop has to see the end of the process
        await engine.wait_ready(30.0)
        return await client.open_loop(20, seconds, seed=1)
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
    engine = ModelEngine(bundle.directory, definitions(bundle), "cpu")
    await engine.start()
    try:
        client = _Client(engine, bundle)
        for _ in range(1000):
            await client.ask(_Seen(), time.perf_counter())
        mb: float = psutil.Process(engine.pid).memory_full_info().uss / 2**20
        return mb
    finally:
        await engine.aclose()
