"""The assumption monitor beside the running gateway: trips, what they lead to, what is seen (S16)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn, Protocol

import structlog

from gateway.core.decision import CheckRequest, DecisionRecord, Mode, PointId, StateSet
from gateway.core.errors import StorageError, WorkerLostError
from gateway.core.health import PartHealth
from gateway.core.residual import Residual, broken
from gateway.core.restraint import UNRESTRAINED
from gateway.core.tag import TagDefinition, TagId
from gateway.daemon.modes import Modes
from gateway.pipeline.point import Point
from gateway.solver.monitor.residual_worker import MODULE, Watched, answered, asked
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.wire import UntellableError
from gateway.supervision.worker import WorkerProcess

log = structlog.get_logger().bind(component="assumptions")

_ANSWER_S = 30.0  # it has low priority, and nobody waits
_WAITING = 16
_PAUSE_S = 1.0  # before a process that was lost is started again
_STALE_S = 60.0  # of a tag that has no new reading


class Events(Protocol):
    """Where an event is made durable."""

    async def append_event(self, kind: str, who: str, details: Mapping[str, str]) -> None:
        """Durable when this returns; raises `StorageError`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumptionStatistics:
    """Counters since start: decisions judged, measurements compared, those outside, trips that latched.

    `shadow_trips` are measurements that tripped while the point could not write: they lead to nothing but a
    refusal to arm (S28). `restarts`: windows began anew. `unread` decisions could not be judged; `dropped`
    ones came too fast; `lost` processes were replaced.
    """

    judged: int
    measured: int
    outside: int
    trips: int
    shadow_trips: int
    restarts: int
    unread: int
    dropped: int
    lost: int


@dataclass(slots=True)
class _Counters:
    judged: int = 0
    measured: int = 0
    outside: int = 0
    trips: int = 0
    shadow_trips: int = 0
    restarts: int = 0
    unread: int = 0
    dropped: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class _Job:
    point: Point
    request: CheckRequest
    kept: StateSet | None
    unbroken_since: float


@dataclass(slots=True)
class _Watching:
    """What is remembered of one point."""

    point: Point
    newest: dict[tuple[TagId, int], tuple[float, Residual]] = field(default_factory=dict)
    latched: bool = False
    acknowledged_at: float = float("-inf")

    def take(self, at: float, answer: Watched) -> None:
        """The newest of each tag and window; what was told before the windows began anew is gone."""
        if answer.begun:
            self.newest.clear()
        self.newest |= {(r.tag, r.window): (at, r) for r in answer.residuals}
        self.newest = {k: told for k, told in self.newest.items() if at - told[0] < _STALE_S}
        self.point.residuals = tuple(self.newest[key][1] for key in sorted(self.newest))

    def forget(self) -> None:
        """Nothing is known any more."""
        self.newest.clear()
        self.point.residuals = ()


