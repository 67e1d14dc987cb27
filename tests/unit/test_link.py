"""The internal port: Feed and Ask over a real Unix socket."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from gateway.core.errors import ConfigError, LinkBrokenError
from gateway.link.client import LinkClient
from gateway.link.messages import Answer, Ask, FeedBatch, FeedItem, Subscribe, TagState
from gateway.link.server import LinkServer, Peer, own_uids
from gateway.supervision.frames import frame, read_frame


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


async def raw(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A peer that speaks as it likes."""
    return await asyncio.open_unix_connection(str(path))


def an_ask(number: int) -> bytes:
    return frame(msgspec.msgpack.encode(Ask(id=number, verb="status", args={}, deadline_ms=1000.0)))


async def test_a_folder_that_cannot_hold_the_socket_is_a_sentence_to_act_on(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, said in (
        (tmp_path / "file" / "o3.sock", "File exists: this user must be able to read and write it"),
        (tmp_path / ("long" * 40) / "o3.sock", "AF_UNIX path too long: its path is longer than a socket's"),
    ):
        with pytest.raises(ConfigError) as refused:
            await server_at(path, []).listening().__aenter__()
        assert str(refused.value).startswith(f"the internal port {path}: ")
        assert said in str(refused.value)


# A place held by whoever says nothing is one that a restarting front end does not get.
@pytest.mark.parametrize("said", [b"", b"\x00\x00", b"\x00\x00\x03\xe8half"])
async def test_a_peer_that_says_nothing_or_half_a_frame_is_hung_up_on(tmp_path: Path, said: bytes) -> None:
    path = tmp_path / "o3.sock"
    async with LinkServer(path, echo, list, own_uids(), silent_s=0.2).listening(), asyncio.timeout(30):
        reader, writer = await raw(path)
        writer.write(said)
        assert await reader.read() == b""
        writer.close()


async def test_a_peer_that_asked_may_be_silent_but_not_send_half_a_frame(tmp_path: Path) -> None:
    path = tmp_path / "o3.sock"
    async with LinkServer(path, echo, list, own_uids(), silent_s=0.2).listening(), asyncio.timeout(30):
        patient = await LinkClient.connect(path, "patient")
        await patient.ask("status")
        reader, writer = await raw(path)
        writer.write(an_ask(1) + b"\x00\x00\x03\xe8half")
        await read_frame(reader)
        assert await reader.read() == b""
        assert (await patient.ask("status")).ok  # silent for as long
        await patient.aclose()
        writer.close()


# Answers that nobody reads piled up without bound: 60 MiB a second of `decisions`.
async def test_a_peer_that_does_not_read_is_not_answered_for_ever(tmp_path: Path) -> None:
    answered = 0

    async def long_answer(ask: Ask, _peer: Peer) -> Answer:
        nonlocal answered
        answered += 1
        return Answer(id=ask.id, ok=True, result="x" * 1_000_000)

    path = tmp_path / "o3.sock"
    async with LinkServer(path, long_answer, list, own_uids()).listening(), asyncio.timeout(60):
        reader, writer = await raw(path)
        writer.write(b"".join(an_ask(number) for number in range(200)))
        while answered < 64:  # noqa: ASYNC110  # a peer has no event of the server's
            await asyncio.sleep(0)
        other = await LinkClient.connect(path, "other")
        for _ in range(5):
            await other.ask("status")
        assert answered <= 64 + 5
        for _ in range(200):
            assert len(await read_frame(reader)) > 1_000_000
        await other.aclose()
        writer.close()


async def test_a_crowd_is_turned_away_in_one_line_of_the_log_and_others_serve_on(tmp_path: Path) -> None:
    path = tmp_path / "o3.sock"
    server = server_at(path, [])
    async with server.listening(), asyncio.timeout(60):
        first = await LinkClient.connect(path, "first")
        await first.ask("status")
        with capture_logs() as logs:
            crowd = [await raw(path) for _ in range(200)]
            ends = [asyncio.create_task(reader.read()) for reader, _ in crowd]
            while server.statistics().refused_peers < 200 - 63:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                ends = [end for end in ends if not end.done()]
            assert (await first.ask("status")).ok
        refused = [entry for entry in logs if entry["event"] == "peer_refused"]
        assert len(refused) == 1
        assert "all 64 connections are taken" in refused[0]["why"]
        for _, writer in crowd:
            writer.close()
        await asyncio.gather(*ends)
        await first.aclose()


async def test_a_feed_that_is_not_read_is_known_by_its_process(tmp_path: Path) -> None:
    path, body = tmp_path / "o3.sock", "x" * 4_000_000
    server = server_at(path, [TagState(id="A", value=body, status=0, source_ts_ns=None, server_ts_ns=1)])
    async with server.listening(), asyncio.timeout(60):
        reader, writer = await raw(path)
        writer.write(frame(msgspec.msgpack.encode(Subscribe(client="slow"))))
        while server.unread_s(os.getpid()) < 0.05:  # noqa: ASYNC110  # a peer that does not read has no event
            await asyncio.sleep(0.01)
        assert server.unread_s(os.getpid() + 1) == 0.0
        assert len(await read_frame(reader)) > 4_000_000
        while server.unread_s(os.getpid()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        writer.close()


# Whoever cleans up a folder of sockets must not take the kill switch away from the operators.
async def test_a_socket_that_somebody_removes_is_made_anew_and_old_connections_live_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "o3.sock"
    async with LinkServer(path, echo, list, own_uids(), look_s=0.05).listening(), asyncio.timeout(30):
        before = await LinkClient.connect(path, "before")
        await before.ask("status")
        for put_there in (False, True):
            path.unlink()
            if put_there:
                path.write_text("not ours")
            while not path.is_socket():  # noqa: ASYNC110  # a folder gives no event here
                await asyncio.sleep(0.01)
            after = await LinkClient.connect(path, "after")
            assert (await after.ask("status")).ok
            await after.aclose()
        assert (await before.ask("status")).ok
        await before.aclose()
    assert not path.exists()
