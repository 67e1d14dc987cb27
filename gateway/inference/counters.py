"""Counters of a model engine, and their sum over engines that followed one another."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gateway.inference.messages import Statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatistics:
    """Counters of a model engine since it was started."""

    proposals: int
    failed: int
    lost: int
    histories_sent: int
    clamped: int
    masked_out: float  # of the newest answer: a drift signal
    engine_ms: float  # of the newest answer
    reused_tokens: int
    computed_tokens: int
    worker: Statistics | None

    def after(self, earlier: EngineStatistics) -> EngineStatistics:
        """The counts go on from those of the engine before; what is of the newest answer does not."""
        return replace(
            self,
            proposals=self.proposals + earlier.proposals,
            failed=self.failed + earlier.failed,
            lost=self.lost + earlier.lost,
            histories_sent=self.histories_sent + earlier.histories_sent,
            clamped=self.clamped + earlier.clamped,
        )
