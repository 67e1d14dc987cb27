from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gateway.core.errors import WorkerLostError
from gateway.supervision.frames import FrameError, Frames, frame
from gateway.supervision.worker import WorkerProcess


@pytest_asyncio.fixture
async def worker() -> AsyncIterator[WorkerProcess]:
    made = WorkerProcess("tests.fakes.echo_worker", name="echo")
    await made.start()
    yield made
    await made.aclose(0.2)
    assert made.pid is None


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1_000])
def test_frames_come_out_whole_and_in_order_however_the_stream_is_cut(size: int) -> None:
    bodies = [b"", b"one", b"x" * 300, b"", b"last"]
    stream = b"".join(map(frame, bodies))
    frames = Frames()

    found = [body for at in range(0, len(stream), size) for body in frames.fed(stream[at : at + size])]

    assert found == bodies


def test_a_length_that_nobody_sends_is_refused() -> None:
    with pytest.raises(FrameError, match="over the limit"):
        Frames().fed(b"\xff\xff\xff\xff")


async def test_each_request_gets_its_own_answer(worker: WorkerProcess) -> None:
    assert [await worker.ask(body, 60.0) for body in (b"a", b"b" * 200_000, b"")] == [
        b"a",
        b"b" * 200_000,
        b"",
    ]


async def test_what_has_no_answer_is_sent_and_not_waited_for(worker: WorkerProcess) -> None:
    worker.tell(b"quiet")

    assert not worker.busy
    assert await worker.ask(b"after it", 60.0) == b"after it"


# An answer that came too late for its own request must never be taken for that of the next one.
async def test_the_answer_nobody_waits_for_any_more_is_dropped(worker: WorkerProcess) -> None:
    late = worker.post(b"late")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await late
    with pytest.raises(WorkerLostError, match="busy"):
        worker.post(b"too soon")

    worker._wire.send(b"let it go on")
    await worker.free(60.0)

    assert await worker.ask(b"next", 60.0) == b"next"


async def test_a_request_that_is_never_answered_ends_the_worker(worker: WorkerProcess) -> None:
    with pytest.raises(WorkerLostError, match="no answer within 50 ms"):
        await worker.ask(b"quiet", 0.05)
    assert not worker.alive

    assert await worker.wait() < 0


async def test_a_worker_still_held_when_its_patience_ends_is_killed(worker: WorkerProcess) -> None:
    held = worker.post(b"late")

    await worker.free(0.05)

    with pytest.raises(WorkerLostError):
        await held
    assert not worker.alive


async def test_a_worker_that_dies_fails_the_request_it_held(worker: WorkerProcess) -> None:
    with pytest.raises(WorkerLostError, match="died while it held a request"):
        await worker.ask(b"die", 60.0)
    with pytest.raises(WorkerLostError, match="not running"):
        await worker.ask(b"again", 60.0)


async def test_a_worker_that_answers_what_nobody_asked_is_lost(worker: WorkerProcess) -> None:
    assert await worker.ask(b"twice", 60.0) == b"twice"

    assert await asyncio.wait_for(worker.wait(), 60.0) is not None
    assert not worker.alive


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="scheduling classes are Linux's")
async def test_a_worker_does_not_take_the_core_of_whoever_wakes_it(worker: WorkerProcess) -> None:
    assert worker.pid is not None

    assert os.sched_getscheduler(worker.pid) == os.SCHED_BATCH
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


async def test_a_close_that_is_cancelled_still_reaps_the_child() -> None:
    made = WorkerProcess("tests.fakes.echo_worker", name="echo")
    await made.start()
    assert made.pid is not None
    os.kill(made.pid, signal.SIGSTOP)  # it does not see the end of its stream
    closing = asyncio.create_task(made.aclose(60.0))
    await asyncio.sleep(0)
    for _ in range(2):
        closing.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert made._process is not None
    assert made._process.returncode == -signal.SIGKILL
