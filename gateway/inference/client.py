"""The model as the pipeline sees it: a `Proposer` whose engine lives in a supervised worker process."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import structlog

from gateway.core.clock import Clock, Deadline, SystemClock
from gateway.core.decision import Proposal, RegisterValue
from gateway.core.errors import InferenceError, WorkerLostError
from gateway.core.tag import TagDefinition, TagId, TagKind, decimal_text, exact
from gateway.core.tagstore import Snapshot
from gateway.inference.bundle import Bundle, check_tags, load_bundle
from gateway.inference.cadence import Cadence, Step
from gateway.inference.messages import (
    Answer,
    Failed,
    Load,
    NeedHistory,
    OutputLimits,
    Propose,
    Ready,
    Reply,
    Report,
    Request,
    Statistics,
    decode_reply,
    encode,
)
from gateway.supervision.worker import WorkerProcess

log = structlog.get_logger().bind(component="inference")

_MODULE = "gateway.inference.worker"
_LOAD_S = 30.0
_HUNG_S = 1.0  # no answer for so long: killed and replaced
_BACK_OFF_S = (0.0, 0.1, 0.5, 2.0, 5.0)
_CUDA = "CUDAExecutionProvider"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatistics:
    """Counters of a model engine since it was started."""

    proposals: int
    failed: int
    lost: int
    histories_sent: int
    clamped: int
    masked_out: float  # of the newest answer: a drift signal
    engine_ms: float  # of the newest answer
    reused_tokens: int
    computed_tokens: int
    worker: Statistics | None


class _Point:
    """One decision point's history and whether the worker holds it."""

    def __init__(self, bundle: Bundle) -> None:
        self.cadence = Cadence(bundle.cycle_s, bundle.history_cycles)
        self.held_by: int | None = None  # number of the worker that answered last


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
    ) -> None:
        self.bundle = load_bundle(bundle_dir)
        check_tags(self.bundle, definitions)
        manifest = self.bundle.manifest
        self._inputs = tuple(TagId(spec.tag) for spec in manifest.inputs)
        self._outputs = tuple(definitions[TagId(spec.tag)] for spec in manifest.outputs)
        self._limits = tuple(_limits(definition) for definition in self._outputs)
        self._by = f"{manifest.id}/{manifest.revision}"
        self._provider, self._require_cuda, self._slowest_ms = provider, require_cuda, slowest_ms
        self._clock = clock if clock is not None else SystemClock()
        self._worker: WorkerProcess | None = None
        self._number = 0
        self._ready: Ready | None = None
        self._problem = "not started"
        self._keeper: asyncio.Task[None] | None = None
        self._up = asyncio.Event()
        self._turn = asyncio.Lock()
        self._asking: set[asyncio.Task[Answer]] = set()
        self._points: dict[str, _Point] = {}
        self._answer: Answer | None = None
        self._proposals = self._failed = self._lost = self._histories = self._clamped = 0

    @property
    def pid(self) -> int | None:
        """The worker's process id while it lives."""
        return self._worker.pid if self._worker is not None else None

    @property
    def ready(self) -> bool:
        """True while a worker can be asked."""
        return self._up.is_set()

    async def start(self) -> None:
        """Return when the first worker is ready; raises `InferenceError` when the bundle cannot be served."""
        worker = await self._spawned()
        self._keeper = asyncio.create_task(self._keep(worker), name=f"engine-{self._by}")

    async def aclose(self) -> None:
        """End the worker; bounded by a second."""
        self._problem = "closed"
        self._up.clear()
        ending: set[asyncio.Task[Any]] = {*self._asking}
        if self._keeper is not None:
            ending.add(self._keeper)
            self._keeper = None
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)
        if self._worker is not None:
            await self._worker.aclose()

    async def wait_ready(self, timeout_s: float) -> None:
        """Return when a worker can be asked; raises `TimeoutError`."""
        async with asyncio.timeout(timeout_s):
            await self._up.wait()

    async def propose(
        self, snapshot: Snapshot, previous: Mapping[TagId, Fraction], deadline: Deadline
    ) -> Proposal:
        """Setpoints for the one decision point of this engine; see `propose_for`."""
        return await self.propose_for("", snapshot, previous, deadline)

    async def propose_for(
        self, point: str, snapshot: Snapshot, previous: Mapping[TagId, Fraction], deadline: Deadline
    ) -> Proposal:
        """Setpoints in register values; each `point` has its own history.

        Raises `InferenceError` when an input has no number or time is up, `WorkerLostError` for a dead one.
        """
        inputs = tuple(_text(snapshot, tag) for tag in self._inputs)
        in_force = tuple(_in_force(previous, definition.id) for definition in self._outputs)
        state = self._points.setdefault(point, _Point(self.bundle))
        step = state.cadence.place(snapshot.taken_at, inputs, in_force)
        if step.rewritten:
            state.held_by = None
        asking = asyncio.create_task(self._in_turn(point, state, step, deadline), name=f"ask-{self._by}")
        self._asking.add(asking)
        asking.add_done_callback(self._asked_ended)
        # A late answer is waited for by `_asking` alone: only a hung worker is worth its replacement.
        await asyncio.wait({asking}, timeout=deadline.remaining(self._clock))
        if not asking.done():
            message = "the model gave no answer until the deadline"
            raise InferenceError(message)
        answer = asking.result()
        self._answer = answer
        self._proposals += 1
        self._clamped += answer.clamped
        return Proposal(
            values=tuple(
                RegisterValue(definition.id, raw, definition.engineering(raw))
                for definition, raw in zip(self._outputs, answer.raws, strict=True)
            ),
            by=self._by,
            model_digest=self.bundle.digest,
            confidence=answer.confidence,
        )

    def describe(self) -> dict[str, str]:
        """The truth about the engine, for status and records."""
        manifest = self.bundle.manifest
        told = {
            "bundle": self._by,
            "digest": self.bundle.digest,
            "quantization": f"{manifest.quantization.kind} {manifest.quantization.bits} bit",
            "window": f"{manifest.window.mode} {manifest.window.length} tokens",
            "ep_requested": self._provider,
            "ep_actual": "",
            "state": "ready" if self.ready else self._problem,
        }
        if self._ready is not None:
            told |= {
                "ep_actual": self._ready.ep_actual,
                "runtime": self._ready.runtime,
                "cpu": self._ready.cpu,
                "kv_aliased": "yes" if self._ready.aliased else "no",
                "incremental_error": f"{self._ready.incremental_error:.2g}",
                "decision_ms": f"{self._ready.decision_ms:.2f}",
                "prefill_ms": f"{self._ready.prefill_ms:.2f}",
            }
        return told

    async def refresh(self) -> EngineStatistics:
        """`statistics()` with the worker's own counters fetched now."""
        async with self._turn:
            reply = await self._exchange(Report(), 1.0)
        return self._statistics(reply if isinstance(reply, Statistics) else None)

    def statistics(self) -> EngineStatistics:
        """A frozen report, without asking the worker."""
        return self._statistics(None)

    def _statistics(self, worker: Statistics | None) -> EngineStatistics:
        answer = self._answer
        return EngineStatistics(
            proposals=self._proposals,
            failed=self._failed,
            lost=self._lost,
            histories_sent=self._histories,
            clamped=self._clamped,
            masked_out=max(answer.masked_out) if answer is not None else 0.0,
            engine_ms=answer.engine_ms if answer is not None else 0.0,
            reused_tokens=answer.reused_tokens if answer is not None else 0,
            computed_tokens=answer.computed_tokens if answer is not None else 0,
            worker=worker,
        )

    async def _in_turn(self, point: str, state: _Point, step: Step, deadline: Deadline) -> Answer:
        """One answer; the history goes along when this worker does not hold it."""
        async with self._turn:
            self._admit(state, deadline)
            number = self._number
            send_history = state.held_by != number
            state.held_by = None
            request = Propose(session=point, cycle=step.cycle, inputs=step.inputs, in_force=step.in_force)
            for _ in range(2):
                if send_history:
                    self._histories += 1
                    request = msgspec.structs.replace(request, history=step.history)
                reply = await self._exchange(request, _HUNG_S)
                if isinstance(reply, Answer):
                    state.held_by = number
                    return reply
                if not isinstance(reply, NeedHistory):
                    break
                send_history = True
        message = reply.problem if isinstance(reply, Failed) else f"unexpected answer {type(reply).__name__}"
        raise InferenceError(message)

    def _admit(self, state: _Point, deadline: Deadline) -> None:
        """Refuse what the measured cost says cannot be answered in time; the worker is not disturbed.

        A session that has to be rebuilt is always let in: its answer may come too late for this decision,
        but the next one needs the pages it leaves.
        """
        if self._ready is None or state.held_by != self._number:
            return
        needed_s = self._ready.decision_ms / 1e3
        remaining_s = deadline.remaining(self._clock)
        if remaining_s < needed_s:
            message = f"{remaining_s * 1e3:.1f} ms are left and an answer takes about {needed_s * 1e3:.1f} ms"
            raise InferenceError(message)

    def _asked_ended(self, asking: asyncio.Task[Answer]) -> None:
        self._asking.discard(asking)
        if asking.cancelled() or asking.exception() is not None:
            self._failed += 1

    async def _exchange(self, request: Request, timeout_s: float) -> Reply:
        if self._worker is None or not self.ready:
            message = f"engine worker is not ready: {self._problem}"
            raise WorkerLostError(message)
        return decode_reply(await self._worker.ask(encode(request), timeout_s))

    async def _spawned(self) -> WorkerProcess:
        """A new worker that has loaded the bundle, made the current one."""
        began = time.monotonic()
        name = f"engine-{self.bundle.manifest.id}"
        arguments = ("--bundle", str(self.bundle.directory), "--provider", self._provider)
        worker = WorkerProcess(_MODULE, arguments, name=name)
        try:
            await worker.start()
            reply = decode_reply(await worker.ask(encode(Load(outputs=self._limits)), _LOAD_S))
            ready = self._accepted(reply)
        except (InferenceError, WorkerLostError, msgspec.DecodeError, OSError) as exc:
            await worker.aclose(0.0)
            raise InferenceError(str(exc)) from exc
        except asyncio.CancelledError:
            await worker.aclose(0.0)
            raise
        self._worker, self._ready = worker, ready
        self._number += 1
        self._problem = ""
        self._up.set()
        took_ms = round((time.monotonic() - began) * 1e3)
        log.info("engine_started", pid=worker.pid, took_ms=took_ms, **msgspec.structs.asdict(ready))
        return worker

    def _accepted(self, reply: Reply) -> Ready:
        if not isinstance(reply, Ready):
            raise InferenceError(reply.problem if isinstance(reply, Failed) else "the worker did not load")
        if reply.digest != self.bundle.digest:
            message = (
                "the bundle changed on disk since it was checked: restart the gateway to take the new one"
            )
            raise InferenceError(message)
        if self._require_cuda and reply.ep_actual != _CUDA:
            message = (
                f"CUDA is required but the session runs on {reply.ep_actual}: "
                "remove `require_cuda` or add a GPU"
            )
            raise InferenceError(message)
        if self._slowest_ms is not None and reply.decision_ms > self._slowest_ms:
            message = (
                f"a decision takes {reply.decision_ms:.1f} ms here, over the {self._slowest_ms:g} ms "
                "allowed: use a smaller model"
            )
            raise InferenceError(message)
        return reply

    async def _keep(self, worker: WorkerProcess) -> None:
        """Replace the worker whenever it ends, until cancelled."""
        while True:
            status = await worker.wait()
            self._up.clear()
            worker.kill()  # closes our end
            self._lost += 1
            self._problem = "the worker was lost and is being replaced"
            log.warning("engine_worker_lost", exit_status=status)
            worker = await self._replaced()

    async def _replaced(self) -> WorkerProcess:
        attempt = 0
        while True:
            await asyncio.sleep(_BACK_OFF_S[min(attempt, len(_BACK_OFF_S) - 1)])
            try:
                return await self._spawned()
            except InferenceError as exc:
                attempt += 1
                self._problem = str(exc)
                log.error("engine_start_failed", problem=str(exc), attempt=attempt)  # noqa: TRY400 - expected


def _limits(definition: TagDefinition) -> OutputLimits:
    """The counts an output may take: its register's range, narrowed to its engineering range."""
    raw_range = (0, 1) if definition.kind is TagKind.BOOLEAN else definition.raw_range
    if raw_range is None:
        message = f"tag `{definition.id}` has no register counts and cannot be a model's output"
        raise InferenceError(message)
    low, high = raw_range
    if definition.eu_range is not None:
        ends = sorted((end - definition.offset) / definition.scale for end in definition.eu_range)
        low, high = max(low, -int(-ends[0] // 1)), min(high, int(ends[1] // 1))
    return OutputLimits(decimal_text(definition.scale), decimal_text(definition.offset), low, high)


def _text(snapshot: Snapshot, tag: TagId) -> str:
    value = snapshot.values[tag].value if tag in snapshot.values else None
    if value is None or isinstance(value, str) or not math.isfinite(value):
        message = f"model input `{tag}` has no number"
        raise InferenceError(message)
    return decimal_text(exact(value))


def _in_force(previous: Mapping[TagId, Fraction], tag: TagId) -> str:
    if tag not in previous:
        message = f"output `{tag}` has no value in force yet: the model needs it"
        raise InferenceError(message)
    return decimal_text(previous[tag])
