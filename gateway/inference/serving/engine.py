"""Decisions from a bundle: keeps KV between cycles, runs what the scheduler plans, forward after forward."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from msgspec.structs import replace as replaced
from numpy.typing import NDArray

from gateway.core.errors import InferenceError
from gateway.inference.bundle.manifest import Bundle
from gateway.inference.bundle.tokenizer import Tokenizer
from gateway.inference.decoding.decode import OutputMask, OutputRange
from gateway.inference.decoding.guided import Awaited
from gateway.inference.kv.backend import PoolExhaustedError, PoolStatistics, ProviderTruth
from gateway.inference.kv.ort_session import Provider
from gateway.inference.messages import Answer, Failed, NeedHistory, Propose
from gateway.inference.serving.backends import make_backend
from gateway.inference.serving.costs import Costs, TooLateError
from gateway.inference.serving.job import PREFILL_CHUNK, Writer, chunks
from gateway.inference.serving.scheduler import Policy
from gateway.inference.serving.sessions import Session, Sessions
from gateway.inference.serving.under_way import ABANDONED, UnderWay
from gateway.inference.serving.work import Hold, Logits, Rows, Want

CANCELLED = "nobody waits for the answer any more"
FORGOTTEN = "its session was forgotten meanwhile: ask again with its history"


class Engine:
    """One model and its sessions, used from one thread.

    `submit`, `step` and `drain` for many requests, or `propose` for one at a time.
    """

    def __init__(
        self,
        bundle: Bundle,
        outputs: tuple[OutputRange, ...],
        *,
        provider: Provider = "cpu",
        pages: int = 256,
        cold_pages: int = 0,
        policy: Policy | None = None,
        uses: int = 2,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        manifest = bundle.manifest
        self.tokenizer = Tokenizer(manifest)
        masks = tuple(
            OutputMask(codec, limits, spec.decoding)
            for codec, limits, spec in zip(self.tokenizer.outputs, outputs, manifest.outputs, strict=True)
        )
        self.backend = make_backend(bundle, provider=provider, pages=pages, cold_pages=cold_pages)
        self._writer = Writer(bundle, self.tokenizer, masks, self.backend)
        self._policy, self._now = policy or Policy(), now
        self._jobs: dict[int, UnderWay] = {}
        self._sessions = Sessions(self.backend, uses, lambda: (job.name for job in self._jobs.values()))
        self._behind: dict[str, deque[tuple[int, Propose]]] = {}  # requests that have not begun
        self._at_work: set[str] = set()  # sessions with a request that has, and writes to them
        self._awaited: dict[int, Awaited] = {}  # guidance, by request
        self._finished: list[tuple[int, Answer | NeedHistory | Failed]] = []
        self._no_room = False  # for what is computed ahead, until the next request
        self._in_turn: int | None = None  # see `Policy.plan`
        self.costs: Costs | None = None  # admits nobody out of hand before it is known
        self.decisions = self.warmed = self.rebuilt = self.forwards = self.rows = 0

    @property
    def truth(self) -> ProviderTruth:
        """Where it runs."""
        return self.backend.truth

    @property
    def aliased(self) -> bool:
        """Whether keys and values are written in place."""
        return self.backend.aliased

    @property
    def widest(self) -> int:
        """Requests that one forward may hold."""
        return self._policy.widest

    def merges(self, widest: int) -> None:
        """From now on a forward holds so many requests at the most, and never more than the policy says."""
        self._policy = replace(self._policy, widest=max(1, min(widest, self._policy.widest)))

    def waits(self, window_s: float) -> None:
        """From now on requests wait so long for others to share their first forward."""
        self._policy = replace(self._policy, window_s=window_s)

    @property
    def busy(self) -> bool:
        """True while a step would run something or has something to tell."""
        held = [job for job in self._jobs.values() if job.holds]
        if self._finished or any(job.over for job in held):
            return True
        if len(held) < len(self._jobs):
            return self._company_until is None
        return not held and self._idle_work() is not None

    @property
    def held_until(self) -> float | None:
        """Until which monotonic second it has nothing to do unless it is told something; None: for ever."""
        held = [job.awaited.until for job in self._jobs.values() if job.holds and job.awaited is not None]
        company = self._company_until
        return min(held if company is None else [*held, company], default=None)

    @property
    def _company_until(self) -> float | None:
        if not self._policy.window_s:
            return None
        return self._policy.waits_until([job.waiting for job in self._jobs.values() if job.rows], self._now())

    @property
    def queued(self) -> int:
        """Requests that are not answered yet."""
        return len(self._jobs) + sum(map(len, self._behind.values()))

    def stand(self) -> None:
        """Compute what every request begins with; it stays for ever. Raises `InferenceError`."""
        self._writer.standing.compute(PREFILL_CHUNK)

    def propose(self, request: Propose) -> Answer | NeedHistory:
        """The model's register counts for a request, or `NeedHistory` when its last cycle is not held.

        For callers with one request at a time. Raises `InferenceError` where the request cannot be answered.
        """
        self.submit(0, request)
        while not self._finished:
            self.step()
        ((_, reply),) = self.drain()
        if isinstance(reply, Failed):
            raise InferenceError(reply.problem)
        return reply

    def submit(self, number: int, request: Propose) -> None:
        """Take a request in; its answer comes out of `drain` under `number`, now or after some steps."""
        self._no_room = False
        if request.guided_until is not None:
            self._awaited[number] = Awaited(request.guided_until)
        self._behind.setdefault(request.session, deque()).append((number, request))
        if request.session not in self._at_work:
            self._next(request.session)

    def guide(self, number: int, packed: bytes, because: str) -> None:
        """Guidance for a request, or why there is none; what is not waited for any more is dropped."""
        awaited = self._awaited.get(number)
        if awaited is not None:
            awaited.take(packed, because)

    def cancel(self, number: int) -> None:
        """Nobody waits for an answer any more: a what-if is dropped, what a session needs comes last.

        Each request is answered all the same, so that its number is free again.
        """
        for behind in self._behind.values():
            for at, (queued, request) in enumerate(behind):
                if queued == number:
                    self._awaited.pop(number, None)
                    if request.aside:
                        del behind[at]
                        self._finished.append((number, Failed(problem=CANCELLED)))
                    else:
                        behind[at] = number, replaced(request, urgency=ABANDONED, guided_until=None)
                    return
        job = self._jobs.get(number)
        if job is None:
            return
        if job.request.aside:
            self._fail(job, CANCELLED)
        else:
            job.abandon()

    def step(self) -> None:
        """Run one planned forward; where no request waits, one of those that will be needed later."""
        self._go_on()
        if self._company_until is not None:
            return
        ready = [job for job in self._jobs.values() if job.rows]
        numbers = self._policy.plan([job.waiting for job in ready], self._in_turn)
        if not numbers:
            if not self._jobs and not self._no_room:  # else it is computed when it is needed
                self._no_room = not self._writer.work_ahead(self._sessions.values())
            return
        planned = [self._jobs[number] for number in numbers]
        self._in_turn = self._policy.then_in_turn(planned[0].passed_over, self._in_turn)
        for job in ready:
            job.passed_over += 1
        try:
            planned, logits = self._run(planned)
        except PoolExhaustedError as exc:
            self._without_room(planned[0], exc)
            return
        except InferenceError as exc:
            for job in planned:
                self._fail(job, str(exc))
            return
        self.forwards += 1
        self.rows += len(logits)
        for job in planned:
            job.passed_over = 0
            if self.costs is not None:
                job.ran(self.costs.chunk_ms / 1e3, self.costs.seconds(0) / len(self.tokenizer.outputs))
            own, logits = logits[: len(job.rows)], logits[len(job.rows) :]
            self._advance(job, own if isinstance(job.want, Rows) else own[0])

    def drain(self) -> list[tuple[int, Answer | NeedHistory | Failed]]:
        """Replies that are ready, by the numbers of their requests."""
        finished, self._finished = self._finished, []
        return finished

    def release(self, name: str) -> None:
        """Forget a session; unknown names are fine. Its request under way fails."""
        at_work = [job for job in self._jobs.values() if job.name == name]
        if not at_work:
            self._sessions.release(name)
        for job in at_work:  # which lets go of it, and the next one of the session begin
            self._fail(job, FORGOTTEN)

    def first_logits(self, name: str) -> NDArray[np.float32]:
        """Logits of a session's first output in its newest answer."""
        logits = self._sessions[name].first_logits
        assert logits is not None, "a held session has answered once"  # noqa: S101 - an invariant
        return logits

    def pool_statistics(self) -> PoolStatistics:
        """The KV pool now."""
        return replace(self.backend.statistics(), standing=self._writer.standing.tokens)

    @property
    def sessions(self) -> int:
        """Sessions held now."""
        return len(self._sessions)

    @property
    def evicted(self) -> int:
        """Sessions forgotten for others' sake."""
        return self._sessions.evicted

    # --- a request's way

    def _go_on(self) -> None:
        """Let those decode whose guidance is there, or will not come in time."""
        for job in [job for job in self._jobs.values() if job.holds and job.over]:
            if job.awaited is not None:
                job.awaited.give_up()
            self._advance(job, job.logits)

    def _next(self, session: str) -> None:
        """Begin what stands first in a session's queue; what cannot begin is answered."""
        behind = self._behind.get(session, deque())
        while behind and session not in self._at_work:
            number, request = behind.popleft()
            held = self._sessions.get(session)
            if request.history is None and (held is None or not held.leads_to(request)):
                self._awaited.pop(number, None)
                self._finished.append((number, NeedHistory()))
                continue
            try:
                own_s = self._admitted(request, held)
                if request.history is None and held is not None:
                    self._sessions.restore(session)
                self._begin(number, request, None if request.history is not None else held, own_s)
            except (TooLateError, PoolExhaustedError) as exc:
                self._awaited.pop(number, None)
                self._finished.append((number, Failed(problem=str(exc))))
                continue
        if not behind:
            self._behind.pop(session, None)

    def _begin(self, number: int, request: Propose, held: Session | None, own_s: float) -> None:
        name = f"{request.session} aside {number}" if request.aside else request.session
        if held is None:
            self.release(name)
            session = Session(self.backend.open())
            self.rebuilt += 1
        elif request.aside:
            session = self._sessions.with_room(partial(held.fork, self.backend), request.session)
        else:
            session = held
        self._sessions.use(name, session)
        if not request.aside:  # which works on a copy, and holds nobody up
            self._at_work.add(request.session)
        awaited = self._awaited.get(number)
        work = self._writer.work(session, request, awaited)
        job = UnderWay(number, request, name, session, request.urgency, work, awaited)
        job.left_s, job.arrived = own_s, self._now()
        if self.costs is not None:
            listed_s = self.costs.listed(request.most - 1, len(self.tokenizer.outputs) - 1)
            job.left_s += listed_s
            job.decode_s = self.costs.seconds(0) + listed_s
        self._jobs[number] = job
        self._advance(job, None)

    def _admitted(self, request: Propose, held: Session | None) -> float:
        """Seconds a request will take; raises `TooLateError` where it cannot end in time.

        A session that has to be rebuilt is always let in: its answer may come too late for this decision,
        but the next one needs the pages it leaves.
        """
        if self.costs is None:
            return 0.0
        rebuilt = request.history is not None
        own_s = self.costs.seconds(chunks(self._writer.before(request, held)))
        if request.due is not None and (request.aside or not rebuilt):
            turn = request.urgency, own_s > self.costs.seconds(0), request.due
            ahead_s = self.costs.ahead([job.left_s for job in self._jobs.values() if job.turn <= turn])
            self.costs.admit(time.monotonic(), request.due, ahead_s, own_s)
        return own_s

    def _run(self, planned: list[UnderWay]) -> tuple[list[UnderWay], NDArray[np.float32]]:
        """One forward; where memory lacks, idle sessions are given back, then the leader goes alone.

        Of one job that has more rows than may share a forward, some after the others.
        """
        rows = [(want.cache, want.tokens) for job in planned for want in job.rows]
        widest = self._policy.widest
        try:
            parts = [
                self._sessions.with_room(partial(self.backend.forward, rows[at : at + widest]))
                for at in range(0, len(rows), widest)
            ]
        except PoolExhaustedError:
            if len(planned) == 1:
                raise
            return self._run(planned[:1])
        return planned, np.concatenate(parts)

    def _advance(self, job: UnderWay, logits: Logits | None) -> None:
        """Let a job make of the logits what it will; None begins it."""
        job.logits = logits
        self._go_on_with(job, lambda: next(job.work) if logits is None else job.work.send(logits))

    def _go_on_with(self, job: UnderWay, step: Callable[[], Want | Rows | Hold]) -> None:
        try:
            job.want = step()
        except StopIteration as stop:
            self.decisions += not job.request.warm
            self.warmed += job.request.warm
            self._finished.append((job.number, stop.value))
            self._leave(job, keep=not job.request.aside)
        except InferenceError as exc:
            self._fail(job, str(exc))

    def _without_room(self, job: UnderWay, exc: PoolExhaustedError) -> None:
        """The least urgent request fails that stands behind one without room and holds some; else that one.

        A list of answers that lacks room for more ends with what it has.
        """
        if isinstance(job.want, Rows):
            self._go_on_with(job, lambda: job.work.throw(exc))
            return
        behind = (other for other in self._jobs.values() if other.rank > job.rank and self._resident(other))
        self._fail(max(behind, key=lambda other: other.rank, default=job), str(exc))

    def _resident(self, job: UnderWay) -> bool:
        return any(map(self.backend.resident, job.session.caches))

    def _fail(self, job: UnderWay, problem: str) -> None:
        job.work.close()
        self._finished.append((job.number, Failed(problem=problem)))
        self._leave(job)  # half done: its next request brings the history

    def _leave(self, job: UnderWay, *, keep: bool = False) -> None:
        del self._jobs[job.number]
        self._awaited.pop(job.number, None)
        if not job.request.aside:
            self._at_work.discard(job.request.session)
        if not keep:
            self.release(job.name)
        self._next(job.request.session)

    def _idle_work(self) -> tuple[Session, Want] | None:
        return None if self._no_room else self._writer.first_idle(self._sessions.values())
