"""Rule sets exchanged one after the other while decisions run: none is lost, none mixed, nothing piles up."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.core.clock import SystemClock
from tests.bench.swap import HIGH, Load, Swapper
from tests.unit.solver_pools import PatientPool

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

CLOCK = SystemClock()
PATIENCE_S = 60.0  # of a busy machine; how long a decision waits is the benchmark's question
SWAPS = 48


@pytest_asyncio.fixture
async def swapper() -> AsyncIterator[Swapper]:
    pool = PatientPool(2, CLOCK, warm=[(HIGH.hold_s, HIGH.effect_delay_s)])
    await pool.start()
    made = Swapper(pool, SWAPS)
    await made.begin()
    yield made
    await pool.aclose()


async def deciding(swapper: Swapper, done: asyncio.Event, found: Load) -> None:
    while not done.is_set():
        await swapper.decide(found, CLOCK, PATIENCE_S)
        await asyncio.sleep(0.002)


# S17: a decision is judged by the set it took when it began, whole, whatever comes into force meanwhile.
async def test_s17_no_decision_is_lost_or_judged_by_a_mixture_while_sets_change(swapper: Swapper) -> None:
    found, done, grown = Load(), asyncio.Event(), list[int]()
    async with asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(deciding(swapper, done, found), name=f"decide {number}")
        for number in range(SWAPS):
            await swapper.swap()
            if number in {SWAPS // 3, SWAPS - 1}:
                grown.append(sum(map(resident_kb, swapper.pool.pids())))
        done.set()

    assert found.lost == []
    assert found.mixed == 0
    assert len(found.waits_ms) > SWAPS
    assert swapper.pool.statistics().generations == (swapper.current.generation,)
    assert grown[1] - grown[0] < 60_000  # two workers; a set is about two megabytes


async def test_a_worker_killed_while_sets_change_costs_the_decision_it_held_and_no_other(
    swapper: Swapper,
) -> None:
    found, done = Load(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(deciding(swapper, done, found), name="decide")
        for number in range(6):
            changing = group.create_task(swapper.swap(), name="swap")
            if number == 3:
                os.kill(swapper.pool.pids()[0], signal.SIGKILL)
            await changing
        done.set()

    assert len(found.lost) <= 1
    assert found.mixed == 0
    assert swapper.pool.statistics().lost == 1
    last = Load()
    await swapper.decide(last, CLOCK, PATIENCE_S)
    assert (last.lost, last.mixed) == ([], 0)


def resident_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
