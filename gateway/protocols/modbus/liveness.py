"""Whether a device's program still runs (S14). Pure: counts and times in, an opinion out."""

from __future__ import annotations

from gateway.core.quality import StatusCode
from gateway.core.tag import Scalar


class LivenessWatch:
    """Watches one counter. Until it has been seen to move nothing is known to be live."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._last: Scalar | None = None
        self._stands_since: float | None = None
        self.proved = False  # seen to move since the last `restart`
        self.readings = 0
        self.status = StatusCode.UncertainInitialValue

    @property
    def frozen(self) -> bool:
        """True while the counter has stood still for too long."""
        return self.status is StatusCode.UncertainLastUsableValue

    def saw(self, count: Scalar | None, at: float) -> StatusCode:
        """The best status the device's values may have after this reading of the counter, taken at `at` s."""
        self.readings += 1
        if count is not None and count != self._last:
            self.proved = self._last is not None
            self._last, self._stands_since = count, at
        if self._stands_since is None or at - self._stands_since > self._limit_s:
            self.status = StatusCode.UncertainLastUsableValue
        else:
            self.status = StatusCode.Good if self.proved else StatusCode.UncertainInitialValue
        return self.status

    def moving(self, now: float) -> bool:
        """Whether the counter was seen to move, last within the limit before `now`."""
        stands_since = self._stands_since
        return self.proved and stands_since is not None and now - stands_since <= self._limit_s

    def restart(self) -> None:
        """A new connection, perhaps to another program: what was seen before proves nothing."""
        self._last = self._stands_since = None
        self.proved, self.readings = False, 0
        self.status = StatusCode.UncertainInitialValue


class BackOff:
    """Waiting times that double up to a cap, in seconds."""

    def __init__(self, first_s: float, cap_s: float) -> None:
        self._first_s, self._cap_s = first_s, cap_s
        self._next_s = first_s

    def next_s(self) -> float:
        """How long to wait now; the next wait is twice as long."""
        now_s, self._next_s = self._next_s, min(2 * self._next_s, self._cap_s)
        return now_s

    def reset(self) -> None:
        """Something worked."""
        self._next_s = self._first_s
