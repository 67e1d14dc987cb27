"""A module's file, read whole, whatever someone named."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_LIMIT_BYTES = 4 * 1024 * 1024


def module_bytes(path: Path) -> bytes:
    """A file of bearable size; a device or a FIFO must not hold us. Raises `OSError`."""
    with open(path, "rb", opener=_not_waiting) as file:  # Path.open() takes no opener
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            problem = "it is a folder" if stat.S_ISDIR(mode) else "it is not a regular file"
            raise OSError(problem)
        data = file.read(_LIMIT_BYTES + 1)
    if len(data) > _LIMIT_BYTES:
        problem = f"a module has at most {_LIMIT_BYTES} bytes"
        raise OSError(problem)
    return data


def _not_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
