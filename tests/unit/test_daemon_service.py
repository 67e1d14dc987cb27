"""A daemon that is told to stop before it stands."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, cast

import pytest

from gateway.core.errors import ConfigError
from gateway.daemon import service

HOUSE = cast("Any", None)


async def test_a_stop_while_starting_is_not_waited_for_until_all_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop, ended = asyncio.Event(), asyncio.Event()

    async def never_ready(_house: object, _stack: object) -> None:
        stop.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(service, "_start", never_ready)
    async with asyncio.timeout(30):
        assert not await service._started(HOUSE, contextlib.AsyncExitStack(), stop)
    assert ended.is_set()


async def test_a_start_that_fails_is_told_and_one_that_stands_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refused(_house: object, _stack: object) -> None:
        raise ConfigError(("gateway.toml: no such bundle",))

    async def ready(_house: object, _stack: object) -> None:
        return

    stop = asyncio.Event()
    monkeypatch.setattr(service, "_start", refused)
    with pytest.raises(ConfigError, match="no such bundle"):
        await service._started(HOUSE, contextlib.AsyncExitStack(), stop)
    monkeypatch.setattr(service, "_start", ready)
    assert await service._started(HOUSE, contextlib.AsyncExitStack(), stop)
