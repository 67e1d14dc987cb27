"""Solver workers: warm, replaceable, and never waited for past a deadline."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

import structlog

from gateway.core.clock import Clock, Deadline, SystemClock
from gateway.core.decision import CheckResult, Undetermined
from gateway.core.errors import GatewayError, WorkerLostError
from gateway.core.ports import CheckRequest, StateSet
from gateway.solver.predict import same_premises
from gateway.solver.ruleset import RuleSet
from gateway.solver.safeset import Proof
from gateway.solver.seat import Seat
from gateway.solver.wire import (
    Answer,
    Ask,
    Check,
    CheckAnother,
    Checked,
    Done,
    Drop,
    Failed,
    Load,
    Prepare,
    Prove,
    Proved,
    answers,
    encoder,
    given,
    result,
)
from gateway.supervision.worker import WorkerProcess

log = structlog.get_logger().bind(component="solver_pool")

MODULE = "gateway.solver.worker"
LOAD_TIMEOUT_S = 20.0
LATE_S = 1.0  # past its deadline; a worker looks at the clock itself
_PAUSES_S = (0.0, 0.2, 1.0, 5.0)  # before the 1st, 2nd, 3rd and every later replacement in a row


class PoolError(GatewayError):
    """Workers cannot take a rule set."""


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """Counters since start."""

    workers: int
    alive: int
    idle: int
    checks: int
    lost: int
    recycled: int
    undetermined_late: int
    generations: tuple[int, ...]


class CheckerPool:
    """A `gateway.core.ports.Checker` over killable processes.

    With two workers or more the loss of one costs the decision it held and nothing else: another is warm.
    """

    def __init__(
        self, workers: int = 2, clock: Clock | None = None, warm: Iterable[tuple[float, float]] = ()
    ) -> None:
        """`warm` lists the (hold, effect delay) pairs whose plans are built at load, before a check asks."""
        self._clock = clock if clock is not None else SystemClock()
        self._count = max(1, workers)
        self._warm = dict.fromkeys(warm)
        self._rule_sets: dict[int, RuleSet] = {}
        self._trials: dict[int, RuleSet] = {}  # by the generation they are judged beside
        self._seats: list[Seat] = []
        self._idle: list[Seat] = []
        self._watching: list[asyncio.Future[None]] = []  # those who wait for an idle seat
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._checks = self._lost = self._recycled = self._late = 0

    async def start(self) -> None:
        """Spawn the workers; they are idle when this returns."""
        for number in range(self._count):
            self._seats.append(Seat(number, self._worker(number)))
        await asyncio.gather(*(self._furnish(seat) for seat in self._seats))

    def pids(self) -> tuple[int, ...]:
        """Process ids of the living workers."""
        return tuple(s.worker.pid for s in self._seats if s.worker.pid is not None)

    def statistics(self) -> PoolStatistics:
        """Counters since start and who is there now."""
        return PoolStatistics(
            workers=len(self._seats),
            alive=sum(1 for s in self._seats if s.worker.alive),
            idle=len(self._idle),
            checks=self._checks,
            lost=self._lost,
            recycled=self._recycled,
            undetermined_late=self._late,
            generations=tuple(sorted(self._rule_sets)),
        )

    async def load(self, rule_set: RuleSet, trial: RuleSet | None = None) -> None:
        """Compile and warm a rule set in every worker beside the others; returns when all have it.

        `trial`: the same with the shadow modules, judged beside it without effect.

        Raises `PoolError` when a worker refuses it; then no worker keeps it.
        """
        self._rule_sets[rule_set.generation] = rule_set
        if trial is not None:
            self._trials[rule_set.generation] = trial
        found = await asyncio.gather(
            *(self._on(seat, rule_set.generation) for seat in tuple(self._seats)), return_exceptions=True
        )
        for problem in found:
            if isinstance(problem, PoolError):
                await self.drop(rule_set.generation)
                raise problem
            if isinstance(problem, BaseException):
                raise problem

    def sources(self, generation: int) -> tuple[str, ...] | None:
        """The module texts of a rule set that is still kept; None once it is forgotten."""
        rule_set = self._rule_sets.get(generation)
        return None if rule_set is None else tuple(module.text for module in rule_set.modules)

    async def drop(self, generation: int) -> None:
        """Forget a rule set everywhere."""
        self._rule_sets.pop(generation, None)
        self._trials.pop(generation, None)
        for seat in tuple(self._seats):
            async with self._taken(seat):
                with contextlib.suppress(WorkerLostError):  # its replacement never hears of it
                    await self._ask(seat, Drop(generation), LOAD_TIMEOUT_S)
                seat.loaded.discard(generation)

    async def prove(self, rule_set: RuleSet, budget_s: float = 60.0) -> Proof:
        """Prove a rule set's safe set invariant, in a process of its own; the set need not be in force.

        Raises `PoolError` or `WorkerLostError`.
        """
        prover = WorkerProcess(MODULE, name="solver-prover")
        await prover.start()
        try:
            seat = Seat(-1, prover)
            await self._give(seat, rule_set, warm=False)
            answer = await self._ask(seat, Prove(rule_set.generation, budget_s), budget_s + LOAD_TIMEOUT_S)
        finally:
            await prover.aclose()
        if isinstance(answer, Proved):
            return Proof(digest=answer.digest, escape=answer.escape)
        raise PoolError(answer.reason if isinstance(answer, Failed) else "the prover gave no proof")

    async def check(self, request: CheckRequest, deadline: Deadline) -> tuple[CheckResult, StateSet | None]:
        """The result, and the state to carry. A lost or late worker is `Undetermined`, never an exception."""
        self._checks += 1
        self._warm.setdefault((request.hold_s, request.effect_delay_s))
        if request.generation not in self._rule_sets:
            return self._undetermined(request, f"rule set {request.generation} is not loaded")
        seat = self._free_seat(request)
        if seat is None:
            try:
                async with asyncio.timeout(deadline.remaining(self._clock)):
                    seat = await self._until(lambda: self._free_seat(request))
            except TimeoutError:
                self._late += 1
                return self._undetermined(request, "no solver worker was free before the deadline")
        try:
            async with asyncio.timeout(deadline.remaining(self._clock)):
                answer = answers.decode(await self._posted(seat, request, deadline))
        except TimeoutError:
            self._late += 1
            return self._undetermined(request, "the check was not done by the deadline")
        except WorkerLostError as exc:
            log.warning("worker_lost", reason=str(exc), decision=request.decision)
            return self._undetermined(request, str(exc))
        finally:
            self._leave(seat, deadline)
        if isinstance(answer, Checked):
            return result(answer)
        reason = answer.reason if isinstance(answer, Failed) else "the worker answered something else"
        return self._undetermined(request, reason)

    def prepare(self, request: CheckRequest) -> None:
        """Have an idle worker get ready for a check on these premises. Never waits; nothing depends on it."""
        self._warm.setdefault((request.hold_s, request.effect_delay_s))
        able = [s for s in self._idle if s.worker.alive and request.generation in s.loaded]
        seat = next((s for s in reversed(able) if not s.kept), able[-1] if able else None)
        if seat is not None:
            seat.worker.tell(encoder.encode(Prepare(request)))
            seat.told, seat.kept = request, True

    async def aclose(self) -> None:
        """End every worker; none is left when this returns."""
        self._closed = True
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(seat.worker.aclose() for seat in self._seats))
        self._idle.clear()

    def _worker(self, number: int) -> WorkerProcess:
        return WorkerProcess(MODULE, name=f"solver-{number}")

    def _undetermined(self, request: CheckRequest, reason: str) -> tuple[CheckResult, None]:
        rules = self._rule_sets.get(request.generation)
        found = CheckResult(
            verdict=Undetermined(reason),
            findings=(),
            generation=request.generation,
            rule_set_digest=rules.digest if rules is not None else "",
        )
        return found, None

    def _posted(self, seat: Seat, request: CheckRequest, deadline: Deadline) -> asyncio.Future[bytes]:
        """The answer to come; only what is proposed is sent where the worker knows the premises."""
        ask: Ask
        if seat.told is not None and same_premises(seat.told, request):
            ask = CheckAnother(request.proposal, request.may_repair, deadline.at)
        else:
            ask = Check(request, deadline.at)
        seat.told, seat.kept = request, False
        return seat.worker.post(encoder.encode(ask))

    def _leave(self, seat: Seat, deadline: Deadline) -> None:
        """Let others have the seat; first its worker ends what nobody waits for any more.

        Only a worker that hangs is worth its replacement, so it has some time past the deadline.
        """
        if not seat.worker.busy or not seat.worker.alive:
            self._return(seat)
            return
        left_s = deadline.remaining(self._clock) + LATE_S
        self._spawn(self._returned_late(seat, left_s), f"late solver-{seat.number}")

    async def _returned_late(self, seat: Seat, left_s: float) -> None:
        await seat.worker.free(left_s)
        if not seat.worker.alive:
            log.warning("worker_lost", reason="it did not end a check that was late")
        self._return(seat)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, seat: Seat, ask: Ask, timeout_s: float) -> Answer:
        return answers.decode(await seat.worker.ask(encoder.encode(ask), timeout_s))

    def _free_seat(self, request: CheckRequest) -> Seat | None:
        """Take an idle seat whose worker has the generation; idle ones found dead are replaced.

        The one that was told the premises, else one that nobody had prepared; the one that worked last first,
        because its caches are warm.
        """
        for seat in [seat for seat in self._idle if not seat.worker.alive]:
            self._idle.remove(seat)
            self._lost += 1
            self._replace(seat)
        able = [seat for seat in reversed(self._idle) if request.generation in seat.loaded]
        if not able:
            return None
        told = (s for s in able if s.told is not None and same_premises(s.told, request))
        seat = next(told, None) or next((s for s in able if not s.kept), able[0])
        self._idle.remove(seat)
        return seat

    async def _until(self, found: Callable[[], Seat | None]) -> Seat:
        """What `found` finds once the idle seats have changed enough."""
        while (seat := found()) is None:
            change = asyncio.get_running_loop().create_future()
            self._watching.append(change)
            await change
        return seat

    def _free(self, seat: Seat) -> None:
        self._idle.append(seat)
        watching, self._watching = self._watching, []
        for change in watching:
            if not change.done():  # its waiter may have left
                change.set_result(None)

    @contextlib.asynccontextmanager
    async def _taken(self, seat: Seat) -> AsyncIterator[None]:
        """One certain seat, out of the others' reach for a while."""
        await self._until(lambda: seat if seat in self._idle else None)
        self._idle.remove(seat)
        seat.told, seat.kept = None, False
        try:
            yield
        finally:
            self._return(seat)

    def _return(self, seat: Seat) -> None:
        """Back to the idle ones; a dead or worn worker is replaced first, in the background."""
        seat.checks += 1
        if not seat.worker.alive and not self._closed:
            self._lost += 1
            self._replace(seat)
            return
        if seat.worn and not self._closed:
            self._recycled += 1
            self._replace(seat)
            return
        self._free(seat)

    def _replace(self, seat: Seat) -> None:
        self._spawn(self._replaced(seat), f"replace solver-{seat.number}")

    async def _replaced(self, seat: Seat) -> None:
        for attempt in range(1_000_000):
            await asyncio.sleep(_PAUSES_S[min(attempt, len(_PAUSES_S) - 1)])
            await seat.worker.aclose()
            seat.worker, seat.loaded, seat.checks = self._worker(seat.number), set(), 0
            seat.told, seat.kept = None, False
            try:
                await self._furnish(seat)
            except (WorkerLostError, PoolError, OSError) as exc:
                log.warning("worker_not_replaced", worker=seat.number, reason=str(exc))
                continue
            log.info("worker_replaced", worker=seat.number, pid=seat.worker.pid)
            return

    async def _furnish(self, seat: Seat) -> None:
        """Start a seat's worker, give it everything in force, and let it be used."""
        await seat.worker.start()
        await self._ask(seat, Drop(-1), LOAD_TIMEOUT_S)  # its first answer says that it is up
        while missing := self._rule_sets.keys() - seat.loaded:
            await self._give(seat, self._rule_sets[min(missing)], warm=True)
        self._free(seat)

    async def _on(self, seat: Seat, generation: int) -> None:
        """Make sure that a seat has a generation; a worker lost on the way is replaced, with all in force."""
        while generation in self._rule_sets and generation not in seat.loaded:
            async with self._taken(seat):
                rule_set = self._rule_sets.get(generation)
                if rule_set is None or generation in seat.loaded:
                    return
                with contextlib.suppress(WorkerLostError):  # the seat's next worker loads it
                    await self._give(seat, rule_set, warm=True)

    async def _give(self, seat: Seat, rule_set: RuleSet, *, warm: bool) -> None:
        trial = self._trials.get(rule_set.generation)
        ask = Load(
            generation=rule_set.generation,
            modules=given(rule_set),
            tags=tuple((rule_set if trial is None else trial).definitions.values()),
            warm=tuple(self._warm) if warm else (),
            trial=given(trial) if trial is not None else (),
        )
        answer = await self._ask(seat, ask, LOAD_TIMEOUT_S)
        if isinstance(answer, Done) and answer.digest == rule_set.digest:
            seat.loaded.add(rule_set.generation)
            return
        reason = answer.reason if isinstance(answer, Failed) else "its digest of the set differs"
        msg = f"solver worker {seat.number} refused rule set {rule_set.generation}: {reason}"
        raise PoolError(msg)
