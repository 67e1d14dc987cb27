"""Keeps one long-lived child process running: start, wait, back off, start again, stop in bounded time."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from gateway.core.clock import Clock

log = structlog.get_logger().bind(component="supervision")

_FIRST_BACKOFF_S = 0.2
_LONGEST_BACKOFF_S = 10.0
_HANGS_AFTER_S = 15.0  # of not taking what it is sent; then it is killed
_LOOK_S = 1.0
_WELL_AFTER_S = 10.0  # a child that ended and is back for less is not well yet
_STEADY_AFTER_S = 20.0  # a child that lived this long starts the next back-off from the beginning


@dataclass(frozen=True, slots=True)
class ServiceStatistics:
    """How often a child was started and how it stands."""

    name: str
    pid: int | None
    starts: int
    last_exit: int | None
    lived_s: float = 0.0

    @property
    def problem(self) -> str:
        """What is wrong with it, in words; "" where it runs, and does not come back again and again."""
        if self.pid is None:
            return f"is being restarted; it ended with status {self.last_exit}: the log says why"
        if self.last_exit is not None and self.lived_s < _WELL_AFTER_S:
            return f"is back for {self.lived_s:.0f} s after it ended with status {self.last_exit}"
        return ""


class ServiceProcess:
    """`python -m MODULE ARGS...` for as long as `run` runs."""

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Callable[[], Sequence[str]],
        clock: Clock,
        unread_s: Callable[[int], float] = lambda _pid: 0.0,
    ) -> None:
        """`unread_s` says for how long a process has not taken what it was sent."""
        self.name, self._unread_s, self._started_at = name, unread_s, 0.0
        self._module, self._arguments, self._clock = module, arguments, clock
        self._process: asyncio.subprocess.Process | None = None
        self._starts = 0
        self._last_exit: int | None = None

    async def run(self) -> None:
        """Restart the child whenever it ends, until cancelled; then SIGTERM, and SIGKILL after 2 s."""
        backoff_s = _FIRST_BACKOFF_S
        try:
            while True:
                started = self._started_at = self._clock.monotonic()
                self._starts += 1
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", self._module, *self._arguments(), stdin=asyncio.subprocess.DEVNULL
                )
                self._last_exit = await self._ended(self._process)
                lived_s = self._clock.monotonic() - started
                log.warning("child_ended", child=self.name, exit=self._last_exit, lived_s=round(lived_s, 1))
                backoff_s = (
                    _FIRST_BACKOFF_S if lived_s > _STEADY_AFTER_S else min(2 * backoff_s, _LONGEST_BACKOFF_S)
                )
                await asyncio.sleep(backoff_s)
        finally:
            await self._stop(2.0)

    def statistics(self) -> ServiceStatistics:
        """How the child stands."""
        alive = self._process is not None and self._process.returncode is None
        pid = self._process.pid if alive and self._process else None
        lived_s = self._clock.monotonic() - self._started_at
        return ServiceStatistics(self.name, pid, self._starts, self._last_exit, lived_s)

    async def _ended(self, process: asyncio.subprocess.Process) -> int:
        """Its exit status; a process that hangs is killed."""
        waiting = asyncio.ensure_future(process.wait())
        try:
            while not (await asyncio.wait((waiting,), timeout=_LOOK_S))[0]:
                if (unread_s := self._unread_s(process.pid)) > _HANGS_AFTER_S:
                    log.error("child_hangs", child=self.name, pid=process.pid, unread_s=round(unread_s, 1))
                    with contextlib.suppress(ProcessLookupError):  # it ended by itself meanwhile
                        process.kill()
            return waiting.result()
        finally:
            waiting.cancel()

    async def _stop(self, grace_s: float) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):  # it ended by itself meanwhile
            process.terminate()
        try:
            async with asyncio.timeout(grace_s):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):  # as above
                process.kill()
            await process.wait()
