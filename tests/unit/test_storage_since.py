"""Where a stretch of the audit log begins, on a machine whose clock was lost for a while."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.storage.recorded import RecordedDecisions
from tests.unit.backtest_log import START_NS, record, write_log
from tests.unit.solver_demo import Situation, proposal

DAY_NS = 86_400 * 1_000_000_000


def log(path: Path, days: Sequence[float]) -> RecordedDecisions:
    """An audit log of one decision at each of these days, in this order, each with its outcome behind it."""
    made = record(0, Situation(), proposal())
    records = [
        replace(made, id=type(made.id)(f"d-{n}"), received_utc_ns=START_NS + round(day * DAY_NS))
        for n, day in enumerate(days)
    ]
    return RecordedDecisions(write_log(path / "audit.sqlite", records))


def row(decision: int) -> int:
    """Of the decision by its number: behind a start, each has an outcome."""
    return 2 + 2 * decision


@pytest.mark.parametrize(
    ("days", "since", "first"),
    [
        ([0, 1, 2, 3, 4], 1.5, 2),
        ([0, 1, 2, 3, 4], -9, 0),
        ([0, 1, 2, -19_000, -19_000, -19_000, -19_000, 3, 4], 0.5, 1),  # began in 1970, and was then set
        ([0, 1, -19_000, -19_000, 2], 1.5, 4),
        ([0, 9, 9, 9, 1, 2, 3], 1.5, 1),  # ran ahead, and was set back
        ([0, *[1.0] * 30, *[-19_000] * 3_000, 2], 0.5, 1),
    ],
)
def test_what_was_decided_since_a_day_begins_before_the_clock_was_lost(
    tmp_path: Path, days: Sequence[float], since: float, first: int
) -> None:
    found = log(tmp_path, days)
    begins, ends = found.since(START_NS + round(since * DAY_NS))
    found.close()
    assert row(first) - 1 - len(days) // 500 <= begins <= row(first)
    assert ends == row(len(days)) - 1


def test_nothing_was_decided_since_tomorrow(tmp_path: Path) -> None:
    found = log(tmp_path, [0, 1, -19_000, 2])
    begins, _ = found.since(START_NS + 3 * DAY_NS)
    found.close()
    assert begins > row(3)
