"""Client side of the internal port: one object, one connection (habit of every link here)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from gateway.core.errors import LinkBrokenError, LinkTimeoutError
from gateway.link.messages import Answer, Ask, FeedBatch, Subscribe, ToClient
from gateway.supervision.frames import FrameError, frame, read_frame

_FEED_CAPACITY = 256  # batches; a full queue stops reading, and the server then coalesces for us


class LinkClient:
    """A connection to the internal port. Made by `connect`, used until it breaks, then thrown away."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> None:
        self._reader, self._writer, self._name = reader, writer, name
        self._decoder = msgspec.msgpack.Decoder(ToClient)
        self._encoder = msgspec.msgpack.Encoder()
        self._answers: dict[int, asyncio.Future[Answer]] = {}
        self._batches: asyncio.Queue[FeedBatch | None] = asyncio.Queue(_FEED_CAPACITY)
        self._next_id = 1
        self._broken = ""
        self._receiver = asyncio.create_task(self._receive(), name=f"link-client-{name}")

    @classmethod
    async def connect(cls, path: Path | str, name: str, timeout_s: float = 2.0) -> LinkClient:
        """A fresh connection; raises `LinkBrokenError` when nobody listens there."""
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await asyncio.open_unix_connection(str(path))
        except (OSError, TimeoutError) as exc:
            raise LinkBrokenError(str(path), f"no gateway answers there ({exc or 'time-out'})") from exc
        return cls(reader, writer, name)

    async def ask(
        self, verb: str, args: dict[str, Any] | None = None, *, user: str = "", deadline_ms: float = 2000.0
    ) -> Answer:
        """The daemon's answer, an expected refusal included; raises `LinkError` when there is none."""
        if self._broken:
            raise LinkBrokenError("o3", self._broken)
        number, self._next_id = self._next_id, self._next_id + 1
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answers[number] = future
        try:
            self._send(Ask(id=number, verb=verb, args=args or {}, user=user, deadline_ms=deadline_ms))
            async with asyncio.timeout(deadline_ms / 1000 + 0.5):
                return await future
        except TimeoutError as exc:
            raise LinkTimeoutError("o3", f"no answer to `{verb}` within {deadline_ms:.0f} ms") from exc
        finally:
            self._answers.pop(number, None)

    async def feed(self) -> AsyncIterator[FeedBatch]:
        """Batches from a snapshot onwards, until the link breaks (`LinkBrokenError`) or is closed."""
        self._send(Subscribe(client=self._name))
        while True:
            batch = await self._batches.get()
            if batch is None:
                raise LinkBrokenError("o3", self._broken or "closed")
            yield batch

    async def aclose(self) -> None:
        """Close; pending questions fail with `LinkBrokenError`."""
        self._receiver.cancel()
        with contextlib.suppress(asyncio.CancelledError):  # our own cancel, waited for
            await self._receiver
        self._fail("closed by us")
        self._writer.close()
        with contextlib.suppress(ConnectionError, OSError):  # the peer may have closed first
            await self._writer.wait_closed()

    def _send(self, message: Ask | Subscribe) -> None:
        try:
            self._writer.write(frame(self._encoder.encode(message)))
        except (ConnectionError, RuntimeError) as exc:
            raise LinkBrokenError("o3", str(exc)) from exc

    async def _receive(self) -> None:
        try:
            while True:
                message = self._decoder.decode(await read_frame(self._reader))
                if isinstance(message, FeedBatch):
                    await self._batches.put(message)
                elif (future := self._answers.get(message.id)) is not None and not future.done():
                    future.set_result(message)
        except (asyncio.IncompleteReadError, ConnectionError, OSError):
            self._fail("the gateway closed the connection")
        except (msgspec.DecodeError, FrameError) as exc:
            self._fail(f"the gateway speaks another protocol version ({exc})")

    def _fail(self, why: str) -> None:
        self._broken = self._broken or why
        for future in self._answers.values():
            if not future.done():
                future.set_exception(LinkBrokenError("o3", why))
        if self._batches.full():
            self._batches.get_nowait()
        self._batches.put_nowait(None)
