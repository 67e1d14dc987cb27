"""The audit database file: append-only rows, each digest over the one before and its own canonical JSON."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.core.durable import sync_folder
from gateway.core.errors import StorageError, cause, remedy
from gateway.storage.codec import canonical, parsed

GENESIS = bytes(32)
_SAID_EVERY = 500  # rows
_APPLICATION_ID = 0x4F334155  # "O3AU"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS audit (
  sequence INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  decision TEXT,
  point TEXT,
  body BLOB NOT NULL,
  digest BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS audit_decision ON audit (decision) WHERE kind = 'decision';
CREATE INDEX IF NOT EXISTS audit_outcome ON audit (decision) WHERE kind = 'outcome';
CREATE INDEX IF NOT EXISTS audit_point ON audit (point, sequence) WHERE kind = 'decision';
CREATE INDEX IF NOT EXISTS audit_kind ON audit (kind, sequence);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One thing to append. The columns repeat what `body` says, for look-up; `verify` compares them."""

    kind: str
    decision: str | None
    point: str | None
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainReport:
    """What a walk over the whole chain found. `head` anchors it: a later chain must pass through it.

    A chain cut off at its end looks whole from inside; only an older `head` kept elsewhere shows that.
    """

    rows: int
    head: str
    broken_at: int | None = None
    problem: str = ""

    @property
    def intact(self) -> bool:
        """True when every row is as it was appended."""
        return self.broken_at is None


def row(
    kind: str, document: dict[str, Any], *, decision: str | None = None, point: str | None = None
) -> AuditRow:
    """A row whose body carries its own kind, so that no column can be changed unnoticed."""
    body = canonical({"kind": kind, "of": decision, "point": point, kind: document})
    return AuditRow(kind=kind, decision=decision, point=point, body=body)


def open_for_appending(path: Path, busy_ms: int) -> sqlite3.Connection:
    """The file, made if need be, its folder synced; raises `StorageError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640))
        connection = sqlite3.connect(
            path,
            isolation_level=None,
            timeout=busy_ms / 1000,
            check_same_thread=False,  # opened by one thread, then owned by the writer alone
        )
    except (OSError, sqlite3.Error) as exc:
        raise _not_opened(path, exc) from exc
    try:
        problem = _unfit(connection)
        if not problem:
            connection.execute("PRAGMA synchronous=FULL")
            # Checkpoints run between commits, after those who wait were answered.
            connection.execute("PRAGMA wal_autocheckpoint=0")
            connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
            connection.executescript(_SCHEMA)
            sync_folder(path.parent)
    except (OSError, sqlite3.Error) as exc:
        connection.close()
        raise _not_opened(path, exc) from exc
    if problem:
        connection.close()
        raise StorageError(f"audit log `{path}`: {problem}")
    return connection


def open_for_reading(path: Path) -> sqlite3.Connection:
    """A connection that cannot write; raises `StorageError`."""
    try:
        uri = f"{path.resolve().as_uri()}?mode=ro"
        return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as exc:
        raise StorageError(f"audit log `{path}` cannot be read: {exc}") from exc


def append_rows(connection: sqlite3.Connection, rows: list[AuditRow]) -> list[StorageError | None]:
    """Append in one durable transaction; per row None, or why it alone was refused.

    Raises `sqlite3.Error` when nothing at all was appended. The head is read inside the transaction, so two
    processes on one file can never fork the chain.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        head = connection.execute(
            "SELECT sequence, digest FROM audit ORDER BY sequence DESC LIMIT 1"
        ).fetchone()
        sequence, digest = head or (0, GENESIS)
        refusals: list[StorageError | None] = []
        for item in rows:
            following = hashlib.sha256(digest + item.body).digest()
            values = (sequence + 1, item.kind, item.decision, item.point, item.body, following)
            try:
                connection.execute("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?)", values)
            except sqlite3.IntegrityError:
                refusals.append(StorageError(f"decision `{item.decision}` is already in the audit log"))
            else:
                sequence, digest = sequence + 1, following
                refusals.append(None)
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled back by itself (disk full)
            connection.execute("ROLLBACK")
        raise
    return refusals


def row_count(connection: sqlite3.Connection) -> int:
    """Rows the log holds."""
    return int(connection.execute("SELECT count(*) FROM audit").fetchone()[0])


def verify(connection: sqlite3.Connection, seen: Callable[[int], None] = lambda _count: None) -> ChainReport:
    """Walk the whole chain in row order; stops at the first row that is not as it was appended.

    `seen` hears now and then how many rows were walked.
    """
    digest, count = GENESIS, 0
    for sequence, kind, decision, point, body, stored in _walk(connection):
        digest = hashlib.sha256(digest + body).digest()
        problem = ""
        if sequence != count + 1:
            problem = f"row {count + 1} is missing"
        elif digest != stored:
            problem = f"row {sequence} or a row before it was changed"
        elif not _columns_agree(body, kind, decision, point):
            problem = f"the look-up columns of row {sequence} were changed"
        if problem:
            return ChainReport(rows=count, head=digest.hex(), broken_at=count + 1, problem=problem)
        count += 1
        if count % _SAID_EVERY == 0:
            seen(count)
    seen(count)
    return ChainReport(rows=count, head=digest.hex())


def _not_opened(path: Path, exc: Exception) -> StorageError:
    if getattr(exc, "sqlite_errorname", "") == "SQLITE_FULL":
        return StorageError(f"audit log `{path}` cannot be opened: {exc}: make room in {path.parent}")
    damaged = isinstance(exc, sqlite3.DatabaseError) and not isinstance(exc, sqlite3.OperationalError)
    advice = (
        "put back a copy, or move it away with its -wal and -shm; a new log then begins, and says nothing of "
        "the time before"
        if damaged
        else remedy(exc)
    )
    return StorageError(f"audit log `{path}` cannot be opened: {cause(exc)}: {advice}")


def _unfit(connection: sqlite3.Connection) -> str:
    if connection.execute("PRAGMA application_id").fetchone()[0] not in (0, _APPLICATION_ID):
        return "the file belongs to another program"
    mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    return "" if mode == "wal" else f"this file system does not do WAL (got `{mode}`)"


def _walk(connection: sqlite3.Connection) -> Iterator[tuple[int, str, str | None, str | None, bytes, bytes]]:
    yield from connection.execute(
        "SELECT sequence, kind, decision, point, body, digest FROM audit ORDER BY sequence"
    )


def _columns_agree(body: bytes, kind: str, decision: str | None, point: str | None) -> bool:
    said = parsed(body)  # its digest was right, so `row` made it
    return (said["kind"], said["of"], said["point"]) == (kind, decision, point)
