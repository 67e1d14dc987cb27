from __future__ import annotations

import asyncio
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
import pytest_asyncio
from z3 import Z3Exception

from gateway.core.clock import Deadline
from gateway.core.decision import Permitted, Refused, Undetermined
from gateway.core.ports import CheckRequest
from gateway.core.tag import TagId
from gateway.solver.wire import (
    Answer,
    Ask,
    Check,
    Done,
    Drop,
    Failed,
    Load,
    Narrowed,
    UntellableError,
    answers,
    encoder,
    written,
)
from gateway.solver.workers import seat
from gateway.solver.workers.pool import CheckerPool
from gateway.solver.workers.seat import Kept
from gateway.solver.workers.worker import Desk, serve
from gateway.supervision.frames import FRAME_LIMIT_BYTES, receive, send
from gateway.supervision.worker import WorkerProcess
from tests.unit.solver_demo import Situation, good, proposal, rule_set
from tests.unit.solver_pools import CLOCK, PatientPool, soon, two_workers

EXTRA = TagId("TK1.COUNTER")


pool = pytest_asyncio.fixture(two_workers)


def nearly_full(value: float | str) -> CheckRequest:
    """A request near overflow, beside an input no module asks for that holds `value`."""
    request = Situation(level=3.59, inflow=30.0, pump="0", may_repair=False).request(proposal("0"))
    return replace(request, inputs={**request.inputs, EXTRA: replace(good(0.0), value=value)})


# The next check on these premises is told by its proposal alone: the worker must have been told the premises.
@pytest.mark.parametrize("value", [10**30, "\ud800", "x" * FRAME_LIMIT_BYTES], ids=["long", "broken", "huge"])
async def test_what_cannot_be_told_is_undetermined_and_no_proposal_is_judged_on_premises_told_before(
    value: float | str,
) -> None:
    one = PatientPool(1, CLOCK, warm=[(1.2, 0.3)])
    await one.start()
    try:
        await one.load(rule_set())
        harmless, _ = await one.check(Situation().request(proposal()), soon())
        assert isinstance(harmless.verdict, Permitted)
        for _ in range(2):
            result, _ = await one.check(nearly_full(value), soon())
            assert isinstance(result.verdict, Undetermined)
            assert (
                "cannot be told" in result.verdict.reason or "a solver worker takes" in result.verdict.reason
            )
        one.prepare(nearly_full(value))
        refused, _ = await one.check(nearly_full(0), soon())
        assert isinstance(refused.verdict, Refused)
        assert one.statistics().lost == 0
    finally:
        await one.aclose()


def test_what_no_worker_can_be_told_is_named() -> None:
    with pytest.raises(
        UntellableError, match="what is asked cannot be told to a solver worker: can't serialize"
    ):
        written(Check(nearly_full(10**30), 0.0))
    with pytest.raises(UntellableError, match="a solver worker takes"):
        written(Check(nearly_full("x" * FRAME_LIMIT_BYTES), 0.0))


async def test_no_worker_is_started_once_the_pool_is_closed_though_checks_are_asked_on() -> None:
    made = PatientPool(2, CLOCK, warm=[(1.2, 0.3)])
    await made.start()
    await made.load(rule_set())
    closed = asyncio.Event()
    reasons: list[str] = []

    async def decide() -> None:
        while not closed.is_set():
            result, _ = await made.check(Situation().request(proposal()), soon())
            if isinstance(result.verdict, Undetermined):
                reasons.append(result.verdict.reason)
            await asyncio.sleep(0)

    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(decide())
        await made.check(Situation().request(proposal()), soon())
        await made.aclose()
        closed.set()
    assert reasons
    assert made.pids() == ()
    assert made.statistics().idle == 0
    assert not made._tasks


