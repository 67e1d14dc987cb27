"""Feeds systemd's watchdog only while the decision loops live.

A timer that pings by itself proves that a timer runs. Here a loop says `fed` after its own health check, and
the ping goes out only while every registered loop said so recently enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from gateway.core.clock import Clock
from gateway.core.health import PartHealth

log = structlog.get_logger().bind(component="watchdog")


@dataclass(frozen=True, slots=True)
class WatchdogStatistics:
    """Counters since start. `silent` names the loops that are overdue now."""

    pings: int
    withheld: int
    silent: tuple[str, ...]


class Watchdog:
    """Knows which loops are alive. With no loop registered nothing is pinged: no loop, no decisions."""

    def __init__(
        self,
        notify: Callable[[str], bool],
        clock: Clock,
        *,
        interval_s: float | None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._notify, self._clock, self._sleep = notify, clock, sleep
        self._period_s = interval_s / 3 if interval_s is not None else 1.0
        self._within_s: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._pings = self._withheld = 0
        self._was_silent: tuple[str, ...] = ()

    def expect(self, loop: str, within_s: float) -> None:
        """From now on `loop` must be fed at least every `within_s` seconds."""
        self._within_s[loop] = within_s
        self._last[loop] = self._clock.monotonic()

    def forget(self, loop: str) -> None:
        """`loop` ended on purpose."""
        self._within_s.pop(loop, None)
        self._last.pop(loop, None)

    def fed(self, loop: str) -> None:
        """`loop` has just gone round and found itself healthy. Cheap; a loop nobody expects is ignored."""
        if loop in self._within_s:
            self._last[loop] = self._clock.monotonic()

    def silent(self) -> tuple[str, ...]:
        """Loops that are overdue."""
        now = self._clock.monotonic()
        return tuple(name for name, limit in self._within_s.items() if now - self._last[name] > limit)

    def tick(self) -> bool:
        """Ping systemd if every loop lives; whether it was pinged."""
        silent = self.silent()
        if silent != self._was_silent:
            if silent:
                log.error("loop_fell_silent", loops=silent)
            else:
                log.info("loop_spoke_again", loops=self._was_silent)
            self._was_silent = silent
        if silent or not self._within_s:
            self._withheld += 1
            return False
        self._pings += 1
        self._notify("WATCHDOG=1")
        return True

    async def run(self) -> None:
        """Tick three times an interval, until cancelled."""
        while True:
            self.tick()
            await self._sleep(self._period_s)

    def statistics(self) -> WatchdogStatistics:
        """Counters since start."""
        return WatchdogStatistics(self._pings, self._withheld, self.silent())

    def health(self) -> PartHealth:
        """Not ok while a loop is overdue."""
        silent = self.silent()
        text = ", ".join(f"loop `{n}` silent for over {self._within_s[n]:g} s" for n in silent)
        return PartHealth("loops", not silent, text or "ok")
