"""What each constraint has done: counted beside the decisions, kept over a restart, bounded."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from gateway.cli.runtime.coverage import finding, is_quiet, margins, table
from gateway.core.clock import FakeClock
from gateway.core.decision import DecisionRecord, Finding, Holds, Unknown, Violated
from gateway.core.errors import StorageError
from gateway.core.margins import BINS, EDGES, bin_of, ends_of
from gateway.daemon.coverage import Coverage
from gateway.link.messages import ConstraintCoverage, FeedBatch
from gateway.storage import coverage as stored
from gateway.storage.coverage import CoverageBook
from gateway.web.metrics import exposition
from gateway.web.mirror import Mirror
from tests.unit.backtest_log import SECOND_NS, START_NS, record
from tests.unit.solver_demo import LOWER_LEVEL, Situation, module, proposal, rule_set
from tests.unit.web_fakes import gateway

DAY_NS = 86_400 * SECOND_NS


def holds(margin: str | None, constraint: str = "no-overflow") -> Holds:
    return Holds("buffer-tank", constraint, None if margin is None else Fraction(margin))


def violated(margin: str | None, constraint: str = "no-overflow") -> Violated:
    return Violated("buffer-tank", constraint, "critical", None if margin is None else Fraction(margin), {})


def decided(number: int, *findings: Finding) -> DecisionRecord:
    return replace(record(number, Situation(), proposal()), findings=findings)


def noted(book: CoverageBook, *records: DecisionRecord, revision: int | None = 7) -> CoverageBook:
    for found in records:
        book.note(found, lambda _generation, _module: revision)
    return book


def test_margins_fall_into_bins_that_meet_without_gap_on_both_sides_of_zero() -> None:
    margins_ = (-60_000.0, -0.0005, 0.0, 0.0005, 0.001, 60_000.0)
    assert [bin_of(m) for m in margins_] == [0, 21, 22, 22, 23, BINS - 1]
    assert ends_of(bin_of(0.3)) == (0.2, 0.5)
    assert ends_of(0) == (None, EDGES[0])
    assert ends_of(BINS - 1) == (EDGES[-1], None)
    assert all(ends_of(n)[1] == ends_of(n + 1)[0] for n in range(BINS - 1))


def test_fired_bound_and_least_margin_are_kept_with_their_times(tmp_path: Path) -> None:
    book = noted(
        CoverageBook(tmp_path / "coverage.json"),
        decided(1, holds("0.3")),
        decided(2, violated("-0.2")),
        decided(3, holds("0")),
        decided(4, Unknown("buffer-tank", "no-overflow", "late")),
        decided(5, holds(None)),
    )
    found = book.of("buffer-tank", "no-overflow")
    assert found is not None
    assert (found.judged, found.fired, found.unknown) == (5, 1, 1)
    assert found.fired_ns == START_NS + 2 * SECOND_NS
    assert found.bound_ns == START_NS + 3 * SECOND_NS  # no margin left
    assert (found.least, found.least_ns) == (-0.2, START_NS + 2 * SECOND_NS)
    assert sum(found.margins) == 3
    assert found.margins[bin_of(-0.2)] == 1


async def test_counts_survive_a_restart_and_another_revision_begins_anew(tmp_path: Path) -> None:
    book = noted(CoverageBook(tmp_path / "coverage.json"), decided(1, violated("-1")))
    await book.flush()
    again = noted(CoverageBook(tmp_path / "coverage.json"), decided(2, holds("1")))
    found = again.of("buffer-tank", "no-overflow")
    assert found is not None
    assert (found.judged, found.fired, found.since_ns) == (2, 1, START_NS + SECOND_NS)
    noted(again, decided(3, holds("1")), revision=8)
    found = again.of("buffer-tank", "no-overflow")
    assert found is not None
    assert (found.revision, found.judged, found.fired) == (8, 1, 0)
    noted(again, decided(4, holds("1")), revision=None)  # its rule set is forgotten
    assert found.judged == 1


async def test_a_broken_file_begins_anew_and_says_so_and_one_that_cannot_be_written_is_an_error(
    tmp_path: Path,
) -> None:
    path = tmp_path / "coverage.json"
    path.write_text('{"format": 1, "constraints": [{"module": 3}]}')
    book = CoverageBook(path)
    assert not list(book.rows())
    assert "cannot be read" in book.problem
    noted(book, decided(1, holds("1")))
    path.unlink()
    path.mkdir()
    with pytest.raises(StorageError, match="cannot be written"):
        await book.flush()
    path.rmdir()
    await book.flush()  # nothing was lost
    assert CoverageBook(path).of("buffer-tank", "no-overflow") is not None


def test_the_book_is_bounded_and_forgets_what_was_judged_longest_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "MOST", 3)
    book = CoverageBook(tmp_path / "coverage.json")
    noted(book, *(decided(n, holds("1", f"rule-{n}")) for n in range(6)))
    assert [row.constraint for row in book.rows()] == ["rule-3", "rule-4", "rule-5"]
    assert book.forgotten == 3


def beside(tmp_path: Path) -> tuple[Coverage, list[ConstraintCoverage]]:
    told: list[ConstraintCoverage] = []
    rules = rule_set()
    clock = FakeClock()
    book = CoverageBook(tmp_path / "coverage.json")
    return Coverage(book, lambda g: rules if g == 1 else None, lambda: 1, clock, told.append), told


async def test_decisions_are_counted_off_the_lane_and_kept_when_the_gateway_stops(tmp_path: Path) -> None:
    coverage, _ = beside(tmp_path)
    coverage.look(decided(1, violated("-0.5")))
    coverage.look(replace(decided(2, violated("-0.5")), what_if=True))  # says nothing of the plant
    assert coverage.statistics().noted == 0  # nothing was done in the lane
    running = asyncio.create_task(coverage.run())
    await asyncio.sleep(0)  # it begins; what is not counted yet is counted when it ends
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert coverage.statistics().noted == 1
    kept = CoverageBook(tmp_path / "coverage.json").of("buffer-tank", "no-overflow")
    assert kept is not None
    assert kept.fired == 1


async def test_every_constraint_in_force_is_listed_though_it_was_never_judged(tmp_path: Path) -> None:
    coverage, _ = beside(tmp_path)
    found = {c.id: c for c in coverage.states()}
    assert {"buffer-tank/no-overflow", "buffer-tank/pump-ramp", "buffer-tank/safe_set[1]"} <= found.keys()
    assert found["buffer-tank/no-overflow"].judged == 0
    assert found["buffer-tank/prefer-slow"].kind == "informational"


async def test_what_is_in_force_no_more_is_told_once_as_gone(tmp_path: Path) -> None:
    told: list[ConstraintCoverage] = []
    generation = [1]
    sets = {1: rule_set(), 2: rule_set(module(LOWER_LEVEL))}
    book = CoverageBook(tmp_path / "coverage.json")
    coverage = Coverage(book, sets.get, lambda: generation[0], FakeClock(), told.append)
    coverage.tell()
    assert not any(state.gone for state in told)
    generation[0] = 2
    for times in (1, 0):
        told.clear()
        coverage.tell()
        assert sum(s.gone and s.id == "buffer-tank/no-overflow" for s in told) == times
        assert any(s.id == "lower-level-limit/lower-level" and not s.gone for s in told)


async def test_more_decisions_than_can_wait_are_dropped_and_counted(tmp_path: Path) -> None:
    coverage, _ = beside(tmp_path)
    for number in range(1_005):
        coverage.look(decided(number, holds("1")))
    assert coverage.statistics().dropped == 5


def state(**changes: object) -> ConstraintCoverage:
    fields: dict[str, object] = {
        "id": "buffer-tank/no-overflow",
        "kind": "critical",
        "revision": 7,
        "since_ns": START_NS,
        "judged": 10,
        "fired": 0,
        "unknown": 0,
        "judged_ns": START_NS,
        "fired_ns": 0,
        "bound_ns": 0,
        "least_margin": 0.3,
        "margin_unit": "m",
        "least_ns": START_NS,
        "margins": [(-0.5, -0.2, 1), (0.2, 0.5, 9)],
    }
    return ConstraintCoverage(**(fields | changes))  # type: ignore[arg-type]


def test_a_constraint_that_never_fired_for_long_is_a_finding_for_the_engineer() -> None:
    now, month_s = START_NS + 31 * DAY_NS, 30 * 86_400
    assert is_quiet(state(), month_s, now)
    assert not is_quiet(state(fired_ns=START_NS), month_s, now)
    assert not is_quiet(state(), month_s, START_NS + 29 * DAY_NS)
    assert not is_quiet(state(kind="informational"), month_s, now)
    assert "never fired in 31 d and 10 decisions (nearest 0.3 m)" in finding(state(), now)
    assert "judged in no decision" in finding(state(judged=0), now)
    rows = table([state(id="a/b"), state(id="z/quiet")], {"z/quiet"}, now)
    assert next(iter(rows.columns[0].cells)).plain == "z/quiet"  # type: ignore[union-attr]  # Text
    assert len(margins(state())) == 2


def test_metrics_tell_each_constraint_by_its_labels() -> None:
    mirror = Mirror(FakeClock())
    mirror.apply(
        FeedBatch(sequence=1, snapshot=True, items=[gateway(), state(fired=3, fired_ns=2 * SECOND_NS)])
    )
    said = exposition(mirror)
    labels = '{module="buffer-tank",constraint="no-overflow"}'
    assert f"o3_constraint_fired{labels} 3" in said
    assert f"o3_constraint_last_fired_time_seconds{labels} 2.0" in said
    assert f'o3_constraint_least_margin{labels[:-1]},unit="m"}} 0.3' in said
    mirror.apply(FeedBatch(sequence=2, snapshot=False, items=[state(gone=True)]))
    assert "no-overflow" not in exposition(mirror)
