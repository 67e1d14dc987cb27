"""A supervised child that holds many requests at once and answers each when it is ready.

A request and its answer carry the same number, four bytes before the body.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Sequence

from gateway.core.errors import WorkerLostError
from gateway.supervision.worker import ChildProcess, Wire

_NUMBER = struct.Struct("!I")
_NUMBERS = 2**32


def numbered(number: int, body: bytes) -> bytes:
    """A body with its number before it."""
    return _NUMBER.pack(number) + body


def parted(body: bytes) -> tuple[int, bytes]:
    """Number and rest of what `numbered` made; raises `ValueError` for what is too short."""
    if len(body) < _NUMBER.size:
        message = f"{len(body)} bytes are no numbered body"
        raise ValueError(message)
    return _NUMBER.unpack_from(body)[0], body[_NUMBER.size :]


class _Numbered(Wire):
    """Answers come in any order."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.waiting: dict[int, asyncio.Future[bytes]] = {}
        self.heard_at = 0.0  # loop time

    def received(self, body: bytes) -> bool:
        """See `Wire`."""
        try:
            number, rest = parted(body)
        except ValueError:
            return False
        answer = self.waiting.pop(number, None)
        if answer is None:
            return False
        self.heard_at = asyncio.get_running_loop().time()
        if not answer.done():
            answer.set_result(rest)
        return True

    def fail(self, why: WorkerLostError) -> None:
        """See `Wire`."""
        waiting, self.waiting = self.waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(why)
                answer.exception()  # whoever left need not look


class NumberedWorker(ChildProcess):
    """A child with many requests in flight."""

    def __init__(self, module: str, arguments: Sequence[str] = (), *, name: str) -> None:
        self._wire = _Numbered(name)
        super().__init__(module, arguments, self._wire)
        self._numbers = itertools.count(1)

    @property
    def in_flight(self) -> int:
        """Requests without an answer yet, also those nobody waits for any more."""
        return len(self._wire.waiting)

    def silent_s(self) -> float:
        """Seconds since it last answered anything; 0 while nothing is asked of it."""
        if not self._wire.waiting:
            return 0.0
        return asyncio.get_running_loop().time() - self._wire.heard_at

    def post(self, body: bytes) -> tuple[int, asyncio.Future[bytes]]:
        """Send a request; its number, and the future answer or `WorkerLostError` where the child dies first.

        Whoever awaits it may leave: the answer is then dropped when it comes. Raises `WorkerLostError` where
        the child is gone.
        """
        if not self.alive:
            msg = f"worker `{self.name}` is not running"
            raise WorkerLostError(msg)
        loop = asyncio.get_running_loop()
        if not self._wire.waiting:
            self._wire.heard_at = loop.time()
        self.requests += 1
        number = next(self._numbers) % _NUMBERS
        answer = self._wire.waiting[number] = loop.create_future()
        self._wire.send(numbered(number, body))
        return number, answer

    def tell(self, number: int, body: bytes) -> None:
        """Send what has no answer, about the request with that number; nothing where the child is gone."""
        if self.alive:
            self._wire.send(numbered(number, body))

    async def ask(self, body: bytes, timeout_s: float) -> bytes:
        """The child's answer. On time-out or cancel the child is killed: its state is unknown.

        Raises `WorkerLostError` when there is no answer.
        """
        _, answer = self.post(body)
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
