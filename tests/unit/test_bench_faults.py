"""What the kill -9 benchmark makes of its rounds."""

from __future__ import annotations

import pytest

from tests.bench.faults import figures
from tests.integration.kills import Recoveries


def rounds(what: str, *answers: tuple[float, dict[str, int]]) -> Recoveries:
    found = Recoveries(what)
    for took_s, others in answers:
        found.note(took_s, others)
    return found


def test_the_slower_part_counts_and_fallbacks_are_no_recovery() -> None:
    solver = rounds("solver worker", (0.05, {}), (0.9, {"late": 2}), (0.06, {}))
    engine = rounds("engine worker", (0.4, {"fallback backup": 7}), (0.5, {"fallback backup": 6, "none": 1}))
    daemon = rounds("daemon", (3.3, {"none": 60, "fallback hold": 1}))
    found = {figure.name: figure.value for figure in figures([solver, engine, daemon])}
    assert found == pytest.approx(
        {
            "worker_recovery_median_ms": 450.0,
            "worker_recovery_worst_ms": 900.0,
            "daemon_recovery_median_s": 3.3,
            "daemon_recovery_worst_s": 3.3,
            "fallback_verdicts": 14.0,
        }
    )


def test_a_missed_bar_is_said() -> None:
    slow = rounds("engine worker", (0.9, {}), (1.0, {}))
    assert "MISSED" in slow.summary(bar_s=0.83)
    assert "MISSED" not in slow.summary(bar_s=1.0)
    assert "2 rounds: median 950 ms" in slow.summary(bar_s=1.0)
