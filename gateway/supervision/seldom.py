"""What strangers can bring about as often as they like fills no log."""

from __future__ import annotations

PERIOD_S = 10.0


class Seldom:
    """Tells the first of a kind of event, then at most one a period, with how many there were since."""

    def __init__(self, period_s: float = PERIOD_S) -> None:
        self._period_s, self._next, self._count = period_s, float("-inf"), 0

    def due(self, now: float) -> int:
        """One more of them at `now` (monotonic seconds): how many to tell of, 0 where it is too soon."""
        self._count += 1
        if now < self._next:
            return 0
        count, self._count, self._next = self._count, 0, now + self._period_s
        return count
