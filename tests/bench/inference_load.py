"""How long requests take: by the wall clock, open loop, at random times of a given rate."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from unittest import mock

import psutil
from rich.console import Console
from rich.progress import track
from rich.table import Table

from gateway.core.clock import Deadline, SystemClock
from gateway.core.errors import InferenceError, WorkerLostError
from gateway.core.quality import StatusCode
from gateway.core.tag import TagId, TagValue
from gateway.core.tagstore import Snapshot
from gateway.inference.bundle.manifest import Bundle
from gateway.inference.client.model_engine import ModelEngine
from gateway.inference.client.past import Moment
from gateway.inference.messages import Answer
from tests.bench.inference_kv import decisions_bundle, engine_of, history, request
from tests.bench.report import Figure, percentile
from tests.unit.random_decoder import SMALL, TINY, definitions

RATES = (50, 100, 150, 200, 300, 400, 500)
OVERLOAD = 2000  # no machine of two cores answers so many
LIMITS_MS = {SMALL.name: (150, 12.0), TINY.name: (400, 5.0)}
CHUNKS = (16, 32, 48, 64, 100_000)
POINTS = 32
_SECONDS = 4.0
_RUNS, _RUN_S = 5, 1.5  # by the CPU clock
_MIXED_RATE = 100
_CLOCK = SystemClock()


@dataclass(slots=True)
class Seen:
    ms: list[float] = field(default_factory=list)
    failed: int = 0
    worst_late_ms: float = 0.0  # of our own clock: a request that left late was not the engine's doing

    def p(self, share: float) -> float:
        """A refused request counts as one that never came."""
        return percentile(self.ms + [float("inf")] * self.failed, share)


@contextmanager
def frozen() -> Iterator[None]:
    """Nothing looks for garbage meanwhile, as in every process of ours that serves.

    In this one, which has loaded every benchmark, a full look takes 40 ms of CPU: the whole p99.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def load(console: Console, folder: Path) -> list[Figure]:
    """Random arrivals through a real worker: latency at each rate, and the highest rate within the limit."""
    found = []
    for size in (SMALL, TINY):
        bundle = decisions_bundle(folder / size.name, size)
        at_rate, limit_ms = LIMITS_MS[size.name]
        with frozen():
            rows = asyncio.run(_rates(bundle))
        table = Table(
            *("requests/s", "p50 ms", "p99 ms", "refused", "rows/forward", "CPU ms: client", "worker"),
            title=f"`{size.name}`, through a worker process",
        )
        for rate, seen, told in rows:
            speed = (f"{seen.p(0.5):.1f}", f"{seen.p(0.99):.1f}", str(seen.failed))
            table.add_row(str(rate), *speed, *(f"{each:.2f}" for each in told))
        console.print(table)
        p99 = {rate: seen.p(0.99) for rate, seen, _ in rows}
        answered = [len(seen.ms) for _, seen, _ in rows]
        at = RATES.index(at_rate)
        found += [
            Figure("inference", f"{size.name}_p99_ms_at_{at_rate}", p99[at_rate]),
            Figure("inference", f"{size.name}_knee_hz", _knee(p99, limit_ms)),
            Figure("inference", f"{size.name}_worker_cpu_ms_a_decision", rows[at][2][2]),
            Figure("inference", f"{size.name}_overload_over_best", answered[-1] / max(answered[:-1])),
        ]
    return found


async def _rates(bundle: Bundle) -> list[tuple[int, Seen, tuple[float, float, float]]]:
    """By rate: latencies; rows in a forward, CPU milliseconds a decision of this process and the worker."""
    engine = ModelEngine(bundle.directory, definitions(bundle), "cpu", points=POINTS)
    await engine.start()
    client = Client(engine, bundle)
    try:
        for _ in range(3 * POINTS):  # every point has a history
            await client.ask(Seen(), time.perf_counter())
        rows = []
        for rate in (*RATES, OVERLOAD):
            before, began = (await engine.refresh()).worker, _cpu_s(engine)
            seen = await client.open_loop(rate, _SECONDS, seed=rate)
            after, ended = (await engine.refresh()).worker, _cpu_s(engine)
            assert before is not None
            assert after is not None
            shared = (after.rows - before.rows) / max(1, after.forwards - before.forwards)
            client_ms, worker_ms = (
                (end - begin) * 1e3 / max(1, len(seen.ms)) for begin, end in zip(began, ended, strict=True)
            )
            rows.append((rate, seen, (shared, client_ms, worker_ms)))
        return rows
    finally:
        await engine.aclose()


def _cpu_s(engine: ModelEngine) -> tuple[float, float]:
    """CPU seconds of this process and of the worker until now."""
    worker = psutil.Process(engine.pid).cpu_times()
    return time.process_time(), worker.user + worker.system


