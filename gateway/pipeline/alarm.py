"""One standing alarm per decision point, with delays so that a passing trouble is not an alarm (S28)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AlarmState:
    """What a person sees: active until good again, standing until acknowledged as well."""

    active: bool
    acknowledged: bool
    cause: str
    since: float  # monotonic s


class PointAlarm:
    """Raised after `on_after` bad decisions in a row, cleared after `off_after_s` without one."""

    def __init__(self, on_after: int = 3, off_after_s: float = 5.0) -> None:
        self._on_after, self._off_after_s = on_after, off_after_s
        self._bad_in_a_row = 0
        self._last_bad: float | None = None
        self._latched = False
        self.state = AlarmState(active=False, acknowledged=True, cause="", since=0.0)

    def judge(self, cause: str, now: float, *, suppressed: bool) -> bool:
        """Take one decision's trouble ("" for none); True when the alarm's state changed."""
        before = self.state
        if suppressed:
            self._bad_in_a_row = 0
            if self.state.active:
                self.state = AlarmState(
                    active=False, acknowledged=before.acknowledged, cause=before.cause, since=now
                )
            return self.state != before
        if cause:
            self._bad_in_a_row += 1
            self._last_bad = now
            if self._bad_in_a_row >= self._on_after and not self.state.active:
                kept = before.cause if self._latched else cause  # what a person must clear comes first
                self.state = AlarmState(active=True, acknowledged=False, cause=kept, since=now)
        else:
            self._bad_in_a_row = 0
            quiet = self._last_bad is None or now - self._last_bad >= self._off_after_s
            if self.state.active and quiet:
                self.state = AlarmState(
                    active=False, acknowledged=before.acknowledged, cause=before.cause, since=now
                )
        return self.state != before

    def trip(self, cause: str, now: float) -> bool:
        """Raise at once, for what needs no delay (a change nobody requested); True when it changed."""
        before = self.state
        if not self.state.active:
            self.state = AlarmState(active=True, acknowledged=False, cause=cause, since=now)
        self._last_bad = now
        return self.state != before

    def latch(self, cause: str, now: float) -> bool:
        """Raise what stands until a person acknowledges it, over what stood before; True when it changed."""
        before = self.state
        if not (self._latched and before.cause == cause and not before.acknowledged):
            self.state = AlarmState(active=True, acknowledged=False, cause=cause, since=now)
        self._latched, self._last_bad = True, now
        return self.state != before

    def acknowledge(self) -> bool:
        """A person has seen it; True when that was news."""
        before, self._latched = self.state, False
        self.state = AlarmState(
            active=before.active, acknowledged=True, cause=before.cause, since=before.since
        )
        return self.state != before
