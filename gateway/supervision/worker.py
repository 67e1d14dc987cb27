"""A supervised child process that answers one frame with one frame, and is killed when it does not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence

from gateway.core.errors import WorkerLostError
from gateway.supervision import share
from gateway.supervision.frames import FrameError, Frames, frame


class Wire(asyncio.Protocol, ABC):
    """Our end of a child's socket, in frames.

    A plain protocol: an answer costs one turn of the loop, where streams and their time-outs cost several.
    """

    def __init__(self, name: str) -> None:
        self.name, self._frames = name, Frames()
        self.transport: asyncio.Transport | None = None

    @property
    def open(self) -> bool:
        """True while bytes can be sent."""
        return self.transport is not None and not self.transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  what the loop makes of a stream socket
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        try:
            for body in self._frames.fed(data):
                if not self.received(body):
                    self.lose(f"worker `{self.name}` answered what nobody asked")
                    return
        except FrameError as exc:
            self.lose(f"worker `{self.name}` sent what is no frame: {exc}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self.lose(f"worker `{self.name}` died while it held a request" + (f": {exc}" if exc else ""))

    def send(self, body: bytes) -> None:
        """Write one frame."""
        assert self.transport is not None, "asked only while `open`"  # noqa: S101  an invariant
        self.transport.write(frame(body))

    def lose(self, why: str) -> None:
        """Close; requests in flight fail with `why`."""
        if self.transport is not None:
            self.transport.abort()
        self.fail(WorkerLostError(why))

    @abstractmethod
    def received(self, body: bytes) -> bool:
        """Take an answer; False where nobody asked for it."""

    @abstractmethod
    def fail(self, why: WorkerLostError) -> None:
        """Every request in flight has no answer."""


class _OneAtATime(Wire):
    """At most one answer is awaited."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.busy = False  # until the answer has come, also when nobody waits for it any more
        self._answer: asyncio.Future[bytes] | None = None
        self._free: asyncio.Future[None] | None = None

    def expect(self) -> asyncio.Future[bytes]:
        """The next frame's body; whoever awaits it may leave."""
        self.busy = True
        self._answer = asyncio.get_running_loop().create_future()
        return self._answer

    async def free(self) -> None:
        """Return when no answer is outstanding."""
        while self.busy:
            if self._free is None:
                self._free = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._free)

    def received(self, body: bytes) -> bool:
        """See `Wire`."""
        if not self.busy:
            return False
        self._settle(body, None)
        return True

    def fail(self, why: WorkerLostError) -> None:
        """See `Wire`."""
        self._settle(b"", why)

    def _settle(self, body: bytes, why: WorkerLostError | None) -> None:
        answer, self._answer, self.busy = self._answer, None, False
        if answer is not None and not answer.done():
            if why is not None:
                answer.set_exception(why)
            else:
                answer.set_result(body)
        if self._free is not None:
            self._free.set_result(None)
            self._free = None


class ChildProcess:
    """One child at the other end of a wire. Started once; a lost child is replaced, never revived.

    The child is `python -m MODULE --socket-fd N ARGS...`, reads frames from descriptor N and ends at end of
    stream. It logs to its standard error: ours.
    """

    def __init__(self, module: str, arguments: Sequence[str], wire: Wire) -> None:
        self.name = wire.name
        self._module, self._arguments = module, tuple(arguments)
        self._process: asyncio.subprocess.Process | None = None
        self._link = wire
        self.requests = 0

    @property
    def pid(self) -> int | None:
        """Process id while it lives."""
        return self._process.pid if self._process is not None and self.alive else None

    @property
    def alive(self) -> bool:
        """True while requests may be sent."""
        return self._process is not None and self._process.returncode is None and self._link.open

    async def start(self) -> None:
        """Spawn the child. It is ready when it first answers."""
        ours, theirs = socket.socketpair()
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                self._module,
                "--socket-fd",
                str(theirs.fileno()),
                *self._arguments,
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        finally:
            theirs.close()
        share.as_ever(self._process.pid)
        ours.setblocking(False)  # noqa: FBT003
        await asyncio.get_running_loop().create_connection(lambda: self._link, sock=ours)

    def kill(self) -> None:
        """SIGKILL, at once; `wait` reaps."""
        self._link.lose(f"worker `{self.name}` was killed")
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself between the two lines
                self._process.send_signal(signal.SIGKILL)

    def lower(self) -> None:
        """The child has only the time that nobody else wants, until `raise_again`: see `share.comes_back`."""
        if self._process is not None and self._process.returncode is None:  # else its id may be another's
            share.what_is_left(self._process.pid)

    def raise_again(self) -> None:
        """The child has its share of the processor as ever."""
        if self._process is not None and self._process.returncode is None:  # as above
            share.as_ever(self._process.pid)

    async def wait(self) -> int:
        """The exit status, once it has ended."""
        return await self._process.wait() if self._process is not None else 0

    async def aclose(self, grace_s: float = 1.0) -> None:
        """End of stream, SIGKILL after `grace_s`; the child is reaped when this ends, also if cancelled."""
        if self._process is None:
            return
        if self._link.transport is not None:
            self._link.transport.close()
        try:
            async with asyncio.timeout(grace_s):
                await self._process.wait()
        except TimeoutError:
            await self._ended()
        except asyncio.CancelledError:
            await self._ended()
            raise

    async def _ended(self) -> None:
        """SIGKILL, and not left before the child is reaped, whoever cancels."""
        self.kill()
        reaped, cancelled = asyncio.ensure_future(self.wait()), False
        while not reaped.done():
            try:
                await asyncio.shield(reaped)
            except asyncio.CancelledError:  # a killed child ends at once
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError


class WorkerProcess(ChildProcess):
    """A child that answers one request after another; its side is `gateway.supervision.frames.receive`."""

    def __init__(self, module: str, arguments: Sequence[str] = (), *, name: str) -> None:
        self._wire = _OneAtATime(name)
        super().__init__(module, arguments, self._wire)

    @property
    def busy(self) -> bool:
        """True while a request is in flight, also one whose answer nobody waits for any more."""
        return self._wire.busy

    def post(self, body: bytes) -> asyncio.Future[bytes]:
        """Send a request; the future brings its answer, or `WorkerLostError` where the child dies first.

        Whoever awaits it may leave: the answer is then dropped when it comes. Raises `WorkerLostError` where
        the child is busy or gone.
        """
        if self._wire.busy or not self.alive:
            msg = f"worker `{self.name}` is {'busy' if self._wire.busy else 'not running'}"
            raise WorkerLostError(msg)
        self.requests += 1
        answer = self._wire.expect()
        self._wire.send(body)
        return answer

    def tell(self, body: bytes) -> None:
        """Send what has no answer; nothing happens where the child is busy or gone."""
        if not self._wire.busy and self.alive:
            self._wire.send(body)

    async def free(self, timeout_s: float) -> None:
        """Return when no request is in flight; a child that still holds one after that time is killed."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._wire.free()
        except TimeoutError:
            self.kill()

    async def ask(self, body: bytes, timeout_s: float) -> bytes:
        """The child's answer. On time-out, cancel or end of stream the child is killed: its state is unknown.

        Raises `WorkerLostError` when there is no answer.
        """
        answer = self.post(body)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError as exc:
            self.kill()
            msg = f"worker `{self.name}` gave no answer within {timeout_s * 1000:.0f} ms and was killed"
            raise WorkerLostError(msg) from exc
        except (asyncio.CancelledError, WorkerLostError):
            self.kill()
            raise
