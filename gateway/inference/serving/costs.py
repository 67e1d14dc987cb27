"""What work costs on this machine, measured at the start: admission asks it before a request is queued."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.core.errors import InferenceError
from gateway.inference.kv.backend import ProviderTruth


class TooLateError(InferenceError):
    """A request that could not be answered in time; nothing was begun."""


def stopwatch(truth: ProviderTruth) -> Callable[[], float]:
    """Seconds of work: on a processor the calling thread's own, whoever else has it meanwhile."""
    return time.thread_time if truth.actual == "CPUExecutionProvider" else time.perf_counter


@dataclass(frozen=True, slots=True)
class Costs:
    """Milliseconds, medians of warm runs."""

    decision_ms: float  # a cycle's measurements appended and every output decoded
    chunk_ms: float  # one prefill chunk at the window's full length
    steps_ms: tuple[tuple[int, float], ...] = ()  # rows and one forward of a token each, fewest rows first

    def seconds(self, chunks: int) -> float:
        """Of one decision with so many prefill chunks before it."""
        return (self.decision_ms + chunks * self.chunk_ms) / 1e3

    def listed(self, rows: int, forwards: int) -> float:
        """Seconds of so many forwards of `rows` rows of a token each: of others than a first answer."""
        fitting = [(count, ms) for count, ms in self.steps_ms if count <= max(1, rows)]
        if rows < 1 or not fitting:
            return 0.0
        count, ms = fitting[-1]
        return forwards * ms * rows / count / 1e3

    def ahead(self, waiting: Sequence[float]) -> float:
        """Seconds that the work of others takes which need `waiting` seconds each, alone.

        They decode together; chunks go alone, so what prefill takes stays as it is.
        """
        spared = (1.0 - self._share(len(waiting))) * self.decision_ms / 1e3
        return sum(max(0.0, alone_s - spared) for alone_s in waiting)

    def _share(self, rows: int) -> float:
        """What a row costs beside others, over what it costs alone: the largest measured number that fits."""
        fitting = [(count, ms) for count, ms in self.steps_ms if count <= max(1, rows)]
        if not fitting:
            return 1.0
        count, ms = fitting[-1]
        alone = self.steps_ms[0][1] * count / self.steps_ms[0][0]
        return min(1.0, ms / alone) if alone > 0 else 1.0

    def admit(self, now: float, due: float, ahead_s: float, own_s: float) -> None:
        """Raise `TooLateError` where the work ahead and its own end after `due` (monotonic seconds)."""
        if now + ahead_s + own_s > due:
            message = (
                f"{max(0.0, due - now) * 1e3:.1f} ms are left and an answer takes about "
                f"{(ahead_s + own_s) * 1e3:.1f} ms"
            )
            raise TooLateError(message)
