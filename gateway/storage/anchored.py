"""One decision of an audit file nobody has open, and the chain that holds it. Blocks; never writes."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from gateway.core.decision import DecisionId
from gateway.core.errors import StorageError
from gateway.storage import chain, reading
from gateway.storage.chain import ChainReport
from gateway.storage.reading import AuditedDecision


def read_decision(path: Path, decision: DecisionId) -> AuditedDecision | None:
    """The decision of that id, or None; raises `StorageError` where the file cannot be read."""
    with _problems_named(path), contextlib.closing(_opened(path)) as connection:
        return reading.one(connection, decision)


def read_anchored(path: Path, decision: DecisionId) -> tuple[AuditedDecision | None, ChainReport]:
    """The same with a walk over the whole chain; raises `StorageError`."""
    with _problems_named(path), contextlib.closing(_opened(path)) as connection:
        return reading.one(connection, decision), chain.verify(connection)


def _opened(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise StorageError(f"audit log `{path}` is not there")
    return chain.open_for_reading(path)


@contextlib.contextmanager
def _problems_named(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as exc:
        raise StorageError(f"audit log `{path}` cannot be read: {exc}") from exc
    except (KeyError, TypeError, AttributeError, ValueError) as exc:  # rows of other columns, other bodies
        raise StorageError(f"audit log `{path}` holds rows that no gateway wrote: {exc!r}") from exc
