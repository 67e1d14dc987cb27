"""What a request waits for on its way to the worker, and what the worker is told of the point's history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest

from gateway.core.clock import Deadline, FakeClock
from gateway.core.errors import InferenceError
from gateway.core.tagstore import Snapshot
from gateway.inference.bundle.manifest import load_bundle
from gateway.inference.client.asking import Asking
from gateway.inference.client.engine_worker import EngineWorker
from gateway.inference.client.point_state import PointState, request_of
from gateway.inference.messages import Answer, Failed, NeedHistory, Propose, Reply, encode
from tests.unit.inference_demo import BUFFER_TANK

ANSWER = Answer(
    raws=(1,),
    confidence=None,
    concentration=0.5,
    masked_out=(0.0,),
    clamped=0,
    reused_tokens=0,
    computed_tokens=0,
    engine_ms=1.0,
)
TEN_MS = SimpleNamespace(decision_ms=10.0)


@dataclass
class FakeWorker:
    """Takes requests; a test answers them."""

    number: int = 1
    report: SimpleNamespace = field(default_factory=lambda: TEN_MS)
    posted: list[tuple[Propose, asyncio.Future[bytes]]] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def in_flight(self) -> int:
        return sum(not reply.done() for _, reply in self.posted)

    def post(self, request: Propose) -> tuple[int, asyncio.Future[bytes]]:
        self.posted.append((request, asyncio.get_running_loop().create_future()))
        self.came.set()
        return len(self.posted), self.posted[-1][1]

    def cancel(self, number: int) -> None:
        self.cancelled.append(number)

    def guide(self, *_: object) -> None:
        pytest.fail("nobody asked for guidance")

    async def is_asked(self) -> None:
        """Return when a request has no answer."""
        async with asyncio.timeout(60):
            while not self.in_flight:
                self.came.clear()
                await self.came.wait()

    async def answers(self, reply: Reply) -> Propose:
        """The request it answers, once there is one."""
        await self.is_asked()
        request, answer = next(each for each in self.posted if not each[1].done())
        answer.set_result(encode(reply))
        return request


@dataclass
class Point:
    """One decision point, asked cycle after cycle."""

    clock: FakeClock
    asking: Asking
    state: PointState = field(default_factory=lambda: PointState(load_bundle(BUFFER_TANK)))
    cycle: int = 0

    async def ask(self, left_s: float = 60.0) -> Answer:
        at = float(self.cycle)
        step = self.state.place(at, Snapshot(at, {}), {}, ((str(self.cycle),), ("1",)))
        self.cycle += 1
        request = request_of("a", step, 1, aside=False)
        return await self.asking.answer(request, self.state, step, Deadline.after(left_s, self.clock), None)

    async def under_way(self, count: int) -> None:
        """Return when so many requests wait for their turn or have it."""
        async with asyncio.timeout(60):
            while self.state.in_turn < count:  # noqa: ASYNC110 - nobody tells when a task has begun
                await asyncio.sleep(0)


def made(worker: FakeWorker) -> Callable[[], Point]:
    clock = FakeClock()
    asking = Asking(cast("EngineWorker", worker), (), clock)
    return lambda: Point(clock, asking)


async def asked(point: Point, worker: FakeWorker, reply: Reply) -> Propose:
    task = asyncio.create_task(point.ask())
    request = await worker.answers(reply)
    if isinstance(reply, Answer):
        assert await task == reply
    else:
        with pytest.raises(InferenceError):
            await task
    return request


async def test_a_request_that_was_refused_costs_its_cycle_and_not_the_history() -> None:
    worker = FakeWorker()
    point = made(worker)()
    first = await asked(point, worker, ANSWER)
    with pytest.raises(InferenceError, match=r"9\.0 ms are left and an answer takes about 10\.0 ms"):
        await point.ask(left_s=0.009)
    refused = await asked(point, worker, Failed(problem="too late"))
    last = await asked(point, worker, ANSWER)

    assert first.history is not None
    assert (refused.history, [cycle.inputs for cycle in refused.missed]) == (None, [("0",), ("1",)])
    assert (last.history, [cycle.inputs for cycle in last.missed]) == (None, [("0",), ("1",), ("2",)])
    assert point.asking.histories == 1
    assert len(worker.posted) == 3


async def test_a_worker_that_holds_nothing_is_sent_the_history() -> None:
    worker = FakeWorker()
    point = made(worker)()
    await asked(point, worker, ANSWER)
    task = asyncio.create_task(point.ask())
    without = await worker.answers(NeedHistory())
    along = await worker.answers(ANSWER)
    await task

    assert without.history is None
    assert along.history is not None
    assert [cycle.inputs for cycle in along.history] == [(), ("0",)]


async def test_another_worker_is_sent_the_history() -> None:
    worker = FakeWorker()
    point = made(worker)()
    await asked(point, worker, ANSWER)
    worker.number = 2

    assert (await asked(point, worker, ANSWER)).history is not None


async def older_and_newer(cycles_between: int) -> tuple[Point, Propose]:
    """What is sent after cycles that nobody asked for, while an older request was still under way."""
    worker = FakeWorker()
    point = made(worker)()
    await asked(point, worker, ANSWER)
    older = asyncio.create_task(point.ask())
    await worker.is_asked()
    point.cycle += cycles_between
    newer = asyncio.create_task(point.ask())
    await point.under_way(2)
    await worker.answers(ANSWER)
    request = await worker.answers(ANSWER)
    await asyncio.gather(older, newer)
    return point, request


async def test_cycles_that_nobody_asked_for_are_filled_and_go_along_the_history_does_not() -> None:
    point, request = await older_and_newer(2)

    assert request.history is None
    assert [cycle.inputs for cycle in request.missed] == [("1",), ("1",), ("1",)]
    assert point.asking.histories == 1  # the first one's


async def test_after_a_gap_that_forgets_the_history_is_sent_although_an_older_one_was_answered() -> None:
    _, request = await older_and_newer(7)

    assert request.history is not None
    assert len(request.history) == 1


async def test_one_request_of_a_point_is_with_the_worker_and_a_few_wait() -> None:
    worker = FakeWorker()
    point = made(worker)()
    tasks = [asyncio.create_task(point.ask()) for _ in range(4)]
    await point.under_way(4)
    with pytest.raises(InferenceError, match="4 requests of this decision point are under way already"):
        await point.ask()
    assert worker.in_flight == 1

    for _ in tasks:
        await worker.answers(ANSWER)
    assert await asyncio.gather(*tasks) == [ANSWER] * 4
    await asked(point, worker, ANSWER)  # there is room again


async def test_beside_others_a_request_needs_the_time_that_answers_take_now() -> None:
    worker = FakeWorker()
    make = made(worker)
    one, other = make(), make()
    for point in (one, other):
        await asked(point, worker, ANSWER)
    one.asking._took_s = 20.0
    waiting = asyncio.create_task(one.ask())
    await worker.is_asked()

    with pytest.raises(InferenceError, match=r"29900\.0 ms are left and an answer takes about 30000\.0 ms"):
        await other.ask(left_s=29.9)
    await worker.answers(ANSWER)
    await waiting
    alone = asyncio.create_task(other.ask(left_s=29.9))  # alone it is always tried, and the mean learns of it
    await worker.answers(ANSWER)
    assert await alone == ANSWER
    assert one.asking._took_s < 20.0


async def test_a_worker_that_was_suspended_for_long_refuses_nobody_afterwards() -> None:
    """An answer after its deadline says that it came late, and not for how long the machine stood still."""
    worker, clock, seconds = FakeWorker(), FakeClock(), [100.0]
    asking = Asking(cast("EngineWorker", worker), (), clock, now=lambda: seconds[0])
    points = [Point(clock, asking) for _ in range(4)]
    for point in points:
        await asked(point, worker, ANSWER)
    late = [asyncio.create_task(point.ask(left_s=0.02)) for point in points]
    for task in late:
        with pytest.raises(InferenceError, match="no answer until the deadline"):
            await task
    seconds[0] += 1000.0
    for _ in points:
        await worker.answers(ANSWER)
    async with asyncio.timeout(60):
        while asking._ending:  # noqa: ASYNC110 - nobody tells when it has ended
            await asyncio.sleep(0)
    waiting = asyncio.create_task(points[0].ask())
    await worker.is_asked()
    beside = asyncio.create_task(points[1].ask(left_s=5.0))
    await points[1].under_way(1)
    await worker.answers(ANSWER)
    await worker.answers(ANSWER)

    assert [await waiting, await beside] == [ANSWER] * 2


async def test_idle_is_when_everybody_was_answered_or_left() -> None:
    worker = FakeWorker()
    point = made(worker)()
    task = asyncio.create_task(point.ask())
    await worker.is_asked()
    async with asyncio.timeout(60):
        idle = asyncio.create_task(point.asking.idle())
        task.cancel()
        await idle
    assert worker.cancelled == [1]
    await point.asking.aclose()
