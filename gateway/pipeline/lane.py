"""The lane of one decision point: trigger, admission, queue, and one decision in flight at a time (S19)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction

import structlog

from gateway.core.clock import Clock, Deadline
from gateway.core.decision import (
    DecisionId,
    DecisionRecord,
    DecisionRequest,
    Mode,
    Permitted,
    Refused,
    Rejected,
    Repaired,
    RequestClass,
    Undetermined,
    WriteOutcome,
)
from gateway.core.errors import LinkError, StorageError
from gateway.core.tag import TagId
from gateway.pipeline.decide import Decider
from gateway.pipeline.point import Point
from gateway.pipeline.queue import DecisionQueue
from gateway.pipeline.writer import SetpointWriter

log = structlog.get_logger().bind(component="pipeline")


@dataclass(frozen=True, slots=True)
class Ordered:
    """What a requester may say of the decision it wants."""

    requested_by: str
    request_class: RequestClass | None = None
    deadline_s: float | None = None
    what_if: Mapping[TagId, Fraction] | None = None
    proposal: Mapping[TagId, Fraction] | None = None


@dataclass(slots=True)
class LaneCounters:
    """Counters since start, one a kind of ending."""

    decisions: int = 0
    permitted: int = 0
    repaired: int = 0
    refused: int = 0
    undetermined: int = 0
    rejected: int = 0
    writes_confirmed: int = 0
    writes_other: int = 0
    fallbacks: int = 0
    audit_failures: int = 0


Reporter = Callable[[Point, DecisionRecord, str], None]
Unrecorded = Callable[[Point, str], None]  # why no record could be kept
_ids = itertools.count(1)
_RUN = secrets.token_hex(3)


def new_decision_id() -> DecisionId:
    """An id that no other decision of any run has: run, then a rising number."""
    return DecisionId(f"d-{_RUN}-{next(_ids)}")


class Lane:
    """Serves one decision point. `run` never ends by itself."""

    def __init__(
        self,
        point: Point,
        decider: Decider,
        writer: SetpointWriter,
        *,
        clock: Clock,
        report: Reporter,
        unrecorded: Unrecorded = lambda _point, _why: None,
        capacity: int = 64,
    ) -> None:
        self.point = point
        self.counters = LaneCounters()
        self.last_beat = clock.monotonic()  # fed to the watchdog
        self._decider, self._writer, self._clock, self._report = decider, writer, clock, report
        self._unrecorded = unrecorded
        self._queue = DecisionQueue(capacity, clock)
        self._waiting: dict[DecisionId, asyncio.Future[DecisionRecord | Rejected]] = {}
        self._last_decided = float("-inf")
        self._again_at = float("-inf")
        self._wake = asyncio.Event()

    async def request(self, ordered: Ordered) -> DecisionRecord | Rejected:
        """Ask for a decision and wait for its durable record; `Rejected` is an answer, not an error."""
        if not self.point.settings.on_request:
            return self._rejected("the decision point decides on its period only: `on_request` is not set")
        return await self._submit(ordered)

    async def run(self) -> None:
        """Decide on period and on request until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._serve(), name=f"lane-{self.point.settings.id}")
            if self.point.settings.period_s is not None:
                tasks.create_task(
                    self._tick(self.point.settings.period_s), name=f"period-{self.point.settings.id}"
                )

    def due_now(self) -> None:
        """The next periodic decision does not wait for its period: something it rests on has changed."""
        self._last_decided = float("-inf")
        self._wake.set()

    def statistics(self) -> dict[str, int]:
        """Counters by name, queue included."""
        queue = self._queue.statistics()
        ours = {name: getattr(self.counters, name) for name in LaneCounters.__slots__}
        repairs = self.point.repairs
        ours |= {"held_back": repairs.held_back, "repair_reversals": repairs.reversals}
        if self.point.settings.guided:
            ours |= {
                f"guidance_{name}": count for name, count in asdict(self._decider.guided.statistics()).items()
            }
        if self.point.settings.n_best > 1:
            ours |= {f"n_best_{name}": count for name, count in asdict(self.point.lists).items()}
        return {**ours, "queue_waiting": queue.waiting, "queue_refused_full": queue.refused_full}

    async def _submit(self, ordered: Ordered) -> DecisionRecord | Rejected:
        settings, now = self.point.settings, self._clock.monotonic()
        if self.point.mode is Mode.OFF:
            return self._rejected("the decision point is off")
        if (beyond := _beyond_any_tag(ordered.what_if)) is not None:
            return self._rejected(f"it asks what if `{beyond}` had a value that no tag can have")
        deadline_s = min(ordered.deadline_s or settings.deadline_s, settings.deadline_s)
        request = DecisionRequest(
            id=new_decision_id(),
            point=settings.id,
            requested_by=ordered.requested_by,
            request_class=ordered.request_class or settings.request_class,
            deadline=Deadline(now + deadline_s),
            received_at=now,
            what_if=ordered.what_if,
            proposal=ordered.proposal,
        )
        future: asyncio.Future[DecisionRecord | Rejected] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = future
        if not self._queue.put(request):
            self._waiting.pop(request.id)
            return self._rejected("the queue is full")
        return await future

    def _again(self, now: float) -> None:
        """At once, at most once a period: the values in force moved under the decision.

        While the PLC's own fallback ramps an output, every read-back moves it; polls and periods of one phase
        would otherwise meet again and again.
        """
        if now - self._again_at >= (self.point.settings.period_s or 0.0):
            self._again_at = now
            self.due_now()

    async def _tick(self, period_s: float) -> None:
        """A decision a period after the last one, whoever asked for that."""
        while True:
            wait = self._last_decided + period_s - self._clock.monotonic()
            if wait > 0:
                self._wake.clear()
                with contextlib.suppress(TimeoutError):  # the period is over
                    async with asyncio.timeout(min(wait, period_s)):
                        await self._wake.wait()
                continue
            self._last_decided = self._clock.monotonic()
            if self.point.mode is not Mode.OFF:
                await self._submit(Ordered(requested_by="period"))

    async def _serve(self) -> None:
        while True:
            request = await self._queue.get()
            if request.what_if is None:
                self._last_decided = self._clock.monotonic()
            await self._one(request)
            self.last_beat = self._clock.monotonic()

    async def _one(self, request: DecisionRequest) -> None:
        point = self.point
        future = self._waiting.pop(request.id)
        try:
            decided = await self._decider.decide(point, request)
        except StorageError as exc:
            self.counters.audit_failures += 1
            self._unrecorded(point, str(exc))
            self._answer(
                future, self._rejected(f"the record could not be kept, so nothing was written: {exc}")
            )
            return
        except asyncio.CancelledError:
            self._answer(future, Rejected("the gateway is stopping"))
            raise
        record = decided.record
        self._count(record)
        if not record.what_if:
            point.last_decision = record.id
        self._answer(future, record)
        await asyncio.sleep(0)  # the requester first: its answer must not wait for everybody else's news
        self._report(point, record, "")
        started = self._clock.monotonic()
        try:
            outcome, why = await self._writer.carry_out(decided)
        except LinkError as exc:
            outcome, why = WriteOutcome.FAILED, str(exc)
        if outcome is not None:
            confirmed = outcome is WriteOutcome.CONFIRMED
            self.counters.writes_confirmed += confirmed
            self.counters.writes_other += not confirmed
            now = self._clock.monotonic()
            timings = {
                **record.timings_ms,
                "write": 1000 * (now - started),
                "whole": 1000 * (now - request.received_at),
            }
            record = replace(record, write_outcome=outcome, timings_ms=timings)
            self._report(point, record, why)
            if outcome is WriteOutcome.REFUSED and decided.work.previous != point.values_in_force():
                self._again(now)

    def _answer(
        self, future: asyncio.Future[DecisionRecord | Rejected], answer: DecisionRecord | Rejected
    ) -> None:
        if not future.done():  # the requester may have left
            future.set_result(answer)

    def _rejected(self, reason: str) -> Rejected:
        self.counters.rejected += 1
        return Rejected(reason)

    def _count(self, record: DecisionRecord) -> None:
        self.counters.decisions += 1
        self.counters.fallbacks += bool(record.written) and record.written_by != "verdict"
        match record.outcome:
            case Permitted():
                self.counters.permitted += 1
            case Repaired():
                self.counters.repaired += 1
            case Refused():
                self.counters.refused += 1
            case Undetermined():
                self.counters.undetermined += 1
            case Rejected():
                self.counters.rejected += 1


def _beyond_any_tag(what_if: Mapping[TagId, Fraction] | None) -> TagId | None:
    """A tag that somebody gives a value too great for any."""
    for tag, value in (what_if or {}).items():
        try:
            float(value)
        except OverflowError:
            return tag
    return None
