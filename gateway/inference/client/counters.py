"""Counters of a model engine, and their sum over engines that followed one another."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from gateway.inference.messages import Ready, Statistics

_WITHOUT_PAGES = ("sessions", "evicted", "decisions", "warmed", "rebuilt", "forwards", "rows")


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


def shown_costs(report: Ready | None) -> dict[str, float]:
    """Milliseconds of work as the worker measured them when it got ready; `step_of_8` is a forward of 8."""
    if report is None:
        return {}
    steps = {f"step_of_{rows}": ms for rows, ms in report.steps_ms}
    told = {
        "decision": report.decision_ms,
        "slow": report.slow_ms,
        "prefill": report.prefill_ms,
        "chunk": report.chunk_ms,
    }
    return {name: round(ms, 3) for name, ms in (told | steps).items()}


def shown_memory(counted: Statistics) -> dict[str, float]:
    """Sessions and forwards of a worker, and its pool of pages where its model has one."""
    told = {name: round(float(value), 4) for name, value in msgspec.structs.asdict(counted).items()}
    return told if counted.pages else {name: told[name] for name in _WITHOUT_PAGES}


def shown_facts(report: Ready | None) -> dict[str, str]:
    """What a worker showed when it got ready, for status and records; nothing before."""
    if report is None:
        return {}
    return {
        "ep_actual": report.ep_actual,
        "runtime": report.runtime,
        "cpu": report.cpu,
        "kv_aliased": "yes" if report.aliased else "no",
        "incremental_error": f"{report.incremental_error:.2g}",
        "decision_ms": f"{report.decision_ms:.2f}",
        "slow_ms": f"{report.slow_ms:.2f}",
        "prefill_ms": f"{report.prefill_ms:.2f}",
        "chunk_ms": f"{report.chunk_ms:.2f}",
        "steps_ms": ", ".join(f"{rows}: {ms:.2f}" for rows, ms in report.steps_ms),
        "rows_a_forward": str(report.widest),
        "batch_independent": "yes" if report.batch_independent else "no",
    }
