"""Open loop at 20 requests a second over the internal port: request to verdict, request to confirmed write.

The reference in the same run is the bare engine and the bare solver, each asked alone and at the same pace: a
process that sleeps between requests wakes with cold caches, whoever it works for.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.progress import track
from rich.table import Table

from gateway.config.load import load
from gateway.config.tags import tag_definitions
from gateway.core.clock import Deadline, SystemClock
from gateway.core.decision import DecisionId, PointId
from gateway.core.ports import CheckRequest, InForce
from gateway.core.quality import StatusCode
from gateway.core.tag import TagDefinition, TagId, TagValue
from gateway.core.tagstore import Snapshot
from gateway.inference.client.model_engine import ModelEngine
from gateway.link.client import LinkClient
from gateway.link.messages import DecisionView
from gateway.pipeline.working import register_values
from gateway.solver.modules.compile import compile_module
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from tests.bench.demo import RunningDemo, running_demo
from tests.bench.opcua_call import call_ms
from tests.bench.report import Figure, percentile

RATE_HZ = 20.0
REQUESTS = 400
IDLE_S = 15.0
BARE = 200
POINT = "buffer-tank"


@dataclass(slots=True)
class _Measured:
    client_ms: list[float] = field(default_factory=list)
    views: dict[str, DecisionView] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)


def run(console: Console) -> list[Figure]:
    """Every figure of this benchmark."""
    return asyncio.run(_run(console))


async def _run(console: Console) -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "demo"
        async with running_demo(folder) as demo:
            idle = await _idle_percent(demo)
            measured = await _open_loop(demo, console)
            calls = await call_ms(folder)
            memory = _memory_mb(demo)
        bare_engine, bare_solver = await _bare(folder)
    stages = _stages(measured)
    _show(console, {**stages, "OPC UA Call": calls}, measured, bare_engine, bare_solver)
    verdict = measured.client_ms
    bare = statistics.median(bare_engine) + statistics.median(bare_solver)
    made = {
        "verdict_p50_ms": percentile(verdict, 0.50),
        "verdict_p99_ms": percentile(verdict, 0.99),
        "write_p50_ms": percentile(stages.get("whole", []), 0.50),
        "write_p99_ms": percentile(stages.get("whole", []), 0.99),
        "opcua_call_p50_ms": percentile(calls, 0.50),
        "opcua_call_p99_ms": percentile(calls, 0.99),
        "whole_over_bare": statistics.median(verdict) / bare,
        "memory_mb": memory,
        "idle_core_percent": idle,
        "start_to_verdict_s": demo.first_verdict_s,
    }
    return [Figure("decision_latency", name, value) for name, value in made.items()]


async def _idle_percent(demo: RunningDemo) -> float:
    """CPU seconds of our processes over wall seconds, at one decision a second."""
    processes = demo.gateway_processes()
    await asyncio.sleep(3.0)  # the start has settled
    before = {p.pid: sum(p.cpu_times()[:2]) for p in processes}
    began = time.monotonic()
    await asyncio.sleep(IDLE_S)
    spent = sum(sum(p.cpu_times()[:2]) - before[p.pid] for p in processes if p.is_running())
    return float(100 * spent / (time.monotonic() - began))


async def _open_loop(demo: RunningDemo, console: Console) -> _Measured:
    """Requests leave by the clock, whatever became of the ones before."""
    measured = _Measured()
    client = await LinkClient.connect(demo.socket, "bench")
    feed = await LinkClient.connect(demo.socket, "bench-feed")
    watching = asyncio.create_task(_watch(feed, measured))

    async def one() -> None:
        began = time.perf_counter()
        answer = await client.ask("decide", {"point": POINT})
        measured.client_ms.append(1000 * (time.perf_counter() - began))
        outcome = answer.result["outcome"] if answer.ok else answer.error
        measured.outcomes[outcome] = measured.outcomes.get(outcome, 0) + 1

    began = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for number in track(range(REQUESTS), "20 requests/s", console=console):
            await asyncio.sleep(max(0.0, began + number / RATE_HZ - time.monotonic()))
            tasks.create_task(one())
    await asyncio.sleep(0.5)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await client.aclose()
    await feed.aclose()
    return measured


async def _watch(feed: LinkClient, measured: _Measured) -> None:
    async for batch in feed.feed():
        for item in batch.items:
            if isinstance(item, DecisionView) and item.requested_by != "period":
                measured.views[item.id] = item


def _stages(measured: _Measured) -> dict[str, list[float]]:
    stages: dict[str, list[float]] = {}
    for view in measured.views.values():
        if view.write_outcome == "confirmed":
            for name, spent in view.timings_ms.items():
                stages.setdefault(name, []).append(spent)
    return stages


def _memory_mb(demo: RunningDemo) -> float:
    """Proportional set size: pages shared between our processes count once."""
    return float(sum(p.memory_full_info().pss for p in demo.gateway_processes()) / 2**20)


async def _bare(folder: Path) -> tuple[list[float], list[float]]:
    """The engine through its worker and the check in this process, on the demo's normal state: ms."""
    config = load(folder / "gateway.toml")
    definitions = {d.id: d for d in tag_definitions(config)}
    point = config.point(POINT)
    clock = SystemClock()
    values = {"TK1.LT101": 2.0, "TK1.FT101": 12.0, "TK1.TT101": 45.0}
    previous = {"TK1.P101.SP": Fraction(27), "TK1.H101.CMD": Fraction(0), "TK1.M101.STAGE": Fraction(1)}
    in_force = {TagId(tag): value for tag, value in previous.items()}
    engine = ModelEngine(config.gateway.bundles_dir / point.model, definitions, clock=clock)
    await engine.start()
    engine_ms: list[float] = []
    try:
        for _ in range(BARE):
            await asyncio.sleep(1 / RATE_HZ)
            snapshot = _snapshot(values, clock.monotonic())
            began = time.perf_counter()
            await engine.propose(snapshot, in_force, Deadline.after(2.0, clock))
            engine_ms.append(1000 * (time.perf_counter() - began))
    finally:
        await engine.aclose()
    checks = await asyncio.to_thread(_bare_checks, folder, definitions, values, in_force)
    return engine_ms, checks


