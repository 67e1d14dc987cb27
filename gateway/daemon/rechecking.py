"""The second judge beside the running gateway: a share of armed decisions, judged again off the path (S7)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import NoReturn

import msgspec
import structlog

from gateway.core.decision import DecisionRecord, Examination, Mode, Permitted, Repaired, StateSet
from gateway.core.errors import WorkerLostError
from gateway.daemon.modes import Modes
from gateway.pipeline.point import Point
from gateway.recheck.evidence import box_of, recorded_of
from gateway.recheck.recorded import Recorded
from gateway.recheck.worker import Judge, Judgement, plain
from gateway.supervision.worker import WorkerProcess

log = structlog.get_logger().bind(component="recheck")

_MODULE = "gateway.recheck.worker"
_ANSWER_S = 120.0  # it has the lowest priority, and nobody waits
_WAITING = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RecheckStatistics:
    """Counters since start. `unread` decisions could not be judged; `dropped` ones came too fast."""

    picked: int
    judged: int
    differences: int
    unread: int
    dropped: int
    lost: int


@dataclass(frozen=True, slots=True)
class _Job:
    point: Point
    decision: str
    generation: int
    texts: tuple[str, ...]
    recorded: Recorded
    overridden: tuple[str, ...]


class Rechecking:
    """Picks decisions, has them judged by a process of low priority, and takes a difference to its end."""

    def __init__(
        self, share: Decimal, sources: Callable[[int], tuple[str, ...] | None], modes: Modes
    ) -> None:
        """`sources` gives the module texts of a rule set's generation, None once it is forgotten."""
        self._share, self._sources, self._modes = Fraction(share), sources, modes
        self._due = Fraction(0)
        self._jobs: deque[_Job] = deque()
        self._work = asyncio.Event()
        self._worker: WorkerProcess | None = None
        self._told: set[int] = set()
        self._picked = self._judged = self._differences = self._unread = self._dropped = self._lost = 0

    def look(self, point: Point, record: DecisionRecord) -> None:
        """Called once a decision, before its write; cheap, and never waits."""
        if record.mode is not Mode.ARMED or record.what_if or not record.written:
            return
        self._due += self._share
        if self._due < 1:
            return
        stands_on = _stands_on(record)
        generation = stands_on.request.generation if stands_on is not None else 0
        texts = self._sources(generation)
        if stands_on is None or texts is None:
            return  # the next one then: what is due stays due
        self._due -= 1
        self._picked += 1
        if len(self._jobs) >= _WAITING:
            self._dropped += 1
            return
        recorded = _recorded(record, stands_on, point.carried)
        overridden = tuple(override.name for override in stands_on.result.overrides)
        self._jobs.append(_Job(point, record.id, generation, texts, recorded, overridden))
        self._work.set()

    async def run(self) -> NoReturn:
        """Judges what was picked, one at a time; never ends by itself."""
        try:
            while True:
                await self._work.wait()
                self._work.clear()
                while self._jobs:
                    await self._judge(self._jobs.popleft())
        finally:
            await self._end()

    def statistics(self) -> RecheckStatistics:
        """Counters since start."""
        return RecheckStatistics(
            picked=self._picked,
            judged=self._judged,
            differences=self._differences,
            unread=self._unread,
            dropped=self._dropped,
            lost=self._lost,
        )

    async def _judge(self, job: _Job) -> None:
        try:
            found = await self._asked(job)
        except (WorkerLostError, OSError) as exc:
            self._lost += 1
            log.warning("recheck_lost", decision=job.decision, problem=str(exc))
            await self._end()
            return
        if found.unread:
            self._unread += 1
            log.warning("recheck_unread", decision=job.decision, problem=found.unread)
            return
        self._judged += 1
        if found.violated or found.left_out or found.unusable:
            await self._differs(job, found)

    async def _end(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.aclose(0.2)

    async def _asked(self, job: _Job) -> Judgement:
        if self._worker is None or not self._worker.alive:
            await self._end()
            self._told.clear()
            self._worker = WorkerProcess(_MODULE, name="recheck")
            await self._worker.start()
        texts = None if job.generation in self._told else list(job.texts)
        ask = Judge(
            generation=job.generation,
            recorded=plain(job.recorded),
            texts=texts,
            overridden=list(job.overridden),
        )
        answer = await self._worker.ask(msgspec.msgpack.encode(ask), _ANSWER_S)
        self._told.add(job.generation)
        return msgspec.msgpack.decode(answer, type=Judgement)

    async def _differs(self, job: _Job, found: Judgement) -> None:
        self._differences += 1
        wrong = [f"`{name}` can be violated" for name in found.violated]
        wrong += [f"the state set leaves out values of `{tag}`" for tag in found.left_out]
        wrong += [f"nothing may be permitted where {why}" for why in found.unusable]
        why = f"the independent checker differs on decision {job.decision}, which was permitted: "
        why += "; ".join(wrong)
        log.critical(
            "checkers_differ",
            point=job.point.settings.id,
            decision=job.decision,
            generation=job.generation,
            violated=found.violated,
            left_out=found.left_out,
            unusable=found.unusable,
        )
        await self._modes.latch(job.point, why)


def _stands_on(record: DecisionRecord) -> Examination | None:
    """The check that what was let out stands on; None for a recovery, which nobody calls permitted (S9)."""
    if record.written_by == "verdict":
        return record.examined
    fallback = record.fallback
    if fallback is None or not isinstance(fallback.result.verdict, Permitted | Repaired):
        return None
    return fallback


def _recorded(record: DecisionRecord, stands_on: Examination, kept: StateSet | None) -> Recorded:
    """What the independent checker is told: the record's own premises, nothing the solver concluded."""
    request = stands_on.request
    return recorded_of(
        request,
        {v.tag: v.value for v in record.written},
        as_backup=record.written_by == "backup",
        kept=box_of(kept) if kept is not None and kept.at == request.taken_at else None,
    )
