from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.core.clock import FakeClock
from gateway.core.decision import DecisionId, DecisionRecord, PointId, WriteOutcome
from gateway.core.errors import StorageError
from gateway.core.ports import AuditLog as AuditPort
from gateway.storage.audit import AuditLog
from gateway.storage.chain import append_rows, open_for_appending, row
from gateway.storage.codec import certificate_digest
from tests.unit.test_storage_codec import a_record


@asynccontextmanager
async def opened(path: Path, **options: int) -> AsyncIterator[AuditLog]:
    audit = AuditLog(path, FakeClock(), **options)
    await audit.start()
    try:
        yield audit
    finally:
        await audit.aclose()


def numbered(number: int, point: str = "buffer-tank") -> DecisionRecord:
    return a_record(id=DecisionId(f"d-{number}"), point=PointId(point))


async def test_an_appended_decision_is_read_back_with_its_certificate_and_write_outcome(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "audit.db") as audit:
        port: AuditPort = audit
        await port.append(numbered(1))
        await audit.append_outcome(DecisionId("d-1"), WriteOutcome.MISMATCH, "pump reads 12.4")

        found = await audit.get(DecisionId("d-1"))

    assert found is not None
    expected = replace(numbered(1), certificate_digest=certificate_digest(numbered(1)))
    assert found.record == replace(expected, write_outcome=WriteOutcome.MISMATCH)
    assert found.write_reason == "pump reads 12.4"


async def test_decisions_come_newest_first_and_page_by_point(tmp_path: Path) -> None:
    async with opened(tmp_path / "audit.db") as audit:
        for number in range(6):
            await audit.append(numbered(number, point="odd" if number % 2 else "even"))

        newest = await audit.recent(2)
        odd = await audit.recent(10, point=PointId("odd"), before=DecisionId("d-5"))
        unknown = await audit.get(DecisionId("nobody"))

    assert [a.record.id for a in newest] == ["d-5", "d-4"]
    assert [a.record.id for a in odd] == ["d-3", "d-1"]
    assert unknown is None


async def test_acts_of_people_are_in_the_same_chain(tmp_path: Path) -> None:
    async with opened(tmp_path / "audit.db") as audit:
        await audit.append_event("mode", "ada", {"to": "armed"}, point=PointId("buffer-tank"))
        await audit.append_event("stop-writes", "bob", "kill switch")

        events = await audit.events(10)
        report = await audit.verify_chain()

    assert [(e.kind, e.who, dict(e.what)) for e in events] == [
        ("stop-writes", "bob", {"text": "kill switch"}),
        ("mode", "ada", {"to": "armed"}),
    ]
    assert report.intact
    assert report.rows == 2


# One fsync for all who wait: 200 appends must not cost 200 fsyncs.
async def test_appends_that_wait_together_share_a_commit(tmp_path: Path) -> None:
    async with opened(tmp_path / "audit.db") as audit:
        await asyncio.gather(*(audit.append(numbered(n)) for n in range(200)))

        counted = audit.statistics()
        report = await audit.verify_chain()

    assert counted.appended == 200
    assert counted.commits < 50
    assert report.intact
    assert report.rows == 200


async def test_a_second_record_of_one_decision_is_refused_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "audit.db") as audit:
        await audit.append(numbered(1))
        results = await asyncio.gather(
            audit.append(numbered(1)), audit.append(numbered(2)), return_exceptions=True
        )
        report = await audit.verify_chain()

    assert isinstance(results[0], StorageError)
    assert results[1] is None
    assert report.intact
    assert report.rows == 2