def _bare_checks(
    folder: Path,
    definitions: Mapping[TagId, TagDefinition],
    values: Mapping[str, float],
    in_force: Mapping[TagId, Fraction],
) -> list[float]:
    path = folder / "constraints.d" / "buffer-tank.json"
    rules = RuleSet.of([compile_module(path.read_bytes(), path.name, definitions)], 1)
    checks = Checks(rules)
    proposal = register_values(in_force, definitions, by="bench")
    spent: list[float] = []
    for number in range(BARE):
        time.sleep(1 / RATE_HZ)
        at = 1_000.0 + number / RATE_HZ
        request = CheckRequest(
            decision=DecisionId(str(number)),
            point=PointId(POINT),
            generation=1,
            inputs=dict(_snapshot(values, at).values),
            taken_at=at,
            history={tag: (InForce(value, 0.0),) for tag, value in in_force.items()},
            held_s=dict.fromkeys(in_force, 1000.0),
            proposal=proposal,
            carried=None,
            hold_s=1.15,
            effect_delay_s=0.17,
        )
        began = time.perf_counter()
        checks.check(request)
        spent.append(1000 * (time.perf_counter() - began))
    return spent


def _snapshot(values: Mapping[str, float], at: float) -> Snapshot:
    return Snapshot(
        at,
        {
            TagId(tag): TagValue(
                value=value,
                status=StatusCode.Good,
                source_ts_ns=None,
                server_ts_ns=time.time_ns(),
                confirmed_at=at,
            )
            for tag, value in values.items()
        },
    )


def _show(
    console: Console,
    stages: Mapping[str, list[float]],
    measured: _Measured,
    bare_engine: list[float],
    bare_solver: list[float],
) -> None:
    table = Table("stage", "p50 ms", "p99 ms", "n")
    rows: dict[str, Any] = {"client: request to verdict": measured.client_ms, **stages}
    rows |= {"bare engine": bare_engine, "bare solver": bare_solver}
    for name, spent in rows.items():
        table.add_row(
            name, f"{percentile(spent, 0.5):.2f}", f"{percentile(spent, 0.99):.2f}", str(len(spent))
        )
    console.print(table)
    console.print(f"outcomes: {measured.outcomes}; cores: {psutil.cpu_count()}")


if __name__ == "__main__":
    from tests.bench.report import show

    here = Console()
    show(run(here), here)