class Assumptions:
    """Has every decision's measurements judged by a process of low priority, and takes a trip to its end."""

    def __init__(
        self,
        rules: Callable[[int], RuleSet | None],
        definitions: Mapping[TagId, TagDefinition],
        modes: Modes,
        audit: Events,
    ) -> None:
        """`rules` gives the rule set of a generation, None once it is forgotten."""
        self._rules, self._modes, self._audit = rules, modes, audit
        self._units = {tag: definition.unit for tag, definition in definitions.items()}
        self._jobs: deque[_Job] = deque()
        self._work = asyncio.Event()
        self._worker: WorkerProcess | None = None
        self._told: set[int] = set()
        self._watching: dict[PointId, _Watching] = {}
        self._count = _Counters()
        self._problem = ""

    def look(self, point: Point, record: DecisionRecord) -> None:
        """Called once a decision; cheap, and never waits. What nobody could examine has nothing to say."""
        seen = record.examined or record.fallback  # without a proposal the fallback is all that was examined
        if record.what_if or seen is None:
            return
        if len(self._jobs) >= _WAITING:
            self._jobs.popleft()
            self._count.dropped += 1
        request, kept = seen.request, point.carried
        watching = self._watching.setdefault(point.settings.id, _Watching(point))
        latched = bool(self._modes.latched(point))
        if watching.latched and not latched:  # a person knows of it: only what comes from now on counts
            watching.acknowledged_at = request.taken_at
        watching.latched = latched
        since = max(watching.acknowledged_at, *(h.in_sight_since for h in point.histories.values()))
        fresh = kept if kept is not None and kept.at == request.taken_at else None
        bare = replace(request, proposal=None, carried=None, restraint=UNRESTRAINED)
        self._jobs.append(_Job(point, bare, fresh, since))
        self._work.set()

    async def run(self) -> NoReturn:
        """Judges measurements, oldest first; never ends by itself."""
        try:
            await self._first()
            while True:
                await self._work.wait()
                self._work.clear()
                while self._jobs:
                    await self._one(self._jobs.popleft())
        finally:
            if self._worker is not None:
                await self._worker.aclose(0.2)

    def statistics(self) -> AssumptionStatistics:
        """Counters since start."""
        return AssumptionStatistics(**{name: getattr(self._count, name) for name in _Counters.__slots__})

    def health(self) -> PartHealth:
        """Whether measurements are watched: an armed point without that is not as safe as it says."""
        return PartHealth("assumption monitor", not self._problem, self._problem or "ok")

    async def _one(self, job: _Job) -> None:
        try:
            found = await self._asked(job)
        except UntellableError as exc:
            found = Watched(problem=str(exc))
        except (WorkerLostError, OSError) as exc:
            await self._lose(str(exc))
            await asyncio.sleep(_PAUSE_S)
            return
        if found is None:
            return
        self._problem = f"measurements cannot be judged: {found.problem}" if found.problem else ""
        if found.problem:
            self._count.unread += 1
            log.warning("measurements_not_judged", decision=job.request.decision, problem=found.problem)
            return
        self._count.restarts += found.begun
        self._count.measured += len(found.residuals)
        self._count.outside += sum(1 for residual in found.residuals if residual.outside > 0)
        self._watching[job.point.settings.id].take(job.request.taken_at, found)
        if why := broken(found.residuals, self._units):
            await self._tripped(job, why)
        self._count.judged += 1

    async def _first(self) -> None:
        """The process is there before anything is armed: starting one may hold the loop for a moment."""
        try:
            await self._alive()
        except (WorkerLostError, OSError) as exc:
            await self._lose(str(exc))

    async def _alive(self) -> WorkerProcess:
        if self._worker is not None and not self._worker.alive:
            await self._lose("it died")
        if self._worker is None:
            self._told.clear()
            self._worker = WorkerProcess(MODULE, name="assumptions")
            await self._worker.start()
        return self._worker

    async def _asked(self, job: _Job) -> Watched | None:
        generation, worker = job.request.generation, await self._alive()
        rules = None
        if generation not in self._told:
            rules = self._rules(generation)
            if rules is None or not rules.modules:
                return None  # it is out of force already, or states nothing of the plant
        body = asked(job.request, job.kept, job.unbroken_since, rules)
        answer = answered(await worker.ask(body, _ANSWER_S))
        if answer.problem:
            self._told.discard(generation)  # told again with the next decision
        else:
            self._told.add(generation)
        return answer

    async def _lose(self, problem: str) -> None:
        worker, self._worker = self._worker, None
        self._count.lost += 1
        self._problem = f"its process was lost: {problem}"
        for watching in self._watching.values():
            watching.forget()
        log.warning("assumption_monitor_lost", problem=problem, then="its windows begin anew")
        if worker is not None:
            await worker.aclose(0.2)

    async def _tripped(self, job: _Job, why: str) -> None:
        point = job.point
        if point.mode in (Mode.OFF, Mode.SHADOW):
            self._count.shadow_trips += 1
            log.info("assumption_broken_in_shadow", point=point.settings.id, why=why)
            return
        watching = self._watching[point.settings.id]
        if self._modes.latched(point) or watching.latched:
            return  # it stands already, or was acknowledged after this measurement
        if job.request.taken_at < watching.acknowledged_at:
            return
        self._count.trips += 1
        log.error("assumption_broken", point=point.settings.id, decision=job.request.decision, why=why)
        watching.latched = True
        try:
            await self._modes.latch(point, why)
            await self._audit.append_event(
                "assumption",
                "gateway",
                {"point": point.settings.id, "decision": job.request.decision, "why": why},
            )
        except StorageError as exc:
            log.exception("assumption_not_recorded", problem=str(exc))
