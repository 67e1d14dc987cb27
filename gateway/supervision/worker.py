"""A supervised child process that answers one frame with one frame, and is killed when it does not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence

from gateway.core.errors import WorkerLostError
from gateway.supervision.frames import frame, read_frame


class WorkerProcess:
    """One child, one socket, one request in flight. Started once; a lost worker is replaced, never revived.

    The child is `python -m MODULE --socket-fd N ARGS...`, reads frames from descriptor N with
    `gateway.supervision.frames.receive` and ends at end of stream. It logs to its standard error: ours.
    """

    def __init__(self, module: str, arguments: Sequence[str] = (), *, name: str) -> None:
        self.name = name
        self._module, self._arguments = module, tuple(arguments)
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._busy = False
        self.requests = 0

    @property
    def pid(self) -> int | None:
        """Process id while it lives."""
        return self._process.pid if self._process is not None and self.alive else None

    @property
    def alive(self) -> bool:
        """True while requests may be sent."""
        return self._process is not None and self._process.returncode is None and self._writer is not None

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
        ours.setblocking(False)  # noqa: FBT003
        self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=2**20)

    async def ask(self, body: bytes, timeout_s: float) -> bytes:
        """The child's answer. On time-out, cancel or end of stream the child is killed: its state is unknown.

        Raises `WorkerLostError` when there is no answer.
        """
        if self._busy or not self.alive or self._writer is None or self._reader is None:
            msg = f"worker `{self.name}` is {'busy' if self._busy else 'not running'}"
            raise WorkerLostError(msg)
        self._busy = True
        self.requests += 1
        try:
            async with asyncio.timeout(timeout_s):
                self._writer.write(frame(body))
                return await read_frame(self._reader)
        except TimeoutError as exc:
            self.kill()
            msg = f"worker `{self.name}` gave no answer within {timeout_s * 1000:.0f} ms and was killed"
            raise WorkerLostError(msg) from exc
        except asyncio.CancelledError:
            self.kill()
            raise
        except (asyncio.IncompleteReadError, ConnectionError, OSError) as exc:
            self.kill()
            msg = f"worker `{self.name}` died while it held a request"
            raise WorkerLostError(msg) from exc
        finally:
            self._busy = False

    def kill(self) -> None:
        """SIGKILL, at once; `wait` reaps."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself between the two lines
                self._process.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """The exit status, once it has ended."""
        return await self._process.wait() if self._process is not None else 0

    async def aclose(self, grace_s: float = 1.0) -> None:
        """End of stream, then SIGKILL after `grace_s`; the child is reaped when this returns."""
        if self._process is None:
            return
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        try:
            async with asyncio.timeout(grace_s):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()
