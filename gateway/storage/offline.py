"""The audit log's file without its gateway: for a person who wants to know whether it is whole."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

from gateway.core.errors import StorageError
from gateway.storage import chain
from gateway.storage.chain import ChainReport


def verify_file(path: Path, seen: Callable[[int, int], None]) -> ChainReport:
    """Walk the chain in `path`; `seen` hears rows walked and rows in all. Raises `StorageError`.

    A gateway may be writing meanwhile: what it appends after the walk began is not looked at.
    """
    if not path.is_file():
        raise StorageError(f"there is no audit log at `{path}`")
    try:
        with contextlib.closing(chain.open_for_reading(path)) as connection:
            connection.execute("BEGIN")  # one picture for count and walk
            total = chain.row_count(connection)
            return chain.verify(connection, lambda count: seen(count, total))
    except sqlite3.Error as exc:
        raise StorageError(f"audit log `{path}` cannot be read: {exc}") from exc
