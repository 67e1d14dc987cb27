"""Solver workers: warm, replaceable, and never waited for past a deadline."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any

import structlog

from gateway.core.clock import Clock, Deadline, SystemClock
from gateway.core.decision import CheckResult
from gateway.core.errors import WorkerLostError
from gateway.core.guidance import PackedGuidance, Refusals, Unguided
from gateway.core.ports import CheckRequest, StateSet
from gateway.core.tag import TagId
from gateway.solver.checking.predict import same_premises
from gateway.solver.decoding.permitted_next import NotKnown, PermittedNext
from gateway.solver.proofs.safeset import Proof
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.wire import (
    Answer,
    Ask,
    Check,
    CheckAnother,
    Checked,
    Drop,
    Failed,
    Guide,
    GuideAnother,
    Narrowed,
    Next,
    NextAnother,
    Prepare,
    UntellableError,
    answers,
    guided,
    permitted_next,
    result,
    why_not,
    written,
)
from gateway.solver.workers.bench import Bench
from gateway.solver.workers.prover import proved
from gateway.solver.workers.seat import MODULE, Kept, PoolError, PoolStatistics, Seat, undetermined
from gateway.supervision.precedence import Precedence
from gateway.supervision.worker import WorkerProcess

log = structlog.get_logger().bind(component="solver_pool")

_LOAD_TRIES = 2
CHECKER_BYTES = 1 << 30  # of private memory: a worker over it fails, and is replaced where it ends
LATE_S = 1.0  # past its deadline; a worker looks at the clock itself
_LATE = "the check was not done by"
_RENEWAL_PAUSE_S = 60.0  # after a worn worker could not be renewed: it goes on meanwhile
_PAUSES_S = (0.0, 0.2, 1.0, 5.0)  # before the 1st, 2nd, 3rd and every later replacement in a row


class CheckerPool:
    """A `gateway.core.ports.Checker` over killable processes.

    With two workers or more the loss of one costs the decision it held and nothing else: another is warm.
    """

    def __init__(
        self,
        workers: int = 2,
        clock: Clock | None = None,
        warm: Iterable[tuple[float, float]] = (),
        memory_bytes: int = CHECKER_BYTES,
        *,
        guided: bool = False,
        nearest: bool = False,
    ) -> None:
        """`warm` lists the (hold, effect delay) pairs whose plans are built at load, before a check asks.

        `guided`: it will be asked what may come next, too; `nearest`: for repairs off the way as well.
        """
        self._arguments = ("--memory-bytes", str(memory_bytes), *["--guided"] * guided)
        self._arguments += ("--nearest",) * nearest
        self._clock = clock if clock is not None else SystemClock()
        self._count = max(1, workers)
        self._warm = dict.fromkeys(warm)
        self._sets: dict[int, Kept] = {}  # what a new worker is given; none that a worker has not survived
        self._seats: list[Seat] = []
        self._bench = Bench()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._renewing: Seat | None = None
        self._no_renewal_before = float("-inf")
        self._closed = False
        self._precedence = Precedence()
        self._checks = self._lost = self._recycled = self._late = 0

    async def start(self) -> None:
        """Spawn the workers; they are idle when this returns."""
        self._precedence.begin()
        if not self._precedence.possible:
            log.info("builds_do_not_give_way", because="the account has no `LimitNICE=+0`")
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
            idle=len(self._bench),
            checks=self._checks,
            lost=self._lost,
            recycled=self._recycled,
            undetermined_late=self._late,
            generations=tuple(sorted(self._sets)),
        )

    async def load(self, rule_set: RuleSet, trial: RuleSet | None = None) -> None:
        """Compile and warm a rule set in every worker beside the others; returns when all have it.

        `trial`: the same with the shadow modules, judged beside it without effect.

        Raises `PoolError` when a worker refuses it; then no worker keeps it.
        """
        generation, kept = rule_set.generation, Kept(rule_set, trial)
        try:
            if not self._sets:
                await asyncio.gather(*(self._on(seat, kept) for seat in tuple(self._seats)))
            for seat in tuple(self._seats):  # one after the other: the others serve meanwhile
                await self._on(seat, kept)
            self._sets[generation] = kept
            for seat in tuple(self._seats):  # a worker replaced meanwhile
                await self._on(seat, kept)
        except PoolError:
            await self.drop(generation)
            raise

    def rules(self, generation: int) -> RuleSet | None:
        """A rule set that is still kept; None once it is forgotten."""
        kept = self._sets.get(generation)
        return None if kept is None else kept.rules

    async def drop(self, generation: int) -> None:
        """Forget a rule set everywhere."""
        self._sets.pop(generation, None)
        for seat in tuple(self._seats):
            with contextlib.suppress(WorkerLostError):  # its replacement never hears of it
                async with self._taken(seat):
                    seat.loaded.discard(generation)
                    await seat.ask(Drop(generation))

    async def prove(self, rule_set: RuleSet, budget_s: float = 60.0) -> Proof:
        """Prove a rule set's safe set invariant, in a process of its own; the set need not be in force.

        Raises `PoolError` or `WorkerLostError`.
        """
        return await proved(rule_set, budget_s, self._precedence)

    async def check(self, request: CheckRequest, deadline: Deadline) -> tuple[CheckResult, StateSet | None]:
        """The result, and the state to carry. A lost or late worker is `Undetermined`, never an exception."""
        self._checks += 1
        another = CheckAnother(request.proposal, request.may_repair, deadline.at)
        answer = await self._answered(request, deadline, Check(request, deadline.at), another)
        if isinstance(answer, Checked):
            return result(answer)
        return undetermined(request, self._sets.get(request.generation), why_not(answer)), None

    async def permitted_next(
        self, request: CheckRequest, order: tuple[TagId, ...], fixed: tuple[int, ...], deadline: Deadline
    ) -> PermittedNext:
        """What may come after `fixed` in `order`; a lost or late worker knows nothing, and raises nothing."""
        ask, another = Next(request, order, fixed), NextAnother(order, fixed)
        answer = await self._answered(request, deadline, ask, another)
        return permitted_next(answer) if isinstance(answer, Narrowed) else NotKnown(why_not(answer))

    async def guidance(
        self, request: CheckRequest, order: tuple[TagId, ...], refused: Refusals, deadline: Deadline
    ) -> PackedGuidance | Unguided:
        """See `gateway.core.ports.Checker`."""
        ask, another = Guide(request, order, refused), GuideAnother(order, refused)
        return guided(await self._answered(request, deadline, ask, another))

    async def _answered(self, request: CheckRequest, deadline: Deadline, ask: Ask, another: Ask) -> Answer:
        """What a worker says; `another` is asked of one that was told the premises."""
        self._precedence.decides()
        self._warm.setdefault((request.hold_s, request.effect_delay_s))
        if self._closed:
            return Failed("the solver workers are being ended")
        if request.generation not in self._sets:
            return Failed(f"rule set {request.generation} is not loaded")
        seat: Seat | None = None
        try:
            async with asyncio.timeout(deadline.remaining(self._clock)):
                seat = await self._bench.until(lambda: self._free_seat(request))
                known = seat.told is not None and same_premises(seat.told, request)
                said = written(another if known else ask)  # before anything counts as told
                seat.told, seat.kept = request, seat.kept and isinstance(another, NextAnother | GuideAnother)
                return answers.decode(await seat.worker.post(said))
        except UntellableError as exc:
            log.error("request_not_told", reason=str(exc), decision=request.decision)  # noqa: TRY400  handled
            return Failed(str(exc))
        except TimeoutError:
            self._late += isinstance(another, CheckAnother)
            return Failed(f"{'no solver worker was free before' if seat is None else _LATE} the deadline")
        except WorkerLostError as exc:
            log.warning("worker_lost", reason=str(exc), decision=request.decision)
            return Failed(str(exc))
        finally:
            self._precedence.decides()
            if seat is not None:
                self._leave(seat, deadline)

    def prepare(self, request: CheckRequest, order: tuple[TagId, ...] = ()) -> None:
        """Have an idle worker get ready for a check on these premises. Never waits; nothing depends on it."""
        self._precedence.decides()
        self._warm.setdefault((request.hold_s, request.effect_delay_s))
        seat = self._bench.to_prepare(request.generation)
        if seat is not None:
            with contextlib.suppress(UntellableError):  # the check finds that again, and tells it
                seat.worker.tell(written(Prepare(request, order)))
                seat.told, seat.kept = request, True

    async def aclose(self) -> None:
        """End every worker; none is left when this returns."""
        self._closed = True
        self._bench.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(seat.worker.aclose() for seat in self._seats))

    def _worker(self, number: int) -> WorkerProcess:
        return WorkerProcess(MODULE, self._arguments, name=f"solver-{number}")

    def _leave(self, seat: Seat, deadline: Deadline) -> None:
        """Let others have the seat; first its worker ends what nobody waits for any more.

        Only a worker that hangs is worth its replacement, so it has some time past the deadline.
        """
        if self._closed or not seat.worker.busy or not seat.worker.alive:
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

    def _free_seat(self, request: CheckRequest) -> Seat | None:
        """Take an idle seat whose worker has the generation; idle ones found dead are replaced."""
        for seat in self._bench.dead():
            self._lost += 1
            self._replace(seat)
        return self._bench.take(request)

    @contextlib.asynccontextmanager
    async def _taken(self, seat: Seat) -> AsyncIterator[None]:
        """One certain seat, out of the others' reach for a while."""
        await self._bench.certain(seat)
        try:
            yield
        finally:
            self._return(seat)

    def _return(self, seat: Seat) -> None:
        """Back to the idle ones; a dead worker is replaced first, a worn one when another is warm."""
        seat.checks += 1
        if self._closed:
            return
        if not seat.worker.alive:
            self._lost += 1
            self._replace(seat)
            return
        if self._renewing is None and seat.worn and self._clock.monotonic() >= self._no_renewal_before:
            self._renewing = seat
            self._spawn(self._renewed(seat), f"renew solver-{seat.number}")
        self._bench.put(seat)

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

    async def _renewed(self, seat: Seat) -> None:
        """Put a warm worker in the place of a worn one: never one seat fewer, one seat at a time."""
        fresh = Seat(seat.number, self._worker(seat.number))
        worn = fresh.worker  # what is closed in the end, whatever happens
        try:
            await self._up(fresh)
            while True:
                while missing := self._sets.keys() - fresh.loaded:
                    await self._give(fresh, self._sets[min(missing)])
                async with self._taken(seat):
                    if self._sets.keys() - fresh.loaded:
                        continue  # another generation came meanwhile
                    worn, seat.worker = seat.worker, fresh.worker
                    seat.loaded, seat.checks = fresh.loaded, 0
                    for gone in seat.loaded - self._sets.keys():
                        await seat.ask(Drop(gone))
                    seat.loaded &= self._sets.keys()
                    break
            self._recycled += 1
            log.info("worker_recycled", worker=seat.number, pid=seat.worker.pid)
        except (WorkerLostError, PoolError, OSError) as exc:
            self._no_renewal_before = self._clock.monotonic() + _RENEWAL_PAUSE_S
            log.warning("worker_not_recycled", worker=seat.number, reason=str(exc))
        finally:
            self._renewing = None
            await worn.aclose()

    async def _furnish(self, seat: Seat) -> None:
        """Start a seat's worker, give it everything in force, and let it be used."""
        await self._up(seat)
        while missing := self._sets.keys() - seat.loaded:
            await self._give(seat, self._sets[min(missing)])
        self._bench.put(seat)

    async def _up(self, seat: Seat) -> None:
        """Start a seat's worker. Its first answer says that it is up, and Z3's timer with it (see `Desk`)."""
        await seat.worker.start()
        await seat.ask(Drop(-1))

    async def _on(self, seat: Seat, kept: Kept) -> None:
        """Make sure that a seat has a set; one that ends a worker twice is refused, for the others' sake."""
        lost = ""
        for _ in range(_LOAD_TRIES):
            try:
                async with self._taken(seat):
                    if kept.rules.generation not in seat.loaded:
                        await self._give(seat, kept)
                    return
            except WorkerLostError as exc:
                lost = str(exc)
        raise PoolError(f"rule set {kept.rules.generation} cannot be loaded: {lost}")

    async def _give(self, seat: Seat, kept: Kept) -> None:
        """Have a worker build a set; another one that decides meanwhile goes first."""
        with self._precedence.builds(seat.worker):
            await seat.give(kept, self._warm)
