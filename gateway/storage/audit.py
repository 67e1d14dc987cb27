"""The audit log: decisions, write outcomes and people's acts, durable before any write to a plant."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import structlog

from gateway.core.clock import Clock
from gateway.core.decision import CheckRequest, DecisionId, DecisionRecord, PointId, WriteOutcome
from gateway.core.errors import StorageError
from gateway.core.health import PartHealth
from gateway.core.tag import TagId, TagValue
from gateway.storage import chain, reading
from gateway.storage.chain import AuditRow, ChainReport
from gateway.storage.codec import certificate_digest, record_to_plain, spell_ahead
from gateway.storage.reading import AuditedDecision, AuditEvent

log = structlog.get_logger().bind(component="audit")

_BATCH_LIMIT = 256
_COMMITS_BEFORE_CHECKPOINT = 64  # when nobody waits
_COMMITS_AT_MOST = 1024  # even while somebody waits: the WAL stays bounded

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class AuditStatistics:
    """Counters since start; `failed` rows were told so and are not in the log."""

    waiting: int
    appended: int
    commits: int
    failed: int
    refused_full: int


@dataclass(frozen=True, slots=True)
class _Waiting:
    row: AuditRow
    done: asyncio.Future[None]
    loop: asyncio.AbstractEventLoop


class AuditLog:
    """Implements `gateway.core.ports.AuditLog` on one SQLite file (WAL, synchronous=FULL).

    One thread writes: everything that waits when a transaction begins shares its one fsync. Readers have
    their own thread and a connection that cannot write. Started once, closed once.
    """

    def __init__(self, path: Path, clock: Clock, *, capacity: int = 1024, busy_ms: int = 250) -> None:
        self._path, self._clock, self._busy_ms = path, clock, busy_ms
        self._queue: queue.Queue[_Waiting | None] = queue.Queue(capacity)
        self._writer: threading.Thread | None = None
        self._readers = ThreadPoolExecutor(max_workers=1, thread_name_prefix="audit-reader")
        self._reading: sqlite3.Connection | None = None
        self._closed = self._ended = False
        self._appended = self._commits = self._failed = self._refused_full = 0
        self._uncheckpointed = 0
        self._problem = ""

    async def start(self) -> None:
        """Open the file and start the writer; raises `StorageError`."""
        connection = await asyncio.to_thread(chain.open_for_appending, self._path, self._busy_ms)
        self._writer = threading.Thread(
            target=self._write_batches, args=(connection,), name="audit-writer", daemon=True
        )
        self._writer.start()

    async def aclose(self, grace_s: float = 5.0) -> None:
        """Refuse new rows, write what waits, close; returns after `grace_s` at the latest."""
        if self._closed:
            return
        self._closed = True
        if self._writer is not None:
            await asyncio.to_thread(self._stop_writer, self._writer, grace_s)
        self._readers.submit(self._close_reading)
        self._readers.shutdown(wait=False)

    def expect(self, request: CheckRequest, inputs: Mapping[TagId, TagValue]) -> None:
        """See `gateway.core.ports.AuditLog`."""
        spell_ahead(request, inputs)

    async def append(self, record: DecisionRecord) -> None:
        """Durable when this returns; raises `StorageError`, and then nothing may be written.

        A record without a certificate digest gets it here. Cancelled: the row may still be appended.
        """
        if not record.certificate_digest:
            record = replace(record, certificate_digest=certificate_digest(record))
        document = record_to_plain(record)
        await self._append(chain.row("decision", document, decision=record.id, point=record.point))

    async def append_outcome(
        self, decision: DecisionId, write_outcome: WriteOutcome, reason: str = ""
    ) -> None:
        """What became of the write, as a later row: records are never updated. Raises `StorageError`."""
        document = {"write_outcome": write_outcome.value, "reason": reason, "at_utc_ns": self._clock.utc_ns()}
        await self._append(chain.row("outcome", document, decision=decision))

    async def append_event(
        self, kind: str, who: str, what: Mapping[str, str] | str, point: PointId | None = None
    ) -> None:
        """A person's or the gateway's act: mode, acknowledgement, approval, kill switch, start, stop.

        Raises `StorageError`.
        """
        facts = {"text": what} if isinstance(what, str) else dict(what)
        document = {"kind": kind, "who": who, "what": facts, "at_utc_ns": self._clock.utc_ns()}
        await self._append(chain.row("event", document, point=point))

    async def recent(
        self, limit: int, point: PointId | None = None, before: DecisionId | None = None
    ) -> list[AuditedDecision]:
        """Decisions, newest first, each with its write outcome; `before` pages on from the last one seen."""
        return await self._read(lambda db: reading.recent(db, limit, point, before))

    async def get(self, decision: DecisionId) -> AuditedDecision | None:
        """One decision, or None when the log does not hold it."""
        return await self._read(lambda db: reading.one(db, decision))

    async def events(self, limit: int, before: int | None = None) -> list[AuditEvent]:
        """People's acts, newest first; `before` is the `sequence` to page on from."""
        return await self._read(lambda db: reading.events(db, limit, before))

    async def verify_chain(self) -> ChainReport:
        """Walk the whole log; linear in its size, off the loop and off the writer."""
        return await self._read(chain.verify)

    def statistics(self) -> AuditStatistics:
        """Counters since start."""
        return AuditStatistics(
            self._queue.qsize(), self._appended, self._commits, self._failed, self._refused_full
        )

    def health(self) -> PartHealth:
        """Not ok from the first failed commit until the next one that works."""
        return PartHealth("audit", not self._problem, self._problem or "ok")

    async def _append(self, row: AuditRow) -> None:
        if self._closed or self._writer is None:
            raise StorageError("the audit log is closed")
        loop = asyncio.get_running_loop()
        waiting = _Waiting(row, loop.create_future(), loop)
        try:
            self._queue.put_nowait(waiting)
        except queue.Full:
            self._refused_full += 1
            raise StorageError(f"the audit log is {self._queue.maxsize} rows behind: full") from None
        if self._ended:  # asked after the put: what came before the end is answered by it
            raise StorageError(self._problem or "the audit log is closed")
        await waiting.done

    async def _read(self, query: Callable[[sqlite3.Connection], _T]) -> _T:
        if self._closed:
            raise StorageError("the audit log is closed")
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._on_reader, query)

    def _on_reader(self, query: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            if self._reading is None:
                self._reading = chain.open_for_reading(self._path)
            return query(self._reading)
        except sqlite3.Error as exc:
            raise StorageError(f"audit log `{self._path}` cannot be read: {exc}") from exc

    def _close_reading(self) -> None:
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _stop_writer(self, writer: threading.Thread, grace_s: float) -> None:
        with contextlib.suppress(queue.Full):  # the writer hangs; it is a daemon thread and ends with us
            self._queue.put(None, timeout=grace_s)
        writer.join(grace_s)
        if writer.is_alive():
            log.error("audit_close_timed_out", grace_s=grace_s, waiting=self._queue.qsize())

    def _write_batches(self, connection: sqlite3.Connection) -> None:
        """Body of the writer thread: it owns the connection from here on."""
        running, batch = True, list[_Waiting]()
        try:
            with contextlib.closing(connection):
                while running:
                    batch, running = self._next_batch()
                    if batch:
                        self._commit(connection, batch)
                    idle = self._queue.empty()
                    if self._uncheckpointed >= (_COMMITS_BEFORE_CHECKPOINT if idle else _COMMITS_AT_MOST):
                        self._checkpoint(connection)
        finally:
            self._end(batch)

    def _end(self, batch: list[_Waiting]) -> None:
        """However the writer ended, nobody waits for ever."""
        self._ended = True
        if not self._closed:
            self._problem = "the audit log's writer ended by itself"
        while not self._queue.empty():
            item = self._queue.get_nowait()
            batch += [] if item is None else [item]
        for waiting in batch:
            _tell(waiting, StorageError("the audit log's writer ended"))

    def _next_batch(self) -> tuple[list[_Waiting], bool]:
        """Everything that waits now, at least one; False once the end was asked for."""
        batch: list[_Waiting] = []
        item = self._queue.get()
        while item is not None:
            batch.append(item)
            if len(batch) == _BATCH_LIMIT:
                return batch, True
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return batch, True
        return batch, False

    def _commit(self, connection: sqlite3.Connection, batch: list[_Waiting]) -> None:
        try:
            refusals = chain.append_rows(connection, [w.row for w in batch])
        except sqlite3.Error as exc:
            if not self._problem:
                log.exception("audit_append_failed", rows=len(batch))
            self._problem = f"audit log cannot be appended to: {_told(exc, self._path)}"
            refusals = [StorageError(self._problem) for _ in batch]
        else:
            if self._problem:
                log.info("audit_append_recovered")
            self._problem = ""
            self._commits += 1
            self._uncheckpointed += 1
        for waiting, refusal in zip(batch, refusals, strict=True):
            if refusal is None:
                self._appended += 1
            else:
                self._failed += 1
            _tell(waiting, refusal)

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        self._uncheckpointed = 0
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.Error as exc:  # nothing is lost: the rows are in the WAL
            log.warning("audit_checkpoint_failed", problem=str(exc))


def _told(exc: sqlite3.Error, path: Path) -> str:
    """SQLite's words, and what helps where they are of the disk."""
    name = getattr(exc, "sqlite_errorname", "")
    if name == "SQLITE_FULL":
        return f"{exc}: make room in {path.parent}"
    if name.startswith(("SQLITE_READONLY", "SQLITE_IOERR", "SQLITE_CANTOPEN")):
        return f"{exc}: see to the disk of {path.parent}, and that this user may write there"
    return str(exc)


def _tell(waiting: _Waiting, refusal: StorageError | None) -> None:
    with contextlib.suppress(RuntimeError):  # the loop was closed; nobody waits any more
        waiting.loop.call_soon_threadsafe(_settle, waiting.done, refusal)


def _settle(done: asyncio.Future[None], refusal: StorageError | None) -> None:
    if done.done():
        return  # its waiter was cancelled
    if refusal is None:
        done.set_result(None)
    else:
        done.set_exception(refusal)
