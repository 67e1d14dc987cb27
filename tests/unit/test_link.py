"""The internal port: Feed and Ask over a real Unix socket."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from gateway.core.errors import ConfigError, LinkBrokenError
from gateway.link.client import LinkClient
from gateway.link.messages import Answer, Ask, FeedBatch, FeedItem, TagState
from gateway.link.server import LinkServer, Peer, own_uids


def state(tag: str, value: float) -> TagState:
    return TagState(id=tag, value=value, status=0, source_ts_ns=None, server_ts_ns=1)


async def echo(ask: Ask, peer: Peer) -> Answer:
    return Answer(id=ask.id, ok=True, result={"verb": ask.verb, "uid": peer.uid})


def server_at(path: Path, items: list[FeedItem]) -> LinkServer:
    return LinkServer(path, echo, lambda: list(items), own_uids())


async def test_an_ask_is_answered_with_the_peers_unix_user(tmp_path: Path) -> None:
    server = server_at(tmp_path / "o3.sock", [])
    async with server.listening():
        client = await LinkClient.connect(tmp_path / "o3.sock", "test")
        answer = await client.ask("status")
        assert answer == Answer(id=1, ok=True, result={"verb": "status", "uid": os.getuid()})
        await client.aclose()


async def test_a_slow_feed_reader_keeps_the_newest_value_per_tag(tmp_path: Path) -> None:
    server = server_at(tmp_path / "o3.sock", [state("A", 0.0)])
    async with server.listening(), asyncio.timeout(60):
        client = await LinkClient.connect(tmp_path / "o3.sock", "test")
        feed = client.feed()
        first = await anext(feed)
        assert first.snapshot
        assert first.items == [state("A", 0.0)]
        for value in range(1, 100):
            server.publish(state("A", float(value)))
        batch: FeedBatch = await anext(feed)
        assert batch.items == [state("A", 99.0)]
        assert batch.sequence == first.sequence + 1
        await feed.aclose()  # type: ignore[attr-defined]  # an async generator is one
        await client.aclose()


async def test_a_client_learns_that_the_gateway_is_gone(tmp_path: Path) -> None:
    server = server_at(tmp_path / "o3.sock", [])
    async with server.listening():
        client = await LinkClient.connect(tmp_path / "o3.sock", "test")
        await client.ask("status")
    with pytest.raises(LinkBrokenError):
        async with asyncio.timeout(60):
            while True:
                await client.ask("status")
    await client.aclose()
    with pytest.raises(LinkBrokenError, match="no gateway answers"):
        await LinkClient.connect(tmp_path / "o3.sock", "test")


async def test_a_second_gateway_does_not_take_the_socket_of_a_living_one(tmp_path: Path) -> None:
    async with server_at(tmp_path / "o3.sock", []).listening():
        with pytest.raises(ConfigError, match="another gateway is running"):
            async with server_at(tmp_path / "o3.sock", []).listening():
                pass
    (tmp_path / "o3.sock").touch()
    async with server_at(tmp_path / "o3.sock", []).listening():
        assert (tmp_path / "o3.sock").is_socket()


async def test_an_unknown_uid_is_refused_before_its_first_frame(tmp_path: Path) -> None:
    server = LinkServer(tmp_path / "o3.sock", echo, list, frozenset({os.getuid() + 1}))
    async with server.listening():
        client = await LinkClient.connect(tmp_path / "o3.sock", "test")
        with pytest.raises(LinkBrokenError):
            await client.ask("status")
        assert server.statistics().refused_peers == 1
        await client.aclose()
