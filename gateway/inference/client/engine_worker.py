"""The engine's worker process: spawned, loaded, replaced at once when lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import msgspec
import structlog

from gateway.core.errors import InferenceError, WorkerLostError
from gateway.inference.bundle.any_bundle import AnyBundle
from gateway.inference.bundle.kv_bytes import room_for
from gateway.inference.bundle.manifest import Bundle
from gateway.inference.client.place import CUDA, Place
from gateway.inference.messages import (
    Answer,
    Cancel,
    Failed,
    Guide,
    Load,
    OutputLimits,
    Propose,
    Ready,
    Reply,
    Report,
    Request,
    Serve,
    Statistics,
    decode_reply,
    encode,
)
from gateway.supervision.numbered import NumberedWorker

log = structlog.get_logger().bind(component="inference")

_MODULE = "gateway.inference.serving.worker"
_LOAD_S = 30.0
_GIVE_WAY_S = 2.0  # a worker beside the one that serves gets ready in idle time, but not for ever
_RAISED_S = 5.0
_WARM_S = 2.0  # readiness does not wait longer for sessions that are made ready
_MOST_WARMED = 32
_BACK_OFF_S = (0.0, 0.1, 0.5, 2.0, 5.0)


class EngineWorker:
    """One worker after another for one bundle; `number` counts them, `report` is what the newest showed."""

    def __init__(
        self,
        bundle: AnyBundle,
        limits: tuple[OutputLimits, ...],
        *,
        provider: str,
        require_cuda: bool,
        slowest_ms: float | None,
        warm: Callable[[], Sequence[Propose]],
        warmed: Callable[[frozenset[str]], None],
        points: int = 1,
        max_wait_s: float = 0.0,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        """`warm` says what a new worker should hold before it is asked; `warmed` hears what it holds.

        Its memory for keys and values has room for so many `points`.

        `on_lost` hears of each worker that was lost, and of each that could not replace one.
        """
        self._on_lost = on_lost
        self._bundle, self._limits, self._warm, self._tell_warmed = bundle, limits, warm, warmed
        self._points, self._max_wait_s = points, max_wait_s
        self.provider, self._require_cuda, self._slowest_ms = provider, require_cuda, slowest_ms
        self._process: NumberedWorker | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._up = asyncio.Event()
        self._gives_way = False
        self.report: Ready | None = None
        self.problem = "not started"
        self.number = self.lost = 0

    @property
    def pid(self) -> int | None:
        """The process id while it lives."""
        return self._process.pid if self._process is not None else None

    @property
    def place(self) -> Place | None:
        """Where the newest worker runs; None before there was one."""
        report = self.report
        return Place(self.provider, report.ep_expected, report.ep_actual) if report is not None else None

    @property
    def up(self) -> bool:
        """True while requests may be sent."""
        return self._up.is_set()

    async def start(self, *, gives_way: bool = False) -> None:
        """Return when the first worker is ready; raises `InferenceError` when the bundle cannot be served.

        One that `gives_way` takes only time that nobody else wants, until `serve`; some seconds at the most.
        """
        self._gives_way = gives_way
        first = await self._spawned(self.provider)
        self._keeper = asyncio.create_task(self._keep(first), name=f"engine-{self._bundle.manifest.id}")

    async def serve(self) -> None:
        """Return when it gives way no more; raises `WorkerLostError`."""
        if self._gives_way:
            reply = await self.exchange(Serve(), _RAISED_S)
            assert isinstance(reply, Statistics), "a loaded worker's answer"  # noqa: S101  an invariant
            self._gives_way = False

    async def aclose(self) -> None:
        """End the worker, and let go of whoever heard of it; bounded by a second."""
        self.problem = "closed"
        self._up.clear()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
            self._keeper = None
        if self._process is not None:
            await self._process.aclose()
        # its owner holds it: where nothing looks for rings of references, neither would ever be freed
        self._warm, self._tell_warmed, self._on_lost = _nothing_to_warm, _told_nobody, None

    async def wait_up(self, timeout_s: float) -> None:
        """Return when requests may be sent; raises `TimeoutError`."""
        async with asyncio.timeout(timeout_s):
            await self._up.wait()

    def post(self, request: Request) -> tuple[int, asyncio.Future[bytes]]:
        """Send a request; see `NumberedWorker.post`. Raises `WorkerLostError` where there is none to ask."""
        if self._process is None or not self.up:
            message = f"engine worker is not ready: {self.problem}"
            raise WorkerLostError(message)
        return self._process.post(encode(request))

    def cancel(self, number: int) -> None:
        """Nobody waits for that request any more."""
        if self._process is not None:
            self._process.tell(number, encode(Cancel()))

    def guide(self, number: int, guidance: Guide) -> None:
        """Guidance for that request, or why there is none."""
        if self._process is not None:
            self._process.tell(number, encode(guidance))

    @property
    def in_flight(self) -> int:
        """Requests the worker has not answered."""
        return self._process.in_flight if self._process is not None else 0

    def silent_s(self) -> float:
        """Seconds without any answer while some are awaited."""
        return self._process.silent_s() if self._process is not None else 0.0

    def kill(self) -> None:
        """End a worker that hangs; it is replaced."""
        if self._process is not None:
            self._process.kill()

    async def exchange(self, request: Request, timeout_s: float) -> Reply:
        """The worker's answer; raises `WorkerLostError`, also when there is none to ask."""
        if self._process is None or not self.up:
            message = f"engine worker is not ready: {self.problem}"
            raise WorkerLostError(message)
        return decode_reply(await self._process.ask(encode(request), timeout_s))

    async def counted(self, timeout_s: float) -> Statistics | None:
        """The worker's own counters; None where it has none to tell, or not in time, and goes on working."""
        try:
            _, reply = self.post(Report())
            await asyncio.wait({reply}, timeout=timeout_s)
            told = decode_reply(reply.result()) if reply.done() else None
        except WorkerLostError:
            return None
        return told if isinstance(told, Statistics) else None

    async def _spawned(self, provider: str) -> NumberedWorker:
        """A new worker on `provider` that has loaded the bundle, made the current one."""
        began = time.monotonic()
        name = f"engine-{self._bundle.manifest.id}"
        arguments = ["--bundle", str(self._bundle.directory), "--provider", provider]
        if isinstance(self._bundle, Bundle):
            room = room_for(self._bundle, self._points)
            arguments += ["--pages", str(room.pages), "--cold-pages", str(room.cold_pages)]
            if room.sessions < self._points:
                log.warning("sessions_take_turns", points=self._points, room_for=room.sessions)
        if self._max_wait_s and provider == self.provider:  # what it falls back to does not wait
            arguments += ["--max-wait-ms", f"{1e3 * self._max_wait_s:g}"]
        if self._gives_way:
            arguments += ["--give-way-s", f"{_GIVE_WAY_S:g}"]
        worker = NumberedWorker(_MODULE, arguments, name=name)
        try:
            await worker.start()
            ready = self._accepted(await self._loaded(worker))
            held = await self._warmed(worker, self._warm())
        except (InferenceError, WorkerLostError, msgspec.DecodeError, OSError) as exc:
            await worker.aclose(0.0)
            raise InferenceError(str(exc)) from exc
        except asyncio.CancelledError:
            await worker.aclose(0.0)
            raise
        self._process, self.report = worker, ready
        self.number += 1
        self._tell_warmed(held)
        self.problem = ""
        self._up.set()
        took_ms = round((time.monotonic() - began) * 1e3)
        log.info("engine_started", pid=worker.pid, took_ms=took_ms, **msgspec.structs.asdict(ready))
        return worker

    async def warm(self, wanted: Sequence[Propose]) -> frozenset[str]:
        """Sessions of these that the worker made ready in time; raises `WorkerLostError` where none is up."""
        if self._process is None or not self.up:
            message = f"engine worker is not ready: {self.problem}"
            raise WorkerLostError(message)
        return await self._warmed(self._process, wanted)

    async def _warmed(self, worker: NumberedWorker, wanted: Sequence[Propose]) -> frozenset[str]:
        """Sessions that a worker made ready in time; the others bring their history with a request."""
        asked: dict[str, asyncio.Future[bytes]] = {}
        try:
            for request in wanted[:_MOST_WARMED]:
                asked[request.session] = worker.post(encode(request))[1]
        except WorkerLostError:  # whoever waits for the process is told
            return frozenset()
        if asked:
            await asyncio.wait(asked.values(), timeout=_WARM_S)
        return frozenset(
            session
            for session, answer in asked.items()
            if answer.done()
            and answer.exception() is None
            and isinstance(decode_reply(answer.result()), Answer)
        )

    async def _loaded(self, worker: NumberedWorker) -> Reply:
        try:
            return decode_reply(await worker.ask(encode(Load(outputs=self._limits)), _LOAD_S))
        except WorkerLostError as exc:
            message = (
                f"{exc}, while it loaded and tested the model: its graph may not end, or ask for more memory "
                "than a model gets; use a smaller model, or export it without loops"
            )
            raise InferenceError(message) from exc

    def _accepted(self, reply: Reply) -> Ready:
        if not isinstance(reply, Ready):
            raise InferenceError(reply.problem if isinstance(reply, Failed) else "the worker did not load")
        if reply.digest != self._bundle.digest:
            message = (
                "the bundle changed on disk since it was checked: restart the gateway to take the new one"
            )
            raise InferenceError(message)
        if self._require_cuda and reply.ep_actual != CUDA:
            message = (
                f"CUDA is required but the session runs on {reply.ep_actual}: add a GPU with its driver and "
                "cuDNN, or remove `require_cuda`"
            )
            raise InferenceError(message)
        if self._slowest_ms is not None and reply.slow_ms > self._slowest_ms:
            message = (
                f"a decision takes up to {reply.slow_ms:.1f} ms here (median {reply.decision_ms:.1f} ms), "
                f"over the {self._slowest_ms:g} ms allowed: use a smaller model or a longer deadline"
            )
            raise InferenceError(message)
        return reply

    async def _keep(self, worker: NumberedWorker) -> None:
        """Replace the worker whenever it ends, until cancelled."""
        while True:
            status = await worker.wait()
            self._up.clear()
            worker.kill()  # closes our end
            self.lost += 1
            self.problem = "the worker was lost and is being replaced"
            log.warning("engine_worker_lost", exit_status=status)
            self._tell_lost()
            worker = await self._replaced()

    async def _replaced(self) -> NumberedWorker:
        """Where it was asked for, or in turn on the processor unless CUDA is required: a device may go."""
        turns = (self.provider, self.provider if self._require_cuda else "cpu")
        attempt = 0
        while True:
            await asyncio.sleep(_BACK_OFF_S[min(attempt, len(_BACK_OFF_S) - 1)])
            try:
                return await self._spawned(turns[attempt % 2])
            except InferenceError as exc:
                attempt += 1
                self.problem = str(exc)
                log.error("engine_start_failed", problem=str(exc), attempt=attempt)  # noqa: TRY400 - expected
                self._tell_lost()

    def _tell_lost(self) -> None:
        if self._on_lost is not None:
            self._on_lost()


def _nothing_to_warm() -> tuple[Propose, ...]:
    return ()


def _told_nobody(_held: frozenset[str]) -> None:
    pass
