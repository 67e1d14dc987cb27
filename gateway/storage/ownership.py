"""One state folder, one gateway: whoever starts second changes nothing there."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.core.errors import StorageError, cause, remedy

LOCK = "lock"


@contextmanager
def owned(state_dir: Path) -> Iterator[None]:
    """The state folder is ours as long as the block runs; `StorageError` where another process has it.

    The kernel gives it back when the process ends, however it ends; no child inherits it.
    """
    path = state_dir / LOCK
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError as exc:
        raise _unusable(state_dir, f"{cause(exc)}: {remedy(exc)}") from exc
    try:
        _lock(number, state_dir)
        if not os.access(state_dir, os.W_OK | os.X_OK):  # the lock was there already
            raise _unusable(state_dir, "this user may not write in it")
        yield
    finally:
        os.close(number)


def _unusable(state_dir: Path, why: str) -> StorageError:
    return StorageError(f"state folder `{state_dir}` cannot be used: {why}")


def _lock(number: int, state_dir: Path) -> None:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(number, 20, 0).decode(errors="replace").strip()
        raise StorageError(
            f"state folder `{state_dir}` belongs to a gateway that is running (process "
            f"{holder or 'unknown'}): stop that one first, or give this one a `state_dir` of its own"
        ) from None
    except OSError as exc:
        raise StorageError(f"state folder `{state_dir}` cannot be locked: {cause(exc)}") from exc
    with contextlib.suppress(OSError):  # on a full disk the lock counts, and who holds it is not said
        os.ftruncate(number, 0)
        os.pwrite(number, f"{os.getpid()}\n".encode(), 0)
