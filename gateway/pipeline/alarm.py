"""One standing alarm per decision point, with delays so that a passing trouble is not an alarm (S28)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

_NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class AlarmState:
    """What a person sees: active until good again, standing until acknowledged as well."""

    active: bool
    acknowledged: bool
    cause: str
    since: float  # monotonic s

    @property
    def stands(self) -> bool:
        """Whether there is still something to see."""
        return self.active or not self.acknowledged


_QUIET = AlarmState(active=False, acknowledged=True, cause="", since=0.0)


@dataclass(slots=True)
class _Line:
    """The delays of one trouble."""

    bad_in_a_row: int = 0
    last_bad: float | None = None
    state: AlarmState = _QUIET


class PointAlarm:
    """Raised after `on_after` bad decisions in a row, cleared after `off_after_s` without one.

    What is only watched, and refuses nothing (S5), has a line of its own in the same alarm, with the same
    delays: it neither hides a trouble of the decisions nor is hidden by one.
    """

    def __init__(self, on_after: int = 3, off_after_s: float = 5.0) -> None:
        self._on_after, self._off_after_s = on_after, off_after_s
        self._own = _Line()
        self._watched: dict[str, _Line] = {}  # by the name of what is watched
        self._latched = False

    @property
    def state(self) -> AlarmState:
        """All lines as one alarm."""
        lines = [line.state for line in (self._own, *self._watched.values()) if line.state.stands]
        if not lines or lines == [self._own.state]:
            return self._own.state
        return AlarmState(
            active=any(line.active for line in lines),
            acknowledged=all(line.acknowledged for line in lines),
            cause="; ".join(line.cause for line in lines),
            since=min(line.since for line in lines),
        )

    @property
    def only_watched(self) -> bool:
        """Whether the alarm stands for nothing that stops a decision or a write."""
        return not self._own.state.stands and any(line.state.stands for line in self._watched.values())

    def judge(
        self, cause: str, now: float, *, suppressed: bool, watched: Mapping[str, str] | None = _NOTHING
    ) -> bool:
        """Take one decision's trouble ("" for none), and by name what is watched; True when it changed.

        `watched` is None where nobody knows: what was watched stays as it was.
        """
        before = self.state
        self._take(self._own, cause, now, suppressed=suppressed, latched=self._latched)
        for name in {} if watched is None else {**self._watched, **watched}:
            line = self._watched.setdefault(name, _Line())
            self._take(line, (watched or {}).get(name, ""), now, suppressed=suppressed)
        self._forget()
        return self.state != before

    def trip(self, cause: str, now: float) -> bool:
        """Raise at once, for what needs no delay (a change nobody requested); True when it changed."""
        before = self.state
        if not self._own.state.active:
            self._own.state = AlarmState(active=True, acknowledged=False, cause=cause, since=now)
        self._own.last_bad = now
        return self.state != before

    def latch(self, cause: str, now: float) -> bool:
        """Raise what stands until a person acknowledges it, over what stood before; True when it changed."""
        before, own = self.state, self._own.state
        if not (self._latched and own.cause == cause and not own.acknowledged):
            self._own.state = AlarmState(active=True, acknowledged=False, cause=cause, since=now)
        self._latched, self._own.last_bad = True, now
        return self.state != before

    def acknowledge(self) -> bool:
        """A person has seen it; True when that was news."""
        before, self._latched = self.state, False
        for line in (self._own, *self._watched.values()):
            line.state = replace(line.state, acknowledged=True)
        self._forget()
        return self.state != before

    def _take(self, line: _Line, cause: str, now: float, *, suppressed: bool, latched: bool = False) -> None:
        before = line.state
        if suppressed:
            line.bad_in_a_row = 0
            if before.active:
                line.state = replace(before, active=False, since=now)
        elif cause:
            line.bad_in_a_row += 1
            line.last_bad = now
            if line.bad_in_a_row >= self._on_after and not before.active:
                kept = before.cause if latched else cause  # what a person must clear comes first
                line.state = AlarmState(active=True, acknowledged=False, cause=kept, since=now)
        else:
            line.bad_in_a_row = 0
            quiet = line.last_bad is None or now - line.last_bad >= self._off_after_s
            if before.active and quiet:
                line.state = replace(before, active=False, since=now)

    def _forget(self) -> None:
        """What is watched and has nothing to say any more."""
        for name in [
            n for n, line in self._watched.items() if not line.bad_in_a_row and not line.state.stands
        ]:
            del self._watched[name]
