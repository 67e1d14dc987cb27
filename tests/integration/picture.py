"""What a client of the internal port sees, kept over restarts of the daemon, and waiting for it to change."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gateway.core.errors import LinkError
from gateway.link.client import LinkClient
from gateway.link.messages import (
    Alarm,
    DecisionView,
    FeedBatch,
    FeedItem,
    GatewayState,
    ModuleState,
    OverrideState,
    PointState,
    TagInfo,
    TagState,
)

_RECONNECT_S = 0.02


@dataclass(slots=True)
class Picture:
    """The newest state of everything, and every decision in order; `seen_at` is our monotonic clock."""

    gateway: GatewayState | None = None
    points: dict[str, PointState] = field(default_factory=dict)
    modules: dict[str, ModuleState] = field(default_factory=dict)
    overrides: dict[str, OverrideState] = field(default_factory=dict)  # those that ended, too
    alarms: dict[str, Alarm] = field(default_factory=dict)
    tags: dict[str, TagState] = field(default_factory=dict)
    decisions: dict[str, DecisionView] = field(default_factory=dict)  # a later view replaces an earlier one
    seen_at: dict[str, float] = field(default_factory=dict)
    connected: bool = False

    @property
    def mode(self) -> str:
        """Mode of the demo's one decision point."""
        point = self.points.get("buffer-tank")
        return point.mode if point is not None else ""

    @property
    def in_control(self) -> bool:
        """Whether the PLC says that the gateway is in control."""
        point = self.points.get("buffer-tank")
        return point is not None and point.in_control

    @property
    def last(self) -> DecisionView | None:
        """The newest decision."""
        return next(reversed(self.decisions.values()), None)

    def module(self, name: str) -> str:
        """State of a module, "" where unknown."""
        found = self.modules.get(name)
        return found.state if found is not None else ""

    def since(self, at: float) -> list[DecisionView]:
        """Decisions first seen after a moment of our monotonic clock."""
        return [view for name, view in self.decisions.items() if self.seen_at[name] >= at]

    def wrote(self, at: float) -> bool:
        """Whether a write was confirmed for a decision first seen after that moment."""
        return any(view.write_outcome == "confirmed" for view in self.since(at))

    def seen_alarm_with(self, words: str) -> bool:
        """Whether an alarm stands whose cause has these words."""
        return any(alarm.active and words in alarm.cause for alarm in self.alarms.values())

    def take(self, batch: FeedBatch) -> None:
        """One batch of the Feed."""
        for item in batch.items:
            self._item(item)

    def _item(self, item: FeedItem) -> None:
        match item:
            case GatewayState():
                self.gateway = item
            case PointState():
                self.points[item.id] = item
            case ModuleState():
                self.modules[item.id or item.file] = item
            case OverrideState():
                self.overrides[item.id] = item
            case Alarm():
                self.alarms[item.source] = item
            case TagState():
                self.tags[item.id] = item
            case DecisionView():
                self._decision(item)
            case TagInfo():
                pass

    def _decision(self, view: DecisionView) -> None:
        held = self.decisions.get(view.id)
        if held is not None and held.write_outcome and not view.write_outcome:
            return  # a snapshot's events may come twice
        self.seen_at.setdefault(view.id, time.monotonic())
        self.decisions[view.id] = view


def lost_worker(reason: str) -> bool:
    """Whether a decision has no verdict because of a worker that ended, and not for want of time."""
    return "worker" in reason and not reason.startswith("no solver worker was free before the deadline")


class Follower:
    """Keeps a `Picture` up to date and wakes whoever waits for it."""

    def __init__(self, socket_path: Path) -> None:
        self.picture = Picture()
        self._socket = socket_path
        self._changed = asyncio.Condition()

    async def run(self) -> None:
        """Follow the Feed, over restarts, until cancelled."""
        while True:
            with contextlib.suppress(LinkError):  # the daemon is away; the picture stays
                client = await LinkClient.connect(self._socket, "test")
                try:
                    async for batch in client.feed():
                        self.picture.connected = True
                        self.picture.take(batch)
                        await self._wake()
                finally:
                    self.picture.connected = False
                    await client.aclose()
            await self._wake()
            await asyncio.sleep(_RECONNECT_S)

    async def until(self, holds: Callable[[Picture], bool], timeout_s: float) -> bool:
        """True as soon as it holds, False after the time-out."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: holds(self.picture))
        except TimeoutError:
            return False
        return True

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()