async def test_whoever_waits_for_a_worker_hears_at_once_that_the_pool_is_closed(pool: CheckerPool) -> None:
    for process in pool._seats:
        await pool._bench.certain(process)
    waiting = asyncio.create_task(pool.check(Situation().request(proposal()), Deadline.after(60.0, CLOCK)))
    loading = asyncio.create_task(pool.load(rule_set(generation=2)))
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await pool.aclose()
        result, _ = await waiting
        with pytest.raises(Exception, match="are being ended"):
            await loading
    assert isinstance(result.verdict, Undetermined)
    assert "are being ended" in result.verdict.reason


# A worker at its bound fails fast, and the one that worked last is asked first: it would fail every decision.
@pytest.mark.parametrize("error", [MemoryError(), Z3Exception(b"out of memory")])
@pytest.mark.parametrize("load", [False, True])
def test_a_worker_that_runs_out_of_memory_ends_and_says_so_only_of_a_load(
    error: Exception, monkeypatch: pytest.MonkeyPatch, *, load: bool
) -> None:
    def answer(_: Desk, __: Ask) -> Answer | None:
        raise error

    monkeypatch.setattr(Desk, "answer", answer)
    ask: Ask = Check(Situation().request(proposal()), 0.0)
    if load:
        ask = Kept(rule_set()).ask(())
    ours, theirs = socket.socketpair()
    with ours:
        ours.settimeout(60)

        def serving() -> None:
            with theirs:
                serve(theirs)

        worker = Thread(target=serving, daemon=True)
        worker.start()
        send(ours, encoder.encode(ask))
        body = receive(ours)
        if load:
            assert body is not None
            assert "more memory than" in str(answers.decode(body))
            body = receive(ours)
        assert body is None
        worker.join(60)
        assert not worker.is_alive()


def test_an_answer_that_cannot_be_told_is_none_and_ends_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    said = iter([Narrowed("exactly", ((0, 2**70),)), Done("fine")])
    monkeypatch.setattr(Desk, "answer", lambda *_: next(said))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(30)
        worker = Thread(target=serve, args=(theirs,), daemon=True)
        worker.start()
        found = []
        for _ in range(2):
            send(ours, encoder.encode(Drop(1)))
            body = receive(ours)
            assert body is not None
            found.append(answers.decode(body))
        ours.shutdown(socket.SHUT_WR)
        worker.join(30)
    assert isinstance(found[0], Failed)
    assert "cannot be told" in found[0].reason
    assert found[1] == Done("fine")


def test_a_worker_whose_asker_is_gone_ends_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    ours, theirs = socket.socketpair()
    send(ours, encoder.encode(Load(1, (), (), ())))
    send(ours, encoder.encode(Drop(1)))
    ours.close()
    with theirs:
        serve(theirs)
    assert "Traceback" not in capfd.readouterr().err


# Kernels of ARM boards have pages of 16 KiB and more: seen as a fourth, no worker would be renewed.
def test_memory_is_counted_in_the_pages_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    real = os.sysconf
    monkeypatch.setattr(os, "sysconf", lambda name: 16_384 if name == "SC_PAGE_SIZE" else real(name))
    assert seat._rss_bytes(os.getpid()) == pytest.approx(pages * 16_384, rel=0.2)


async def test_a_renewal_that_failed_is_not_tried_again_with_every_check(
    pool: CheckerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seat, "RECYCLE_CHECKS", 1)
    born = 0
    made = pool._worker

    def born_dead(number: int) -> WorkerProcess:
        nonlocal born
        born += 1
        worker = made(number)
        begin = worker.start

        async def start() -> None:
            await begin()
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)

        worker.start = start  # type: ignore[method-assign]
        return worker

    monkeypatch.setattr(pool, "_worker", born_dead)
    async with asyncio.timeout(120):
        for _ in range(5):
            result, _ = await pool.check(Situation().request(proposal()), soon())
            assert isinstance(result.verdict, Permitted)
            while pool._renewing is not None:  # noqa: ASYNC110  what is awaited is a task of the pool's own
                await asyncio.sleep(0.005)
    assert born == 1
    assert pool.statistics().alive == 2
