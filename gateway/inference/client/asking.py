"""One request's way to the worker and back: in its point's turn, where an answer can come in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from gateway.core.clock import Clock, Deadline
from gateway.core.errors import InferenceError
from gateway.core.ports import Guide
from gateway.core.tag import TagDefinition
from gateway.inference.client.cadence import Step
from gateway.inference.client.engine_worker import EngineWorker
from gateway.inference.client.guiding import Guiding
from gateway.inference.client.point_state import Held, PointState
from gateway.inference.messages import Answer, Failed, NeedHistory, Propose, decode_reply

_HUNG_S = 1.0  # nobody was answered for so long: killed and replaced
_MOST_IN_FLIGHT = 64
_MOST_IN_TURN = 4  # of one point, the one that is asked for included
_TOO_LATE = "the model gave no answer until the deadline"
_NEWEST = 1 / 16  # an answer's part in the mean
_HASTE = 1.5  # of the mean; an answer just too late was work all the same


class _Asked(NamedTuple):
    """A request that has left."""

    number: int
    reply: asyncio.Future[bytes]
    at: float  # monotonic s
    due: float
    held: Held  # with its answer
    before: Held | None


class Asking:
    """Asks one worker after another for a model's points, one request of a point at a time."""

    def __init__(
        self,
        worker: EngineWorker,
        outputs: Sequence[TagDefinition],
        clock: Clock,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now` is the machine's, which the worker reads too."""
        self._worker, self._outputs, self._clock, self._now = worker, outputs, clock, now
        self._took_s: float | None = None  # mean of the newest answers, from when their requests left
        self._asked = 0  # without an answer
        self._ending: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self.histories = 0  # sent

    async def aclose(self) -> None:
        """Wait for nobody any more."""
        for task in tuple(self._ending):
            task.cancel()
        if self._ending:
            await asyncio.wait(tuple(self._ending))

    async def idle(self) -> None:
        """Return when nobody waits for an answer any more."""
        await self._idle.wait()

    async def answer(
        self, request: Propose, state: PointState, step: Step, deadline: Deadline, guide: Guide | None
    ) -> Answer:
        """The worker's answer; raises `InferenceError`, or `WorkerLostError` for a dead one.

        Where no request of the point is before, the request leaves before this first waits.
        """
        if state.in_turn >= _MOST_IN_TURN:
            message = f"{_MOST_IN_TURN} requests of this decision point are under way already"
            raise InferenceError(message)
        with self._counted(state):
            try:
                async with asyncio.timeout(deadline.remaining(self._clock)):
                    await state.turn.acquire()
            except TimeoutError as exc:
                raise InferenceError(_TOO_LATE) from exc
            return await self._in_turn(request, state, step, deadline, guide)

    @contextmanager
    def _counted(self, state: PointState) -> Iterator[None]:
        self._asked += 1
        state.in_turn += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._asked -= 1
            state.in_turn -= 1
            if not self._asked:
                self._idle.set()

    async def _in_turn(
        self, request: Propose, state: PointState, step: Step, deadline: Deadline, guide: Guide | None
    ) -> Answer:
        """One answer; what the worker lacks of the history goes along."""
        asked: _Asked | None = None
        number, held = self._worker.number, state.held
        guiding = Guiding(guide, self._outputs, self._worker.guide)
        try:
            self._admit(state, deadline)
            due = (now := self._now()) + deadline.remaining(self._clock)
            request = msgspec.structs.replace(request, due=due, guided_until=guiding.until(now, due))
            missed = state.missed(number, step)
            state.held = None
            for _ in range(2):
                if missed is None:
                    self.histories += 1
                    request = msgspec.structs.replace(request, history=step.history)
                elif missed:
                    request = msgspec.structs.replace(request, missed=missed)
                left = self._worker.post(request)
                asked = _Asked(*left, self._now(), due, Held(number, step.cycle), held)
                guiding.belongs_to(asked.number)
                await asyncio.wait({asked.reply}, timeout=deadline.remaining(self._clock))
                if not asked.reply.done() or deadline.passed(self._clock):
                    raise InferenceError(_TOO_LATE)
                reply = decode_reply(asked.reply.result())
                if isinstance(reply, Answer):
                    return reply
                if not isinstance(reply, NeedHistory):
                    break
                missed = held = None
        finally:
            guiding.close()
            self._leave(asked, state)
        message = reply.problem if isinstance(reply, Failed) else f"unexpected answer {type(reply).__name__}"
        raise InferenceError(message)

    def _leave(self, asked: _Asked | None, state: PointState) -> None:
        """Let the point's next one have its turn; first the worker ends what nobody waits for any more."""
        if asked is None:
            state.turn.release()
        elif asked.reply.done():
            self._end(asked, state)
        else:
            self._worker.cancel(asked.number)
            ending = asyncio.create_task(self._ended(asked, state), name=f"late-{asked.number}")
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def _ended(self, asked: _Asked, state: PointState) -> None:
        """What a late answer leaves in the worker counts; only a worker that answers nobody is replaced."""
        try:
            while not asked.reply.done():
                await asyncio.wait({asked.reply}, timeout=_HUNG_S)
                if not asked.reply.done() and self._worker.silent_s() >= _HUNG_S:
                    self._worker.kill()
        finally:
            self._end(asked, state)

    def _end(self, asked: _Asked, state: PointState) -> None:
        """A worker that answered holds what it answered on, whether or not anybody waited for that.

        One that failed at it holds what it held before, or says that it does not.
        """
        state.turn.release()
        if not asked.reply.done() or asked.reply.cancelled() or asked.reply.exception() is not None:
            return
        match decode_reply(asked.reply.result()):
            case Answer():
                state.held = asked.held
                # of a late one no more than it had: that a machine stood still says nothing of the next
                took_s = min(self._now(), max(asked.at, asked.due)) - asked.at
                mean_s = took_s if self._took_s is None else self._took_s
                self._took_s = mean_s + _NEWEST * (took_s - mean_s)
            case Failed():
                state.held = asked.before
            case _:
                pass

    def _admit(self, state: PointState, deadline: Deadline) -> None:
        """Refuse what finds no place, or too little time; the worker is not disturbed.

        Time for itself alone, and beside others for what answers take now: a queue in which everybody leaves
        when it is almost too late would be answered, but nobody in time. A session that has to be rebuilt is
        always let in: its answer may come too late for this decision, but the next one needs the pages it
        leaves.
        """
        beside = self._worker.in_flight
        if beside >= _MOST_IN_FLIGHT:
            message = f"{_MOST_IN_FLIGHT} requests are with the model already"
            raise InferenceError(message)
        if self._worker.report is None or state.held_by != self._worker.number:
            return
        needed_s = self._worker.report.decision_ms / 1e3
        if beside and self._took_s is not None:
            needed_s = max(needed_s, _HASTE * self._took_s)
        remaining_s = deadline.remaining(self._clock)
        if remaining_s < needed_s:
            message = f"{remaining_s * 1e3:.1f} ms are left and an answer takes about {needed_s * 1e3:.1f} ms"
            raise InferenceError(message)
