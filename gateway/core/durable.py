"""Files that survive a power cut: whole and old, or whole and new."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO


def write_durably(path: Path, body: bytes) -> None:
    """Replace `path` by `body` so that a reader, or a power cut, meets the old or the new, whole.

    Blocks for two fsyncs; raises `OSError`, and then the old file is untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    with fresh_file(temporary) as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def fresh_file(path: Path, mode: int = 0o640) -> BinaryIO:
    """A new file in the place of whatever bore the name, a link or a pipe included; raises `OSError`.

    The folder may belong to others: nothing they put there is followed, written through or waited for.
    """
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, mode), "wb")


def sync_folder(folder: Path) -> None:
    """Make names created or renamed in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
