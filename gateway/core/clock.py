"""Time is an argument: deadlines use monotonic seconds, records use UTC nanoseconds; the two never mix."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """A source of both kinds of time."""

    def monotonic(self) -> float:
        """Seconds, for ages and deadlines."""
        ...

    def utc_ns(self) -> int:
        """Nanoseconds since 1970-01-01T00:00Z, for records."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def monotonic(self) -> float:
        """Seconds of CLOCK_MONOTONIC, comparable between processes of one boot."""
        return time.monotonic()

    def utc_ns(self) -> int:
        """Nanoseconds of CLOCK_REALTIME."""
        return time.time_ns()


@dataclass(slots=True)
class FakeClock:
    """A clock that moves only when told; the twin of `SystemClock` for tests and harnesses."""

    now_s: float = 1_000.0
    utc_now_ns: int = 1_700_000_000_000_000_000

    def monotonic(self) -> float:
        """Seconds set by the last `advance`."""
        return self.now_s

    def utc_ns(self) -> int:
        """Nanoseconds set by the last `advance`."""
        return self.utc_now_ns

    def advance(self, seconds: float) -> None:
        """Move both clocks forward together."""
        self.now_s += seconds
        self.utc_now_ns += round(seconds * 1e9)


@dataclass(frozen=True, slots=True)
class Deadline:
    """The one point in monotonic time after which a decision may no longer write."""

    at: float

    @classmethod
    def after(cls, seconds: float, clock: Clock) -> Deadline:
        """The deadline that many seconds from now."""
        return cls(clock.monotonic() + seconds)

    def remaining(self, clock: Clock) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at - clock.monotonic())

    def passed(self, clock: Clock) -> bool:
        """True when nothing may be written any more."""
        return clock.monotonic() >= self.at
