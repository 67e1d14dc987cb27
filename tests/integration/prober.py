"""Asks for decisions twenty times a second over the internal port, whatever happens to the daemon."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gateway.core.errors import LinkError, LinkTimeoutError
from gateway.link.client import LinkClient
from tests.integration.house import SLOWEST

PERIOD_S = 0.05


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer; moments are monotonic seconds."""

    asked_at: float
    answered_at: float
    outcome: str  # of the verdict, or `none`
    written_by: str

    @property
    def correct(self) -> bool:
        """A verdict on the model's proposal, not a fallback's and not ignorance."""
        return self.outcome in {"permitted", "repaired"} and self.written_by == "verdict"


@dataclass(slots=True)
class Prober:
    """Open loop: a slow answer does not delay the next question."""

    socket_path: Path
    point: str
    replies: list[Reply] = field(default_factory=list)
    _client: LinkClient | None = None
    _clients: list[LinkClient] = field(default_factory=list)
    _connecting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @asynccontextmanager
    async def probing(self) -> AsyncIterator[None]:
        """Ask while the block runs."""
        async with asyncio.TaskGroup() as tasks:
            loop = tasks.create_task(self._loop(tasks))
            try:
                yield
            finally:
                loop.cancel()
        for client in self._clients:
            await client.aclose()

    async def next_correct(self, after: float, usual_s: float) -> float:
        """Seconds from `after` to the first correct verdict that was asked for since.

        `usual_s` is the most that a quiet machine needs.
        """

        def first() -> Reply | None:
            return next((r for r in self.replies if r.correct and r.asked_at >= after), None)

        async with asyncio.timeout(SLOWEST * usual_s), self._changed:
            await self._changed.wait_for(lambda: first() is not None)
        found = first()
        assert found is not None
        return found.answered_at - after

    def others(self, after: float) -> dict[str, int]:
        """How many answers since were something else, by kind."""
        counted: dict[str, int] = {}
        for reply in self.replies:
            if reply.asked_at >= after and not reply.correct:
                kind = f"fallback {reply.written_by}" if reply.written_by else reply.outcome
                counted[kind] = counted.get(kind, 0) + 1
        return counted

    async def _loop(self, tasks: asyncio.TaskGroup) -> None:
        due = time.monotonic()
        while True:
            tasks.create_task(self._one())
            due += PERIOD_S
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _one(self) -> None:
        asked_at, outcome, written_by = time.monotonic(), "none", ""
        try:
            client = await self._connected()
            answer = await client.ask("decide", {"point": self.point}, deadline_ms=1000)
        except LinkTimeoutError:
            outcome = "late"
        except LinkError:  # the daemon is away
            self._client = None
        else:
            if answer.ok:
                outcome, written_by = answer.result["outcome"], answer.result["written_by"]
        async with self._changed:
            self.replies.append(Reply(asked_at, time.monotonic(), outcome, written_by))
            self._changed.notify_all()

    async def _connected(self) -> LinkClient:
        async with self._connecting:
            if self._client is None:
                self._client = await LinkClient.connect(self.socket_path, "prober")
                self._clients.append(self._client)
            return self._client
