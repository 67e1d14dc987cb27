"""One model of the configuration, and the bundles that serve it one after another.

A new bundle gets a worker of its own beside the one that serves. It takes over between two decisions, when it
has passed its self-test and holds every point's history; requests under way end where they began.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from gateway.core.errors import InferenceError, WorkerLostError
from gateway.core.ports import Propose, Proposer
from gateway.inference.bundle.any_bundle import AnyBundle
from gateway.inference.client.counters import EngineStatistics
from gateway.inference.client.model_engine import ModelEngine
from gateway.inference.client.past import Moment

log = structlog.get_logger().bind(component="inference")

_WARM_ROUNDS = 3  # meanwhile the points go on; whoever still lacks something brings it with its first request
_DRAIN_S = 10.0  # longer than any deadline

MakeEngine = Callable[[Path, Callable[[], None]], ModelEngine]  # folder, and who hears of lost workers


@dataclass(frozen=True, slots=True)
class SwapStatistics:
    """Counters since start."""

    swaps: int
    swaps_failed: int
    draining: int  # replaced engines that are not ended yet


@dataclass(frozen=True, slots=True)
class ServedPoint:
    """A `Proposer` of one decision point: whichever engine serves when it is asked."""

    served: ServedModel
    point: str
    urgency: int

    @property
    def propose(self) -> Propose:
        """See `ModelEngine.propose_for`."""
        return self.served.engine.for_point(self.point, self.urgency).propose

    @property
    def propose_aside(self) -> Propose:
        """See `ModelEngine.propose_aside`."""
        return self.served.engine.for_point(self.point, self.urgency).propose_aside


class ServedModel:
    """The engine in service, its successor while that gets ready, and those that drain."""

    def __init__(self, name: str, folders: Sequence[Path], make: MakeEngine) -> None:
        """Serves the first of `folders` that can be; raises the last one's `InferenceError` where none can.

        `on_lost` hears of each worker of the engine in service that was lost.
        """
        self.name, self._make = name, make
        self.on_lost: Callable[[], None] | None = None
        self.passed_over: list[str] = []  # why a folder before the one that serves does not
        self._left = list(folders)
        self._serving: object = None  # whose losses count
        self.engine = self._next_that_loads()
        self._swapping = asyncio.Lock()
        self._draining: dict[asyncio.Task[None], asyncio.Event] = {}
        self._retiring: list[ModelEngine] = []
        self._earlier: EngineStatistics | None = None
        self._swaps = self._failed = 0

    @property
    def bundle(self) -> AnyBundle:
        """The bundle in service."""
        return self.engine.bundle

    @property
    def ready(self) -> bool:
        """True while the engine in service can be asked."""
        return self.engine.ready

    @property
    def swapping(self) -> bool:
        """True while a successor gets ready."""
        return self._swapping.locked()

    def recall(self, pasts: Mapping[str, tuple[Sequence[Moment], int]]) -> None:
        """Histories from before the start; points that were asked meanwhile keep their own."""
        known = self.engine.pasts()
        for _ in self.engine.adopt({point: past for point, past in pasts.items() if point not in known}):
            pass

    async def start(self) -> None:
        """Return when the first engine is ready; raises `InferenceError` when no folder can be served."""
        while True:
            try:
                await self.engine.start()
            except InferenceError as exc:
                if not self._left:
                    raise
                self._pass_over(self.engine.bundle.directory, exc)
                pasts, self.engine = self.engine.pasts(), self._next_that_loads()
                self.recall(pasts)
            else:
                return

    async def warm(self) -> None:
        """Let the worker compute what it lacks of the histories: those that came when it was all but ready.

        Bounded in number and time.
        """
        with contextlib.suppress(WorkerLostError):  # the one that replaces it is warmed as it gets ready
            await self.engine.warm()

    async def aclose(self) -> None:
        """End every worker; bounded by a few seconds."""
        for hurry in self._draining.values():
            hurry.set()
        if self._draining:
            await asyncio.wait(tuple(self._draining))
        await self.engine.aclose()

    async def take(self, folder: Path, agreed: Callable[[ModelEngine], Awaitable[None]]) -> None:
        """Let the bundle of `folder` take over; where that fails, the one in service stays.

        `agreed` is awaited when the successor is ready; what it raises ends the attempt. Raises
        `InferenceError` with what is wrong with the bundle or its worker. One successor at a time.
        """
        async with self._swapping:
            fresh: ModelEngine | None = None
            try:
                fresh = await asyncio.to_thread(self._make, folder, partial(self._lost, mark := object()))
                await fresh.start(gives_way=True)
                await self._warm(fresh, _WARM_ROUNDS)
                await fresh.serve()
                await self._warm(fresh, 1)  # points that went on to their next cycle meanwhile
                await agreed(fresh)
                self._refuse_lost(fresh)
            except BaseException as exc:
                self._failed += 1
                log.warning("model_swap_failed", model=self.name, bundle=folder.name, problem=str(exc))
                if fresh is not None:
                    await fresh.aclose()
                if isinstance(exc, WorkerLostError):
                    raise InferenceError(str(exc)) from exc
                raise
            self._take_over(fresh, mark)

    def _take_over(self, fresh: ModelEngine, mark: object) -> None:
        """One reference changes, with no decision in between."""
        for _ in fresh.adopt(self.engine.pasts()):  # a few at most: what was asked while `agreed` was awaited
            pass
        fresh.catch_up()
        old, self.engine, self._serving = self.engine, fresh, mark
        self._swaps += 1
        self._retiring.append(old)
        hurry = asyncio.Event()
        retiring = asyncio.create_task(self._retired(old, hurry), name=f"retire-{self.name}")
        self._draining[retiring] = hurry
        retiring.add_done_callback(self._draining.pop)
        log.info("model_swapped", model=self.name, bundle=fresh.bundle.directory.name, pid=fresh.pid)

    def for_point(self, point: str, urgency: int = 1) -> Proposer:
        """The proposer of one decision point of that class: 0, 1 or 2, first to last."""
        return ServedPoint(self, point, urgency)

    def describe(self) -> dict[str, str]:
        """The truth about the engine in service, for status and records."""
        told = self.engine.describe() | {"folder": self.bundle.directory.name, "swaps": str(self._swaps)}
        if self.passed_over:
            told["passed_over"] = "; ".join(self.passed_over)
        return told

    def statistics(self) -> EngineStatistics:
        """Counters since start, over all engines."""
        found = self.engine.statistics()
        for old in self._retiring:  # they still answer what was asked of them
            found = found.after(old.statistics())
        return found if self._earlier is None else found.after(self._earlier)

    def swap_statistics(self) -> SwapStatistics:
        """Counters of swaps since start."""
        return SwapStatistics(self._swaps, self._failed, len(self._draining))

    async def _warm(self, fresh: ModelEngine, rounds: int) -> None:
        for _ in range(rounds):
            self._refuse_lost(fresh)
            for _ in fresh.adopt(self.engine.pasts()):
                await asyncio.sleep(0)  # decisions go on meanwhile
            if not await fresh.warm():
                return

    def _refuse_lost(self, fresh: ModelEngine) -> None:
        if not fresh.ready:
            message = f"the worker of `{fresh.bundle.directory.name}` was lost before it took over"
            raise InferenceError(message)

    def _lost(self, whose: object) -> None:
        if self.on_lost is not None and whose is self._serving:
            self.on_lost()

    def _next_that_loads(self) -> ModelEngine:
        while True:
            folder = self._left.pop(0)
            try:
                return self._make(folder, partial(self._lost, None))
            except InferenceError as exc:
                if not self._left:
                    raise
                self._pass_over(folder, exc)

    def _pass_over(self, folder: Path, exc: InferenceError) -> None:
        self.passed_over.append(f"`{folder.name}` cannot be served: {exc}")
        log.error("bundle_passed_over", model=self.name, bundle=folder.name, problem=str(exc))

    async def _retired(self, old: ModelEngine, hurry: asyncio.Event) -> None:
        """Requests under way end first, then the worker; then nothing refers to the engine any more."""
        async with asyncio.TaskGroup() as waiting:
            drained = waiting.create_task(old.drained(_DRAIN_S), name="drained")
            hurried = waiting.create_task(hurry.wait(), name="hurried")
            await asyncio.wait({drained, hurried}, return_when=asyncio.FIRST_COMPLETED)
            drained.cancel()
            hurried.cancel()
        await old.aclose()
        counted = old.statistics()
        self._earlier = counted if self._earlier is None else counted.after(self._earlier)
        self._retiring.remove(old)
