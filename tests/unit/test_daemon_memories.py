"""What workers count is asked for when nobody waits for an answer, and of one that is silent not for ever."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.core.clock import FakeClock
from gateway.daemon import memories
from gateway.daemon.memories import Memories


class Engine:
    """An engine that is idle when told, and counts how often it was asked."""

    def __init__(self) -> None:
        self.is_idle, self.answers = True, True
        self.looks = self.asked = 0
        self.looked_often, self.counted = asyncio.Event(), asyncio.Event()

    @property
    def idle(self) -> bool:
        self.looks += 1
        if self.looks == memories._LOOKS:
            self.looked_often.set()
        return self.is_idle

    async def refresh(self) -> Any:  # noqa: ANN401  # a report's twin
        self.asked += 1
        self.counted.set()
        return SimpleNamespace(worker=object() if self.answers else None)

    def memory(self) -> dict[str, float]:
        return {"sessions": 2.0} if self.asked and self.answers else {}


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setattr(memories, "_EVERY_S", 0.0)
    monkeypatch.setattr(memories, "_LOOK_S", 0.0)
    return Engine()


def memories_of(engine: Engine) -> Memories:
    return Memories(cast("Any", {"tank": SimpleNamespace(engine=engine)}), FakeClock())


async def test_counts_come_with_the_time_they_were_taken_and_none_before(engine: Engine) -> None:
    told = memories_of(engine)
    assert told.of("tank") == ({}, 0)

    await told.ask("tank")
    figures, at_ns = told.of("tank")
    assert figures == {"sessions": 2.0}
    assert at_ns == FakeClock().utc_ns()


async def test_a_worker_that_does_not_answer_leaves_no_time(engine: Engine) -> None:
    engine.answers = False
    told = memories_of(engine)
    await told.ask("tank")

    assert told.of("tank") == ({}, 0)


async def test_a_worker_that_is_never_idle_is_asked_only_after_so_many_looks(engine: Engine) -> None:
    engine.is_idle = False
    running = asyncio.create_task(memories_of(engine).run())
    async with asyncio.timeout(60):
        await engine.looked_often.wait()
        assert engine.asked == 0
        await engine.counted.wait()
    running.cancel()
    await asyncio.wait({running})

    assert engine.looks % memories._LOOKS == 0


async def test_an_idle_worker_is_asked_at_the_first_look(engine: Engine) -> None:
    running = asyncio.create_task(memories_of(engine).run())
    async with asyncio.timeout(60):
        await engine.counted.wait()
    running.cancel()
    await asyncio.wait({running})

    assert engine.looks == engine.asked
