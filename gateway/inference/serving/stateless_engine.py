"""Decisions from a model without a cache: rows of history in, one forward, an answer.

A session is the rows its next answer will read. It moves on when a request is taken in, whatever becomes of
the answer: what was measured does not depend on what the model made of it.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gateway.core.errors import InferenceError
from gateway.inference.bundle.stateless import StatelessBundle
from gateway.inference.decoding.confidence import concentration, looked_up
from gateway.inference.decoding.decode import Option, OutputRange
from gateway.inference.decoding.guided import Awaited
from gateway.inference.decoding.nbest import MOST_PROPOSALS, Line, grown
from gateway.inference.decoding.stateless_decode import OutputReader
from gateway.inference.kv.backend import PoolStatistics, ProviderTruth
from gateway.inference.kv.ort_session import Provider
from gateway.inference.messages import Answer, Cycle, Failed, NeedHistory, Other, Propose
from gateway.inference.serving.costs import Costs
from gateway.inference.serving.engine import CANCELLED
from gateway.inference.serving.numbers import exact_numbers
from gateway.inference.serving.scheduler import Policy
from gateway.inference.serving.stateless_job import StatelessJob
from gateway.inference.serving.stateless_model import StatelessModel

_MOST_SESSIONS = 1024  # the one that was used longest ago is forgotten: its next request brings the history

_Row = NDArray[np.float64]  # [tags]: what is measured, then what was in force at that moment


@dataclass(slots=True)
class _Session:
    """INVARIANT: `rows` are finished cycles before `cycle`, oldest first; `open` becomes the next of them."""

    cycle: int
    in_force: tuple[str, ...]  # when the cycle began
    rows: deque[_Row]
    open: _Row = field(default_factory=lambda: np.empty(0))


class StatelessEngine:
    """One model and its sessions, used from one thread; see `ServingEngine`."""

    def __init__(
        self,
        bundle: StatelessBundle,
        outputs: tuple[OutputRange, ...],
        *,
        provider: Provider = "cpu",
        policy: Policy | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        manifest = bundle.manifest
        self.model = StatelessModel(bundle, provider)
        self._bundle = bundle
        self.readers = tuple(
            OutputReader(spec, limits) for spec, limits in zip(manifest.outputs, outputs, strict=True)
        )
        trained = [spec.trained for spec in (*manifest.inputs, *manifest.outputs)]
        self._least = np.array([float(Fraction(low)) for low, _ in trained])
        self._most = np.array([float(Fraction(high)) for _, high in trained])
        self._read = np.array([any(tag in each.tags for each in manifest.tensors) for tag in manifest.tags])
        self._policy, self._now = policy or Policy(), now
        self.widest = 1  # until a test has shown that a request's answer does not depend on its companions
        self._sessions: dict[str, _Session] = {}
        self._jobs: dict[int, StatelessJob] = {}  # that have not run
        self._held: dict[int, StatelessJob] = {}  # that have, and wait for guidance
        self._finished: list[tuple[int, Answer | NeedHistory | Failed]] = []
        self._in_turn: int | None = None  # see `Policy.plan`
        self.costs: Costs | None = None
        self.decisions = self.warmed = self.rebuilt = self.evicted = self.forwards = self.rows = 0

    @property
    def truth(self) -> ProviderTruth:
        """Where it runs."""
        return self.model.truth

    @property
    def aliased(self) -> bool:
        """There are no keys and values."""
        return False

    @property
    def busy(self) -> bool:
        """True while a step would run something or has something to tell."""
        if self._finished or any(not job.waits for job in self._held.values()):
            return True
        return bool(self._jobs) and self._company_until is None

    @property
    def queued(self) -> int:
        """Requests that are not answered yet."""
        return len(self._jobs) + len(self._held)

    @property
    def sessions(self) -> int:
        """Sessions held now."""
        return len(self._sessions)

    def merges(self, widest: int) -> None:
        """As many requests as this share a forward from now on, where the graph allows it."""
        self.widest = max(1, min(widest, self._policy.widest, self.model.widest or widest))

    def propose(self, request: Propose) -> Answer | NeedHistory:
        """The answer to the only request; raises `InferenceError` where it cannot be answered."""
        self.submit(0, request)
        while not self._finished:
            self.step()
        ((_, reply),) = self.drain()
        if isinstance(reply, Failed):
            raise InferenceError(reply.problem)
        return reply

    def submit(self, number: int, request: Propose) -> None:
        """Take a request in; its answer comes out of `drain` under `number`, now or after a step."""
        try:
            session = self._moved_on(request)
            if session is None:
                self._finished.append((number, NeedHistory()))
            elif request.warm:
                self.warmed += 1
                self._finished.append((number, _WARM))
            else:
                self._admit(request)
                self._jobs[number] = self._job(number, request, session)
        except InferenceError as exc:
            self._finished.append((number, Failed(problem=str(exc))))

    @property
    def held_until(self) -> float | None:
        """See `ServingEngine`: until the first that waits goes on without guidance, or company."""
        held = [job.awaited.until for job in self._held.values() if job.awaited is not None]
        company = self._company_until
        return min(held if company is None else [*held, company], default=None)

    def waits(self, window_s: float) -> None:
        """See `ServingEngine`."""
        self._policy = replace(self._policy, widest=self.widest, window_s=window_s)

    @property
    def _company_until(self) -> float | None:
        if not self._policy.window_s:
            return None
        return self._policy.waits_until([job.waiting for job in self._jobs.values()], self._now())

    def guide(self, number: int, packed: bytes, because: str) -> None:
        """Guidance for a request, or why there is none; what is not waited for any more is dropped."""
        job = self._jobs.get(number) or self._held.get(number)
        if job is not None and job.awaited is not None:
            job.awaited.take(packed, because)

    def cancel(self, number: int) -> None:
        """Nobody waits for that answer any more: nothing is computed for it."""
        if (self._jobs.pop(number, None) or self._held.pop(number, None)) is not None:
            self._finished.append((number, Failed(problem=CANCELLED)))

    def step(self) -> None:
        """Run one planned forward, and answer what waits for nothing any more."""
        if self._company_until is None:
            self._forward()
        for job in [job for job in self._held.values() if not job.waits]:
            del self._held[job.number]
            try:
                self._finished.append((job.number, self._answer(job)))
                self.decisions += 1
            except InferenceError as exc:
                self._finished.append((job.number, Failed(problem=str(exc))))

    def _forward(self) -> None:
        waiting = [job.waiting for job in self._jobs.values()]
        numbers = self._policy.plan(waiting, self._in_turn)[: self.widest]
        planned = [self._jobs.pop(number) for number in numbers]
        if not planned:
            return
        self._in_turn = self._policy.then_in_turn(planned[0].passed_over, self._in_turn)
        for job in self._jobs.values():
            job.passed_over += 1
        self.forwards += 1
        self.rows += len(planned)
        try:
            parts = self.model.run([job.rows for job in planned])
        except InferenceError as exc:
            self._finished += [(job.number, Failed(problem=str(exc))) for job in planned]
            return
        for at, job in enumerate(planned):
            job.parts = [part[at] for part in parts]
            self._held[job.number] = job

    def drain(self) -> list[tuple[int, Answer | NeedHistory | Failed]]:
        """Replies that are ready, by the numbers of their requests."""
        finished, self._finished = self._finished, []
        return finished

    def release(self, name: str) -> None:
        """Forget a session; unknown names are fine."""
        self._sessions.pop(name, None)

    def pool_statistics(self) -> PoolStatistics:
        """There is no memory for keys and values."""
        return _NO_POOL

    # --- a request's way

    def _moved_on(self, request: Propose) -> _Session | None:
        """The session with this request's measurements; None where its rows are neither held nor sent."""
        held = self._sessions.get(request.session)
        if request.history is not None:
            session = self._rebuilt(request)
        elif held is None or request.cycle - held.cycle not in (0, 1):
            return None
        elif request.cycle == held.cycle:
            session = _Session(held.cycle, held.in_force, held.rows.copy())
        else:
            rows = held.rows.copy()
            rows.append(self._row(held.open[: len(self._bundle.manifest.inputs)], held.in_force))
            session = _Session(request.cycle, request.in_force, rows)
        acting = request.in_force or session.in_force
        session.open = self._row(_numbers(request.inputs), acting)
        if not request.aside:
            self._sessions.pop(request.session, None)
            self._sessions[request.session] = session
            if len(self._sessions) > _MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
                self.evicted += 1
        return session

    def _rebuilt(self, request: Propose) -> _Session:
        history: tuple[Cycle, ...] = request.history or ()
        rows = deque(
            (
                self._row(_numbers(cycle.inputs), before.in_force)
                for before, cycle in itertools.pairwise(history)
                if cycle.inputs
            ),
            maxlen=self._bundle.steps - 1,
        )
        self.rebuilt += 1
        return _Session(request.cycle, history[-1].in_force if history else request.in_force, rows)

    def _row(self, inputs: NDArray[np.float64], in_force: tuple[str, ...]) -> _Row:
        row = np.concatenate([inputs, _numbers(in_force)])
        if len(row) != len(self._least):
            message = f"{len(row)} values were sent, the model has {len(self._least)} inputs and outputs"
            raise InferenceError(message)
        return row

    def _admit(self, request: Propose) -> None:
        """Raise `TooLateError` where the answer cannot come in time."""
        if self.costs is None or request.due is None:
            return
        rank = request.urgency, request.due
        ahead = sum((job.request.urgency, job.due) <= rank for job in self._jobs.values())
        forward_s = self.costs.seconds(0)
        self.costs.admit(time.monotonic(), request.due, ahead // self.widest * forward_s, forward_s)

    def _job(self, number: int, request: Propose, session: _Session) -> StatelessJob:
        began = time.perf_counter()
        if len(session.rows) < self._bundle.steps - 1:
            message = (
                f"the model reads {self._bundle.steps} cycles in a row, {len(session.rows) + 1} have passed: "
                "it proposes when the others have, too"
            )
            raise InferenceError(message)
        rows = np.stack([*session.rows, session.open])
        inside = np.clip(rows, self._least, self._most)
        strange = (inside != rows) & self._read
        measured = strange[-1, : len(request.inputs)]
        until = request.guided_until
        return StatelessJob(
            number,
            request,
            inside,
            clamped=int(measured.sum()),
            familiar=not bool(strange.any()),
            began=began,
            acting=exact_numbers(request.in_force or session.in_force),
            awaited=None if until is None else Awaited(until),
            arrived=self._now(),
            left_s=self.costs.seconds(0) if self.costs is not None else 0.0,
        )

    def _lines(self, job: StatelessJob) -> list[Line]:
        """One output after the other, each among what its guidance and its most change leave; the n best."""
        if job.awaited is not None:
            job.awaited.give_up()
        most = max(1, min(job.request.most, MOST_PROPOSALS))
        lines = [Line()]
        for part in job.parts:
            level = [(line, self._options(job, line, part, most, first=line is lines[0])) for line in lines]
            lines = [each.line for each in grown(level, most)]
        return lines

    def _options(
        self, job: StatelessJob, line: Line, part: NDArray[np.generic], most: int, *, first: bool
    ) -> list[Option]:
        """What a line's next output may be. Where guidance of the first leads nowhere, nothing guides on."""
        reader = self.readers[len(line.outputs)]
        permitted = reader.limits.reach(job.acting[len(line.outputs)])
        if job.awaited is not None and first:
            permitted = job.awaited.counts(line.raws, reader.limits, len(self.readers), permitted)
        elif job.awaited is not None:
            permitted = job.awaited.left(line.raws, reader.limits, permitted)
        return [] if permitted == () else reader.options(part, permitted, most)

    def _answer(self, job: StatelessJob) -> Answer:
        lines, awaited = self._lines(job), job.awaited
        decoded = lines[0].outputs
        sure, *others = map(self._sure, lines)
        return Answer(
            raws=tuple(output.raw for output in decoded),
            confidence=self._confidence(job, sure),
            concentration=sure,
            masked_out=tuple(output.masked_out for output in decoded),
            clamped=job.clamped,
            reused_tokens=0,
            computed_tokens=0,
            engine_ms=(time.perf_counter() - job.began) * 1e3,
            guided=awaited is not None and awaited.guidance is not None,
            because=awaited.because if awaited is not None else "",
            others=tuple(
                Other(
                    raws=tuple(line.raws),
                    confidence=self._confidence(job, share),
                    masked_out=tuple(output.masked_out for output in line.outputs),
                    share=line.share,
                )
                for line, share in zip(lines[1:], others, strict=True)
            ),
        )

    def _sure(self, line: Line) -> float:
        saying = [
            output
            for output, reader in zip(line.outputs, self.readers, strict=True)
            if reader.with_probabilities
        ]
        return concentration(saying or line.outputs)

    def _confidence(self, job: StatelessJob, sure: float) -> float | None:
        return looked_up(self._bundle.manifest.confidence, sure) if job.familiar else 0.0


_WARM = Answer(
    raws=(),
    confidence=None,
    concentration=0.0,
    masked_out=(),
    clamped=0,
    reused_tokens=0,
    computed_tokens=0,
    engine_ms=0.0,
)
_NO_POOL = PoolStatistics(
    pages=0,
    free=0,
    shared=0,
    found_again=0,
    in_tables=0,
    unfilled_slots=0,
    slots_a_page=0,
    peak_used=0,
    allocations=0,
    copies=0,
    made_room=0,
    refused=0,
    prefix_lookups=0,
    prefix_found=0,
)


def _numbers(texts: tuple[str, ...]) -> NDArray[np.float64]:
    return np.array([float(value) for value in exact_numbers(texts)], dtype=np.float64)
