"""What work costs on this machine, measured at the start: admission asks it before a request is queued."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.core.errors import InferenceError


class TooLateError(InferenceError):
    """A request that could not be answered in time; nothing was begun."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Milliseconds, medians of warm runs."""

    decision_ms: float  # a cycle's measurements appended and every output decoded
    chunk_ms: float  # one prefill chunk at the window's full length

    def seconds(self, chunks: int) -> float:
        """Of one decision with so many prefill chunks before it."""
        return (self.decision_ms + chunks * self.chunk_ms) / 1e3

    def admit(self, now: float, due: float, ahead_s: float, own_s: float) -> None:
        """Raise `TooLateError` where the work ahead and its own end after `due` (monotonic seconds)."""
        if now + ahead_s + own_s > due:
            message = (
                f"{max(0.0, due - now) * 1e3:.1f} ms are left and an answer takes about "
                f"{(ahead_s + own_s) * 1e3:.1f} ms"
            )
            raise TooLateError(message)
