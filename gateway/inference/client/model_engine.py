"""The model as the pipeline sees it: a `Proposer` whose engine lives in a supervised worker process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path

import msgspec

from gateway.core.clock import Clock, Deadline, SystemClock
from gateway.core.decision import Proposal
from gateway.core.errors import InferenceError
from gateway.core.ports import Guide
from gateway.core.tag import TagDefinition, TagId
from gateway.core.tagstore import Snapshot
from gateway.inference.bundle.any_bundle import check_any_tags, load_any
from gateway.inference.client.asking import Asking
from gateway.inference.client.cadence import Step
from gateway.inference.client.counters import EngineStatistics, shown_costs, shown_facts, shown_memory
from gateway.inference.client.engine_worker import EngineWorker
from gateway.inference.client.guiding import proposal_of
from gateway.inference.client.past import Moment
from gateway.inference.client.place import Place
from gateway.inference.client.point_proposer import PointProposer
from gateway.inference.client.point_state import Held, PointState, request_of
from gateway.inference.client.values import in_force_text, input_text, limits_of
from gateway.inference.messages import (
    Answer,
    Propose,
    Statistics,
)


class ModelEngine:
    """Proposes setpoints with the model of `bundle_dir`. A lost worker is replaced at once.

    The replacement is sent the history it needs, so its answers are those the lost worker would have given.
    """

    def __init__(
        self,
        bundle_dir: Path,
        definitions: Mapping[TagId, TagDefinition],
        provider: str = "auto",
        *,
        require_cuda: bool = False,
        clock: Clock | None = None,
        slowest_ms: float | None = None,
        points: int = 1,
        max_wait_s: float = 0.0,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        """`on_lost` hears of each worker that was lost, and of each that could not replace one.

        On CUDA a request waits up to `max_wait_s` for others to share its first forward.

        So many decision `points` find their memory kept between two of their requests; more take turns.
        """
        self.bundle = load_any(bundle_dir)
        check_any_tags(self.bundle, definitions)
        manifest = self.bundle.manifest
        self._inputs = tuple(TagId(spec.tag) for spec in manifest.inputs)
        self._outputs = tuple(definitions[TagId(spec.tag)] for spec in manifest.outputs)
        self._by = f"{manifest.id}/{manifest.revision}"
        self._clock = clock if clock is not None else SystemClock()
        self._worker = EngineWorker(
            self.bundle,
            tuple(map(limits_of, self._outputs, self.bundle.max_changes)),
            provider=provider,
            require_cuda=require_cuda,
            slowest_ms=slowest_ms,
            warm=self._to_warm,
            warmed=self._warmed,
            points=points,
            max_wait_s=max_wait_s,
            on_lost=on_lost,
        )
        self._warming: dict[str, Step] = {}
        self._asking = Asking(self._worker, self._outputs, self._clock)
        self._points: dict[str, PointState] = {}
        self._answer: Answer | None = None
        self._counted: tuple[int, Statistics | None] = 0, None  # by which worker
        self._proposals = self._failed = self._clamped = 0

    @property
    def pid(self) -> int | None:
        """The worker's process id while it lives."""
        return self._worker.pid

    @property
    def ready(self) -> bool:
        """True while a worker can be asked."""
        return self._worker.up

    @property
    def place(self) -> Place | None:
        """Where the newest worker runs; None before there was one."""
        return self._worker.place

    async def start(self, *, gives_way: bool = False) -> None:
        """Return when the first worker is ready; raises `InferenceError` when the bundle cannot be served."""
        await self._worker.start(gives_way=gives_way)

    async def serve(self) -> None:
        """Return when a worker that was to give way does so no more; raises `WorkerLostError`."""
        await self._worker.serve()

    async def aclose(self) -> None:
        """End requests and worker; bounded by a second."""
        await self._asking.aclose()
        await self._worker.aclose()

    async def wait_ready(self, timeout_s: float) -> None:
        """Return when a worker can be asked; raises `TimeoutError`."""
        await self._worker.wait_up(timeout_s)

    async def propose(
        self, snapshot: Snapshot, previous: Mapping[TagId, Fraction], deadline: Deadline
    ) -> Proposal:
        """Setpoints for the one decision point of this engine; see `propose_for`."""
        return await self.propose_for("", snapshot, previous, deadline)

    async def propose_for(
        self,
        point: str,
        snapshot: Snapshot,
        previous: Mapping[TagId, Fraction],
        deadline: Deadline,
        guide: Guide | None = None,
        most: int = 1,
        *,
        urgency: int = 1,
    ) -> Proposal:
        """Setpoints in register values; each `point` has its own history.

        Raises `InferenceError` when an input has no number or time is up, `WorkerLostError` for a dead one.
        """
        state = self._state(point)
        step = state.place(snapshot.taken_at, snapshot, previous, self._texts(snapshot, previous))
        state.urgency = urgency
        request = request_of(point, step, urgency, aside=False, most=most)
        return await self._proposed(request, state, step, deadline, guide)

    async def propose_aside(
        self,
        point: str,
        snapshot: Snapshot,
        previous: Mapping[TagId, Fraction],
        deadline: Deadline,
        guide: Guide | None = None,
        most: int = 1,
        *,
        urgency: int = 1,
    ) -> Proposal:
        """Like `propose_for`, for inputs that are not the plant's own (what-if): history stays as it is."""
        state = self._state(point)
        step = state.cadence.copy().place(snapshot.taken_at, *self._texts(snapshot, previous))
        request = request_of(point, step, urgency, aside=True, most=most)
        return await self._proposed(request, state.beside(self.bundle, step), step, deadline, guide)

    def _state(self, point: str) -> PointState:
        if point not in self._points:
            self._points[point] = PointState(self.bundle)
        return self._points[point]

    def _texts(
        self, snapshot: Snapshot, previous: Mapping[TagId, Fraction]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        inputs = tuple(input_text(snapshot, tag) for tag in self._inputs)
        return inputs, tuple(in_force_text(previous, definition.id) for definition in self._outputs)

    async def _proposed(
        self, request: Propose, state: PointState, step: Step, deadline: Deadline, guide: Guide | None
    ) -> Proposal:
        try:
            answer = self._answer = await self._asking.answer(request, state, step, deadline, guide)
        except BaseException:  # also where the requester leaves
            self._failed += 1
            raise
        self._proposals += 1
        self._clamped += answer.clamped
        return proposal_of(answer, self._outputs, self._by, self.bundle.digest, guide)

    def for_point(self, point: str, urgency: int = 1) -> PointProposer:
        """The proposer of one decision point of that class: 0, 1 or 2, first to last."""
        return PointProposer(
            partial(self.propose_for, point, urgency=urgency),
            partial(self.propose_aside, point, urgency=urgency),
        )

    def pasts(self) -> dict[str, tuple[tuple[Moment, ...], int]]:
        """What every point's history rests on, and the point's class; for an engine that takes over."""
        return {name: (state.past.moments, state.urgency) for name, state in self._points.items()}

    def adopt(self, pasts: Mapping[str, tuple[Sequence[Moment], int]]) -> Iterator[None]:
        """Go on from histories made elsewhere, as if each moment had been a request here; a few a step.

        Moments in which one of this bundle's inputs has no number are passed over.
        """
        for point, (moments, urgency) in pasts.items():
            state = self._state(point)
            state.urgency = urgency
            before = state.cadence.under_way
            for moment in state.past.unknown(moments):
                with contextlib.suppress(InferenceError):  # such a request would have left no trace
                    texts = self._texts(moment.snapshot, moment.previous)
                    state.place(moment.at, moment.snapshot, moment.previous, texts)
                yield
            if state.cadence.under_way != before:
                state.held = None

    async def warm(self) -> int:
        """Let the worker compute the histories it lacks; how many it lacks then. Bounded in number and time.

        Raises `WorkerLostError` where there is no worker.
        """
        wanted = self._to_warm(lacking_only=True)
        if wanted:
            self._warmed(await self._worker.warm(wanted))
        return len(self._steps(lacking_only=True))

    def catch_up(self) -> None:
        """Send what was measured since a history was made ready ahead of its point's next request.

        Only within the cycle that the worker holds; where the point is further, its next request brings all.
        """
        for name, step in self._steps(lacking_only=True).items():
            state = self._points[name]
            if state.ready_cycle == step.cycle:
                request = request_of(name, step, state.urgency, aside=False)
                self._worker.post(msgspec.structs.replace(request, warm=True))
                state.held = Held(self._worker.number, step.cycle)

    async def drained(self, timeout_s: float) -> None:
        """Return when nobody waits for an answer any more, or time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._asking.idle()

    def _to_warm(self, *, lacking_only: bool = False) -> list[Propose]:
        """What a new worker should hold: every point's history, the urgent points' first."""
        self._warming = self._steps(lacking_only=lacking_only)
        return [
            msgspec.structs.replace(request_of(name, step, 3, aside=False), history=step.history, warm=True)
            for name, step in self._warming.items()
        ]

    def _steps(self, *, lacking_only: bool) -> dict[str, Step]:
        ranked = sorted(self._points.items(), key=lambda item: item[1].urgency)
        return {
            name: step
            for name, state in ranked
            if (step := state.cadence.under_way) is not None
            and not (lacking_only and state.held_by == self._worker.number)
        }

    def _warmed(self, sessions: frozenset[str]) -> None:
        """A worker holds these; unless a request has moved a point on, it need not bring its history."""
        for name in sessions:
            state, step = self._points[name], self._warming.get(name)
            state.ready_cycle = step.cycle if step is not None else None
            if step is not None and state.cadence.under_way == step:
                state.held = Held(self._worker.number, step.cycle)

    def describe(self) -> dict[str, str]:
        """The truth about the engine, for status and records."""
        return {
            "bundle": self._by,
            "digest": self.bundle.digest,
            **self.bundle.facts,
            "ep_requested": self._worker.provider,
            "ep_actual": "",
            "state": "ready" if self.ready else self._worker.problem,
            **shown_facts(self._worker.report),
        }

    def costs_ms(self) -> dict[str, float]:
        """Milliseconds of work as the worker measured them; see `shown_costs`."""
        return shown_costs(self._worker.report)

    async def refresh(self) -> EngineStatistics:
        """`statistics()` with the worker's own counters fetched now."""
        number, counted = self._worker.number, await self._worker.counted(1.0)
        if counted is not None:
            self._counted = number, counted
        return self._statistics(counted)

    @property
    def idle(self) -> bool:
        """True while the worker is up and nobody waits for an answer of it."""
        return self.ready and not self._worker.in_flight

    def memory(self) -> dict[str, float]:
        """What the worker in service counted at the last `refresh`; see `shown_memory`."""
        number, counted = self._counted
        return shown_memory(counted) if counted is not None and number == self._worker.number else {}

    def statistics(self) -> EngineStatistics:
        """A frozen report, without asking the worker."""
        return self._statistics(None)

    def _statistics(self, worker: Statistics | None) -> EngineStatistics:
        answer = self._answer
        return EngineStatistics(
            proposals=self._proposals,
            failed=self._failed,
            lost=self._worker.lost,
            histories_sent=self._asking.histories,
            clamped=self._clamped,
            masked_out=max(answer.masked_out, default=0.0) if answer is not None else 0.0,
            engine_ms=answer.engine_ms if answer is not None else 0.0,
            reused_tokens=answer.reused_tokens if answer is not None else 0,
            computed_tokens=answer.computed_tokens if answer is not None else 0,
            worker=worker,
        )
