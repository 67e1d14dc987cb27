"""Where an engine worker takes requests in, between two forwards, and from where its answers leave."""

from __future__ import annotations

import gc
import platform
import socket
import time
from fractions import Fraction
from pathlib import Path

import msgspec

from gateway.core.errors import InferenceError
from gateway.inference.bundle.any_bundle import load_any
from gateway.inference.decoding.decode import OutputRange
from gateway.inference.kv.ort_session import providers_for
from gateway.inference.messages import (
    Cancel,
    Failed,
    Guide,
    Load,
    Propose,
    Ready,
    Release,
    Reply,
    Serve,
    Statistics,
    decode_request,
    encode,
)
from gateway.inference.serving.bounds import bound_memory
from gateway.inference.serving.serving import ServingEngine, Size, start_engine
from gateway.supervision.frames import Frames, frame, send
from gateway.supervision.numbered import numbered, parted

_READ = 64 * 1024


class Desk:
    """One bundle's engine at the end of a socket; used from one thread at a time."""

    def __init__(self, sock: socket.socket, directory: Path, size: Size) -> None:
        self._sock, self._directory, self._size = sock, directory, size
        sock.setblocking(True)  # noqa: FBT003  the socket's own words
        self._engine: ServingEngine | None = None
        self._frames = Frames()
        self._told_to_serve: int | None = None  # the number of `Serve`
        self._ended = False

    def get_ready(self) -> None:
        """Take requests and answer them until `Serve` comes, or the end of the stream."""
        while self._told_to_serve is None and not self._ended:
            self._turn()

    def serve(self) -> None:
        """Take requests in whenever they come, between two forwards; send each answer when it is ready.

        Until end of stream. A `Serve` is answered now, by whoever goes on.
        """
        while not self._ended:
            if self._told_to_serve is not None and self._engine is not None:
                self._reply(self._told_to_serve, _statistics(self._engine))
                self._told_to_serve = None
            self._turn()

    def _turn(self) -> None:
        data = self._received()
        if data == b"":
            self._ended = True
            return
        if data is not None:
            for body in self._frames.fed(data):
                self.take(*parted(body))
        if self._told_to_serve is None:
            self.work()

    def _received(self) -> bytes | None:
        """All that has come, waited for where there is nothing else to do; None where nothing has."""
        patience_s = self.patience_s
        try:
            if patience_s == 0.0:
                return self._sock.recv(_READ, socket.MSG_DONTWAIT)
            if patience_s is None:
                return self._sock.recv(_READ)
            self._sock.settimeout(patience_s)
            try:
                return self._sock.recv(_READ)
            finally:
                self._sock.settimeout(None)
        except (BlockingIOError, TimeoutError):
            return None

    @property
    def patience_s(self) -> float | None:
        """How long it may wait for the next request; None: for ever."""
        if self._engine is None:
            return None
        if self._engine.busy:
            return 0.0
        until = self._engine.held_until
        return None if until is None else max(0.0, until - time.monotonic())

    def take(self, number: int, body: bytes) -> None:
        """Begin a request, or answer it at once."""
        try:
            request = decode_request(body)
            if isinstance(request, Load):
                self._engine, ready = _load(request, self._directory, self._size)
                self._reply(number, ready)
            elif self._engine is None:
                self._reply(number, Failed(problem="no bundle is loaded: send Load first"))
            elif isinstance(request, Serve):
                self._told_to_serve = number
            elif isinstance(request, Propose):
                self._engine.submit(number, request)
            elif isinstance(request, Cancel):
                self._engine.cancel(number)
            elif isinstance(request, Guide):
                self._engine.guide(number, request.packed, request.because)
            else:
                if isinstance(request, Release):
                    self._engine.release(request.session)
                self._reply(number, _statistics(self._engine))
        except InferenceError as exc:
            self._reply(number, Failed(problem=" ".join(str(exc).split())))  # the runtime's have lines
        except msgspec.DecodeError as exc:
            self._reply(number, Failed(problem=f"not a request: {exc}"))

    def work(self) -> None:
        """Run one forward, send what it finished."""
        if self._engine is None:
            return
        self._engine.step()
        if finished := self._engine.drain():  # at once: each sending wakes whoever waits
            self._sock.sendall(b"".join(frame(numbered(number, encode(reply))) for number, reply in finished))

    def _reply(self, number: int, reply: Reply) -> None:
        send(self._sock, numbered(number, encode(reply)))


def _load(request: Load, directory: Path, size: Size) -> tuple[ServingEngine, Ready]:
    bundle = load_any(directory)
    outputs = tuple(
        OutputRange(Fraction(limits.scale), Fraction(limits.offset), limits.low, limits.high, limits.most)
        for limits in request.outputs
    )
    if providers_for(size.provider)[0] == "CPUExecutionProvider":  # others map far more than they use
        bound_memory(bundle, size.pages)
    engine, shown = start_engine(bundle, outputs, size)
    gc.collect()
    gc.freeze()
    gc.disable()
    truth = engine.truth
    return engine, Ready(
        digest=bundle.digest,
        ep_requested=truth.requested,
        ep_actual=truth.actual,
        ep_expected=truth.expected,
        runtime=truth.runtime,
        cpu=platform.machine(),
        aliased=engine.aliased,
        incremental_error=shown.incremental_error,
        decision_ms=shown.decision_ms,
        slow_ms=shown.slow_ms,
        prefill_ms=shown.prefill_ms,
        chunk_ms=shown.chunk_ms,
        widest=engine.widest,
        batch_independent=shown.batch_independent,
        steps_ms=shown.steps_ms,
    )


def _statistics(engine: ServingEngine) -> Statistics:
    pool = engine.pool_statistics()
    return Statistics(
        sessions=engine.sessions,
        evicted=engine.evicted,
        decisions=engine.decisions,
        warmed=engine.warmed,
        rebuilt=engine.rebuilt,
        forwards=engine.forwards,
        rows=engine.rows,
        pages=pool.pages,
        pages_free=pool.free,
        pages_peak=pool.peak_used,
        pages_refused=pool.refused,
        pages_found_again=pool.found_again,
        standing_tokens=pool.standing,
        prefix_lookups=pool.prefix_lookups,
        prefix_found=pool.prefix_found,
        cold_sessions=pool.cold,
        offloaded=pool.offloaded,
        returned=pool.returned,
        internal_fragmentation=pool.internal_fragmentation,
        external_fragmentation=pool.external_fragmentation,
    )
