"""Which of two children gets the processor while one decides and the other builds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gateway.core.errors import WorkerLostError
from gateway.supervision import precedence, share
from gateway.supervision.precedence import Precedence
from gateway.supervision.worker import WorkerProcess

lowers = pytest.mark.skipif(not share.comes_back(), reason="this account may not raise again what it lowered")


@pytest_asyncio.fixture
async def builder() -> AsyncIterator[WorkerProcess]:
    made = WorkerProcess("tests.fakes.echo_worker", name="builder")
    await made.start()
    yield made
    await made.aclose(0.2)


def begun(linger_s: float = precedence.LINGER_S, patience_s: float = 60.0) -> Precedence:
    made = Precedence(linger_s, patience_s)
    made.begin()
    assert made.possible
    return made


def policy(child: WorkerProcess) -> int:
    assert child.pid is not None
    return os.sched_getscheduler(child.pid)


async def until(child: WorkerProcess, wanted: int) -> None:
    async with asyncio.timeout(60):
        while policy(child) != wanted:  # noqa: ASYNC110  what is awaited is the kernel's
            await asyncio.sleep(0.001)


@lowers
async def test_a_child_that_builds_has_its_share_where_nothing_is_decided(builder: WorkerProcess) -> None:
    with begun().builds(builder):
        assert policy(builder) == os.SCHED_BATCH


@lowers
async def test_a_decision_takes_the_processor_from_who_builds_and_gives_it_back(
    builder: WorkerProcess,
) -> None:
    order = begun()
    with order.builds(builder):
        order.decides()
        assert policy(builder) == os.SCHED_IDLE
        await until(builder, os.SCHED_BATCH)


@lowers
async def test_a_build_that_begins_beside_a_decision_gives_way_from_its_start_to_its_end(
    builder: WorkerProcess,
) -> None:
    order = begun(linger_s=60.0)
    order.decides()
    assert policy(builder) == os.SCHED_BATCH
    with order.builds(builder):
        meanwhile = policy(builder)
    with pytest.raises(ZeroDivisionError), order.builds(builder):
        raise ZeroDivisionError

    assert meanwhile == os.SCHED_IDLE
    assert policy(builder) == os.SCHED_BATCH


# On a machine whose cores are full, what gives way would hardly go on: a tightening must be in force soon.
@lowers
@pytest.mark.parametrize(("usual_s", "own_s"), [(0.01, None), (60.0, 0.01)])
async def test_a_build_gives_way_no_longer_than_it_may(
    builder: WorkerProcess, usual_s: float, own_s: float | None
) -> None:
    order = begun(linger_s=60.0, patience_s=usual_s)
    order.decides()
    with order.builds(builder, own_s):
        assert policy(builder) == os.SCHED_IDLE
        await until(builder, os.SCHED_BATCH)
        order.decides()
        assert policy(builder) == os.SCHED_BATCH


@lowers
async def test_decisions_one_after_the_other_keep_it_lowered(builder: WorkerProcess) -> None:
    loop, order = asyncio.get_running_loop(), begun(linger_s=0.05)
    with order.builds(builder):
        ends = loop.time() + 0.15
        while loop.time() < ends:
            order.decides()
            assert policy(builder) == os.SCHED_IDLE
            await asyncio.sleep(0.001)
        await until(builder, os.SCHED_BATCH)


@lowers
async def test_who_dies_while_it_gives_way_is_lost_as_ever(builder: WorkerProcess) -> None:
    order = begun(linger_s=60.0, patience_s=1.0)
    order.decides()
    with pytest.raises(WorkerLostError, match="died while it held a request"), order.builds(builder):
        await builder.ask(b"die", 60.0)

    assert await asyncio.wait_for(builder.wait(), 60.0) != 0


async def test_nobody_is_lowered_where_it_could_not_be_raised_again(builder: WorkerProcess) -> None:
    order = Precedence()  # it has not begun: as if the system had refused
    order.decides()
    with order.builds(builder):
        order.decides()
        assert policy(builder) == os.SCHED_BATCH
