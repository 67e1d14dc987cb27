"""Solver workers are bounded in work, time and memory, and renewed without anybody waiting for it."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.core.decision import Permitted, Undetermined
from gateway.solver.checking.terms import Budget
from gateway.solver.workers import seat
from gateway.solver.workers.check import Checks
from gateway.solver.workers.pool import CHECKER_BYTES, CheckerPool
from gateway.solver.workers.seat import PoolError
from gateway.supervision.worker import WorkerProcess
from tests.unit.solver_demo import LOWER_LEVEL, Situation, module, proposal, rule_set
from tests.unit.solver_pools import CLOCK, PatientPool, soon, two_workers

pytestmark = pytest.mark.integration  # every test starts its own workers


pool = pytest_asyncio.fixture(two_workers)


def maps(pid: int) -> str:
    """What a process has in memory of files."""
    return Path(f"/proc/{pid}/maps").read_text()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(180):
        while not holds():  # noqa: ASYNC110  # what is awaited is a counter
            await asyncio.sleep(0.005)


# First the work units, the same on every machine; then the time; the process is killed after both.
def test_work_units_and_time_each_end_a_query_as_unknown() -> None:
    near = Situation(level=3.5, inflow=30.0, pump="50", may_repair=False)
    for budget in (Budget(rlimit=1, timeout_ms=60_000), Budget(rlimit=2_000_000, timeout_ms=0)):
        found, _ = Checks(rule_set(), budget).check(near.request(proposal("50")))
        if budget.timeout_ms:
            assert isinstance(found.verdict, Undetermined)
            assert "budget" in found.verdict.reason


async def test_every_worker_has_a_bound_of_memory_that_the_kernel_keeps(pool: CheckerPool) -> None:
    for pid in pool.pids():
        assert resource.prlimit(pid, resource.RLIMIT_DATA) == (CHECKER_BYTES, CHECKER_BYTES)


# What may come next is worked out with numpy, which is most of a worker's private memory at its start.
@pytest.mark.parametrize("guided", [False, True])
async def test_a_worker_has_numpy_from_its_start_only_where_it_will_be_asked_what_may_come_next(
    *, guided: bool
) -> None:
    one = PatientPool(1, CLOCK, guided=guided)
    await one.start()
    try:
        await one.load(rule_set())
        (pid,) = one.pids()
        assert ("/numpy/" in maps(pid)) is guided
    finally:
        await one.aclose()


# A set that is too much for a worker must not be the end of the machine, nor of the set in force.
async def test_a_set_beyond_the_bound_is_refused_and_the_one_in_force_goes_on() -> None:
    small = PatientPool(1, CLOCK, memory_bytes=90 << 20)
    await small.start()
    try:
        await small.load(rule_set())
        many = [module(LOWER_LEVEL, ('"id": "lower-level-limit"', f'"id": "limit-{n}"')) for n in range(400)]
        with pytest.raises(PoolError, match="rule set 2"):
            await small.load(rule_set(module(), *many, generation=2))
        result, _ = await small.check(Situation().request(proposal()), soon())
        assert isinstance(result.verdict, Permitted)
    finally:
        await small.aclose()


async def test_a_worn_worker_is_renewed_while_checks_go_on_and_both_seats_stay_in_use(
    pool: CheckerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seat, "RECYCLE_CHECKS", 20)
    before = set(pool.pids())
    fewest = 2

    async def decide() -> None:
        nonlocal fewest
        while pool.statistics().recycled < 2:
            result, _ = await pool.check(Situation().request(proposal()), soon())
            assert isinstance(result.verdict, Permitted)
            fewest = min(fewest, pool.statistics().alive)

    async with asyncio.timeout(360):
        await asyncio.gather(decide(), decide())
    assert fewest == 2
    assert pool.statistics().lost == 0
    await until(lambda: not set(pool.pids()) & before)
    await until(lambda: pool.statistics().idle == 2)


async def test_a_worker_that_has_grown_too_much_is_renewed(
    pool: CheckerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seat, "_LOOK_EVERY", 1)
    monkeypatch.setattr(seat, "RECYCLE_RSS_BYTES", 1)
    before = set(pool.pids())
    await pool.check(Situation().request(proposal()), soon())
    monkeypatch.setattr(seat, "RECYCLE_RSS_BYTES", 1 << 40)
    await until(lambda: pool.statistics().recycled == 1)
    assert len(set(pool.pids()) - before) == 1


# A renewed worker that dies on the way costs nothing: the worn one has never left.
async def test_a_renewal_that_fails_leaves_the_worn_worker_in_its_seat(
    pool: CheckerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seat, "RECYCLE_CHECKS", 1)
    made = pool._worker

    def born_dead(number: int) -> WorkerProcess:
        worker = made(number)
        begin = worker.start

        async def start() -> None:
            await begin()
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)

        worker.start = start  # type: ignore[method-assign]
        return worker

    monkeypatch.setattr(pool, "_worker", born_dead)
    before = pool.pids()
    for _ in range(3):
        result, _ = await pool.check(Situation().request(proposal()), soon())
        assert isinstance(result.verdict, Permitted)
    await until(lambda: pool._renewing is None)
    assert pool.pids() == before
    assert pool.statistics().recycled == 0


# While one worker takes a new set the other decides: no decision may wait for a load.
async def test_a_new_set_is_loaded_in_one_worker_after_the_other(pool: CheckerPool) -> None:
    loading = asyncio.create_task(
        pool.load(rule_set(module(), module(LOWER_LEVEL), generation=2)), name="load"
    )
    while not loading.done():
        result, _ = await pool.check(Situation().request(proposal()), soon())
        assert isinstance(result.verdict, Permitted)
        assert pool.statistics().idle >= 1
        await asyncio.sleep(0)
    await loading
