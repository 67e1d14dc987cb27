"""The order and the bound of waiting requests."""

from __future__ import annotations

import asyncio

from gateway.core.clock import Deadline, FakeClock
from gateway.core.decision import DecisionId, DecisionRequest, PointId, RequestClass
from gateway.pipeline.queue import DecisionQueue


def request(
    name: str, *, deadline: float = 1_010.0, request_class: RequestClass = RequestClass.P1
) -> DecisionRequest:
    return DecisionRequest(
        id=DecisionId(name),
        point=PointId("tank"),
        requested_by="test",
        request_class=request_class,
        deadline=Deadline(deadline),
        received_at=1_000.0,
    )


async def order(queue: DecisionQueue, count: int) -> list[str]:
    return [(await queue.get()).id for _ in range(count)]


async def test_class_goes_before_deadline_and_deadline_before_arrival() -> None:
    queue = DecisionQueue(10, FakeClock())
    queue.put(request("late", deadline=1_020.0))
    queue.put(request("first"))
    queue.put(request("second"))
    queue.put(request("batch", deadline=1_001.0, request_class=RequestClass.P2))
    queue.put(request("urgent", deadline=1_030.0, request_class=RequestClass.P0))
    assert await order(queue, 5) == ["urgent", "first", "second", "late", "batch"]


async def test_a_full_queue_refuses_the_newest_and_keeps_the_rest() -> None:
    queue = DecisionQueue(2, FakeClock())
    assert [queue.put(request(name)) for name in "abc"] == [True, True, False]
    assert await order(queue, 2) == ["a", "b"]
    statistics = queue.statistics()
    assert (statistics.admitted, statistics.refused_full, statistics.peak_waiting) == (2, 1, 2)


async def test_an_expired_request_comes_out_and_is_counted() -> None:
    clock = FakeClock()
    queue = DecisionQueue(2, clock)
    queue.put(request("a"))
    clock.advance(10.0)
    assert await order(queue, 1) == ["a"]
    assert queue.statistics().expired == 1


async def test_whoever_waits_gets_the_next_one() -> None:
    queue = DecisionQueue(2, FakeClock())
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.put(request("a"))
    async with asyncio.timeout(60):
        assert (await waiting).id == "a"
    assert queue.statistics().waiting == 0