class Client:
    """Many decision points with a cycle of their own each, asked in turn."""

    def __init__(self, engine: ModelEngine, bundle: Bundle, first_cycle: int = 0) -> None:
        self._engine, self._turn = engine, itertools.count(first_cycle * POINTS)
        self._dice = random.Random(11)  # noqa: S311 - test data
        self._inputs = [TagId(spec.tag) for spec in bundle.manifest.inputs]
        self._in_force = {TagId(spec.tag): Fraction(50) for spec in bundle.manifest.outputs}

    async def ask(self, seen: Seen, due: float, deadline_s: float = 1.0) -> None:
        """One decision that was due at `due`."""
        turn = next(self._turn)
        at = float(turn // POINTS)
        try:
            await self._engine.propose_for(
                f"point-{turn % POINTS}",
                self._measured(at),
                self._in_force,
                Deadline.after(deadline_s, _CLOCK),
            )
        except (InferenceError, WorkerLostError):
            seen.failed += 1
        else:
            seen.ms.append((time.perf_counter() - due) * 1e3)

    def past(self, cycles: int) -> dict[str, tuple[list[Moment], int]]:
        """What each point's record says of its first cycles."""
        return {
            f"point-{number}": (
                [Moment(float(at), self._measured(float(at)), self._in_force) for at in range(cycles)],
                1,
            )
            for number in range(POINTS)
        }

    def _measured(self, at: float) -> Snapshot:
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
        return Snapshot(at, values)

    async def open_loop(self, rate: float, seconds: float, seed: int) -> Seen:
        """Arrivals as a Poisson process; they do not wait for answers."""
        dice, seen = random.Random(seed), Seen()  # noqa: S311 - test data
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
    table = Table(
        "chunk", "p50 ms", "p99 ms", "histories/s", title="`small`, 100 decisions/s beside prefill, CPU clock"
    )
    p99 = {}
    for tokens in track(CHUNKS, description="chunks", console=console):
        with mock.patch("gateway.inference.serving.job.PREFILL_CHUNK", tokens):
            p50, p99[tokens], rebuilt = _typical(bundle, _MIXED_RATE, beside=True)
        name = str(tokens) if tokens < CHUNKS[-1] else "whole"
        table.add_row(name, f"{p50:.1f}", f"{p99[tokens]:.1f}", f"{rebuilt:.0f}")
    console.print(table)
    return [
        Figure("inference", f"p99_whole_over_chunks_of_{tokens}", p99[CHUNKS[-1]] / p99[tokens])
        for tokens in CHUNKS[:-1]
    ]


def bare(console: Console, folder: Path) -> list[Figure]:
    """The engine alone at each rate, by the CPU clock: what a core of its own would show."""
    found = []
    for size in (SMALL, TINY):
        bundle = decisions_bundle(folder / size.name, size)
        at_rate, limit_ms = LIMITS_MS[size.name]
        typical = {rate: _typical(bundle, rate, beside=False) for rate in RATES}
        table = Table("requests/s", "p50 ms", "p99 ms", title=f"`{size.name}`, engine alone, CPU clock")
        p99 = {rate: each[1] for rate, each in typical.items()}
        for rate, (p50, slow, _) in typical.items():
            table.add_row(str(rate), f"{p50:.1f}", f"{slow:.1f}")
        console.print(table)
        found += [
            Figure("inference", f"{size.name}_engine_p99_cpu_ms_at_{at_rate}", p99[at_rate]),
            Figure("inference", f"{size.name}_engine_knee_hz", _knee(p99, limit_ms)),
        ]
    return found


def _typical(bundle: Bundle, rate: int, *, beside: bool) -> tuple[float, float, float]:
    """p50 and p99 in milliseconds and histories a second, each the median of some runs."""
    with frozen():
        runs = [on_cpu_clock(bundle, rate, _RUN_S, seed, beside=beside) for seed in range(_RUNS)]
    p50, p99 = (statistics.median(seen.p(share) for seen, _ in runs) for share in (0.5, 0.99))
    return p50, p99, statistics.median(rebuilt for _, rebuilt in runs) / _RUN_S


def _knee(p99: Mapping[int, float], limit_ms: float) -> int:
    """The highest rate up to which p99 stays within the limit."""
    beyond = [rate for rate in RATES if p99[rate] > limit_ms]
    return max((rate for rate in RATES if not beyond or rate < beyond[0]), default=0)


def on_cpu_clock(bundle: Bundle, rate: int, seconds: float, seed: int, *, beside: bool) -> tuple[Seen, int]:
    """Random arrivals at an engine whose clock goes on only while it works, and jumps while it waits.

    Other processes on the machine change nothing but the caches' warmth. With `beside` a history of 56 cycles
    is always being computed, with pages of its own.
    """
    engine, dice, seen = engine_of(bundle), random.Random(seed), Seen()  # noqa: S311 - test data
    past, long_past = history(bundle, 400, seed=1), history(bundle, 56, seed=2)
    at, number, arrived = dict.fromkeys(range(POINTS), 2), itertools.count(1), dict[int, float]()
    rebuilt = long = 0
    with mock.patch.object(engine.backend, "adopt", return_value=0):  # each history is new
        for name in at:
            engine.propose(request(past, 1, str(name), rebuild=True))
        now, due = 0.0, dice.expovariate(rate)
        while now < seconds:
            if beside and not long:
                long = next(number)
                engine.submit(long, request(long_past, 55, "long", rebuild=True))
            if not engine.queued:
                now = max(now, due)
            while due <= now:
                name, ticket = dice.randrange(POINTS), next(number)
                arrived[ticket] = due
                engine.submit(ticket, request(past, at[name], str(name), rebuild=False))
                at[name] += 1
                due += dice.expovariate(rate)
            began = time.thread_time()
            engine.step()
            now += time.thread_time() - began
            for ticket, reply in engine.drain():
                if ticket == long:
                    rebuilt, long = rebuilt + 1, 0
                    engine.release("long")
                elif isinstance(reply, Answer):
                    seen.ms.append((now - arrived.pop(ticket)) * 1e3)
                else:
                    seen.failed += 1
    return seen, rebuilt
