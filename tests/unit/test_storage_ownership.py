"""One state folder, one gateway."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.core.errors import StorageError, remedy
from gateway.storage.ownership import owned

HOLDER = """
import sys, subprocess
from pathlib import Path
from gateway.storage.ownership import owned
with owned(Path(sys.argv[1])):
    child = subprocess.Popen(["sleep", "60"])
    print(child.pid, flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that owns the folder, and its child."""
    with subprocess.Popen(  # noqa: S603  # our own interpreter
        [sys.executable, "-c", HOLDER, str(folder)], stdin=-1, stdout=-1, text=True
    ) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        try:
            yield holder, child
        finally:
            holder.kill()
            os.kill(child, 9)


def test_a_second_gateway_is_told_whose_the_folder_is_and_changes_nothing(tmp_path: Path) -> None:
    with another_process(tmp_path) as (holder, _):
        before = (tmp_path / "lock").read_bytes()
        with pytest.raises(StorageError) as refused, owned(tmp_path):
            pytest.fail("two at once")
        assert f"(process {holder.pid}): stop that one first, or give this one a `state_dir`" in str(
            refused.value
        )
        assert (tmp_path / "lock").read_bytes() == before


# What a killed gateway leaves behind must not keep the next one from starting.
def test_kill_9_gives_the_folder_back_though_a_child_lives_on(tmp_path: Path) -> None:
    with another_process(tmp_path) as (holder, child):
        holder.kill()
        holder.wait()
        os.kill(child, 0)
        with owned(tmp_path):
            assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_it_is_given_back_and_taken_again(tmp_path: Path) -> None:
    for _ in range(2):
        with owned(tmp_path / "made"):
            pass


def test_a_folder_that_cannot_be_used_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, why in ((tmp_path / "file", "File exists"), (tmp_path / "file" / "x", "Not a directory")):
        with pytest.raises(StorageError, match=f"cannot be used: {why}: this user must be able") as told:
            owned(path).__enter__()
        assert "Errno" not in str(told.value)


@pytest.mark.parametrize(
    ("number", "helps"),
    [
        (errno.ENOSPC, "make room on its disk"),
        (errno.EDQUOT, "make room on its disk"),
        (errno.EROFS, "its file system is mounted read-only"),
        (errno.EACCES, "this user must be able to read and write it"),
    ],
)
def test_what_helps_is_said_by_what_went_wrong(number: int, helps: str) -> None:
    assert remedy(OSError(number, os.strerror(number), "/x")) == helps
