"""One long-lived child: replaced when it ends, and when it hangs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from gateway.core.clock import FakeClock, SystemClock
from gateway.supervision import service as supervision
from gateway.supervision.service import ServiceProcess, ServiceStatistics


@asynccontextmanager
async def running(service: ServiceProcess) -> AsyncIterator[None]:
    task = asyncio.create_task(service.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert service.statistics().pid is None


async def until(service: ServiceProcess, holds: Callable[[ServiceStatistics], bool]) -> ServiceStatistics:
    async with asyncio.timeout(180):
        while not holds(found := service.statistics()):  # noqa: ASYNC110  # a child gives no event
            await asyncio.sleep(0.01)
    return found


# A front end that was stopped, or that waits for ever, held its port and looked well.
async def test_a_child_that_does_not_read_what_it_is_sent_is_killed_and_started_anew() -> None:
    hung: list[int] = []
    service = ServiceProcess(
        "child", "tests.fakes.sleeper", tuple, SystemClock(), lambda pid: 16.0 if pid in hung else 14.0
    )
    async with running(service):
        first = (await until(service, lambda s: s.pid is not None)).pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        hung.append(first)
        second = await until(service, lambda s: s.starts == 2 and s.pid is not None)
        assert second.last_exit == -signal.SIGKILL
        assert second.pid != first


async def test_a_child_that_ended_is_a_problem_until_it_has_lived_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervision, "_FIRST_BACKOFF_S", 3.0)  # long enough to be seen by a slow machine
    clock = FakeClock()
    service = ServiceProcess("child", "tests.fakes.sleeper", tuple, clock)
    async with running(service):
        first = await until(service, lambda s: s.pid is not None)
        assert first.problem == ""
        assert first.pid is not None
        os.kill(first.pid, signal.SIGKILL)
        gone = await until(service, lambda s: s.pid is None)
        assert gone.problem == "is being restarted; it ended with status -9: the log says why"
        await until(service, lambda s: s.pid is not None)
        clock.advance(4)
        assert service.statistics().problem == "is back for 4 s after it ended with status -9"
        clock.advance(7)
        assert service.statistics().problem == ""