async def test_a_full_queue_refuses_and_counts(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    async with opened(path, capacity=4, busy_ms=200) as audit:
        with _locked(path):
            results = await asyncio.gather(
                *(audit.append(numbered(n)) for n in range(40)), return_exceptions=True
            )
        assert all(isinstance(r, StorageError) for r in results)
        assert audit.statistics().refused_full > 0


async def test_a_locked_file_is_a_storage_error_and_health_recovers_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    async with opened(path, busy_ms=10) as audit:
        with _locked(path), pytest.raises(StorageError, match="locked"):
            await audit.append(numbered(1))
        assert not audit.health().ok

        await audit.append(numbered(2))

        assert audit.health().ok
        assert [a.record.id for a in await audit.recent(5)] == ["d-2"]


async def test_a_full_disk_is_a_storage_error_and_nothing_half_written_stays(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    connection = open_for_appending(path, busy_ms=10)
    connection.execute("PRAGMA max_page_count=16")  # SQLite's own way to be full
    appended, full = 0, ""
    while not full:
        try:
            append_rows(connection, [row("event", {"filler": "x" * 900, "number": str(appended)})])
            appended += 1
        except sqlite3.Error as exc:
            full = str(exc)
    connection.close()

    assert "full" in full
    assert appended > 0
    async with opened(path) as audit:
        assert (await audit.verify_chain()).rows == appended
        await audit.append(numbered(1))
        assert (await audit.verify_chain()).intact


@pytest.mark.parametrize(
    ("damage", "broken_at"),
    [
        ("UPDATE audit SET body = CAST(replace(body, 'period', 'nobody') AS BLOB) WHERE sequence = 3", 3),
        ("UPDATE audit SET point = 'other' WHERE sequence = 2", 2),
        ("DELETE FROM audit WHERE sequence = 4", 4),
        ("UPDATE audit SET digest = zeroblob(32) WHERE sequence = 1", 1),
    ],
)
async def test_any_change_to_a_row_breaks_the_chain_there(
    tmp_path: Path, damage: str, broken_at: int
) -> None:
    path = tmp_path / "audit.db"
    async with opened(path) as audit:
        for number in range(5):
            await audit.append(numbered(number))
        assert (await audit.verify_chain()).intact
        with sqlite3.connect(path) as meddler:
            meddler.execute(damage)
        meddler.close()

        report = await audit.verify_chain()

    assert not report.intact
    assert report.broken_at == broken_at


async def test_a_reopened_log_continues_its_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    for number in range(3):
        async with opened(path) as audit:
            await audit.append(numbered(number))
    async with opened(path) as audit:
        report = await audit.verify_chain()

    assert report.intact
    assert report.rows == 3


async def test_a_closed_log_refuses(tmp_path: Path) -> None:
    async with opened(tmp_path / "audit.db") as audit:
        await audit.append(numbered(1))
    with pytest.raises(StorageError, match="closed"):
        await audit.append(numbered(2))
    with pytest.raises(StorageError, match="closed"):
        await audit.recent(1)


@pytest.mark.parametrize("content", [b"not a database, but longer than a header " * 40])
async def test_a_file_that_is_no_audit_log_is_refused_at_start(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "audit.db"
    path.write_bytes(content)
    audit = AuditLog(path, FakeClock())
    with pytest.raises(StorageError, match="cannot be opened: file is not a database: put back a copy"):
        await audit.start()
    await audit.aclose()
    assert path.read_bytes() == content


async def test_a_cancelled_append_leaves_the_log_working(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    async with opened(path, busy_ms=500) as audit:
        with _locked(path):
            waiting = asyncio.ensure_future(audit.append(numbered(1)))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await audit.append(numbered(2))
        assert (await audit.verify_chain()).intact


# A waiter without a deadline must not hang because the thread that would answer it is gone.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_nobody_waits_for_ever_when_the_writer_ends_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise MemoryError

    async with opened(tmp_path / "audit.db") as audit:
        monkeypatch.setattr("gateway.storage.chain.append_rows", broken)
        with pytest.raises(StorageError, match="writer ended"):
            await asyncio.wait_for(audit.append(numbered(1)), 60)
        with pytest.raises(StorageError, match="writer ended by itself"):
            await asyncio.wait_for(audit.append(numbered(2)), 60)
        assert not audit.health().ok


class _locked:  # noqa: N801  # reads as a condition at its use
    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, *_: object) -> None:
        self._connection.execute("ROLLBACK")
        self._connection.close()
