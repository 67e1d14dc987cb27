"""Keeps the mirror linked: one fresh connection after another, and a question a second that proves life."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, NoReturn, Protocol

import structlog

from gateway.core.errors import LinkError
from gateway.link.messages import Answer, FeedBatch
from gateway.web.mirror import Mirror

log = structlog.get_logger().bind(component="web")

_HEARTBEAT_S = 1.0
_HEARTBEAT_LIMIT_MS = 2000.0
_RETRY_S = 0.5


class GatewayLink(Protocol):
    """One connection to the internal port, as `gateway.link.client.LinkClient` is one."""

    def feed(self) -> AsyncIterator[FeedBatch]:
        """Batches, beginning with a snapshot; raises `LinkError` at the end."""
        ...

    async def ask(
        self, verb: str, args: dict[str, Any] | None = None, *, user: str = "", deadline_ms: float = 2000.0
    ) -> Answer:
        """The answer, a refusal included; raises `LinkError` when there is none."""
        ...

    async def aclose(self) -> None:
        """Close."""
        ...


async def keep_mirrored(
    connect: Callable[[], Awaitable[GatewayLink]],
    mirror: Mirror,
    *,
    heartbeat_s: float = _HEARTBEAT_S,
    retry_s: float = _RETRY_S,
) -> NoReturn:
    """Follow the Feed until cancelled; every loss is told to the mirror."""
    while True:
        try:
            await _follow(connect, mirror, heartbeat_s)
        except* LinkError as group:
            first = next(_leaves(group))
            if not mirror.problem:
                log.warning("link_lost", problem=str(first))
            mirror.lose(str(first))
        await asyncio.sleep(retry_s)


async def _follow(connect: Callable[[], Awaitable[GatewayLink]], mirror: Mirror, heartbeat_s: float) -> None:
    link = await connect()
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_mirror_feed(link, mirror), name="web-feed")
            tasks.create_task(_prove_life(link, heartbeat_s), name="web-heartbeat")
    finally:
        await link.aclose()


async def _mirror_feed(link: GatewayLink, mirror: Mirror) -> None:
    async for batch in link.feed():
        if mirror.problem:
            log.info("link_up", snapshot=batch.snapshot)
        mirror.apply(batch)


async def _prove_life(link: GatewayLink, heartbeat_s: float) -> None:
    """An open socket to a gateway that stands still is not a link: any answer will do, none will not."""
    while True:
        await asyncio.sleep(heartbeat_s)
        await link.ask("status", deadline_ms=_HEARTBEAT_LIMIT_MS)


def _leaves(group: BaseExceptionGroup[LinkError]) -> Iterator[LinkError]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
