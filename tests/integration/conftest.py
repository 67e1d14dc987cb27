"""Whatever a test starts, it ends: a child that nobody waited for is told with the test that left it."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def no_child_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every process that a test, or what it runs, started has ended and was waited for."""
    started: list[tuple[Process, tuple[Any, ...]]] = []
    spawn = asyncio.create_subprocess_exec

    async def noted(*command: Any, **options: Any) -> Process:  # noqa: ANN401  # passed on as it is
        process = await spawn(*command, **options)
        started.append((process, command))
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    yield
    left = [f"{process.pid}: {command}" for process, command in started if process.returncode is None]
    assert not left, f"nobody waited for the end of {left}"
