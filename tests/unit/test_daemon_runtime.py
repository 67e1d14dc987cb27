"""Files people name, and files that lie in the watched folder: neither may stop the daemon."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.daemon.runtime import RuntimeVerbs, _parses
from gateway.solver.watcher import LIMIT_BYTES


class Remembering:
    """A registry that takes every module."""

    def __init__(self) -> None:
        self.loaded: list[tuple[str, bytes]] = []

    async def load(self, name: str, data: bytes, _who: str) -> str:
        self.loaded.append((name, data))
        return ""


@pytest.mark.parametrize("text", [b"[" * 200_000, b'{"a":' * 100_000, b"", b"\xff\xfe{", b"[1"])
def test_a_file_that_cannot_be_read_as_json_is_not_whole(text: bytes) -> None:
    assert not _parses(text)


async def test_a_module_is_loaded_from_the_file_somebody_names(tmp_path: Path) -> None:
    registry = Remembering()
    (tmp_path / "m.json").write_bytes(b"{}")
    assert await RuntimeVerbs(cast("Any", registry)).load(tmp_path / "m.json", None, "op") == ""
    assert registry.loaded == [("m.json", b"{}")]


async def test_devices_pipes_folders_and_huge_files_are_refused_at_once(tmp_path: Path) -> None:
    registry = Remembering()
    verbs = RuntimeVerbs(cast("Any", registry))
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "huge.json").write_bytes(b" " * (LIMIT_BYTES + 1))
    for path, why in (
        (Path("/dev/zero"), "it is not a regular file"),
        (tmp_path / "pipe.json", "it is not a regular file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "huge.json", f"a module has at most {LIMIT_BYTES} bytes"),
        (tmp_path / "none.json", "No such file or directory"),
    ):
        assert await verbs.load(path, None, "op") == f"`{path}` cannot be read: {why}"
    assert registry.loaded == []
