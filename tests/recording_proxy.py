"""A TCP proxy on loopback that records what passes and can fail as networks do."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

Direction = Literal["to_server", "to_client"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes as they arrived at the proxy."""

    at: float  # monotonic seconds
    connection: int
    direction: Direction
    data: bytes
    passed: bytes  # what was handed on; less than `data` where a failure began inside


@dataclass(slots=True)
class _Pair:
    number: int
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def reset(self) -> None:
        for writer in (self.client, self.server):
            writer.transport.abort()


class RecordingProxy:
    """`async with RecordingProxy(host, port) as proxy`: clients connect to `127.0.0.1:proxy.port`."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._pairs: list[_Pair] = []
        self._swallow = False
        self._refuse = False
        self._cut_after: int | None = None
        self._trigger: bytes | None = None
        self.chunks: list[Chunk] = []
        self.connections = 0
        self.joined = asyncio.Event()  # set when a client is through to the server
        self.cut = asyncio.Event()  # set when a `cut_after` was carried out
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        tasks = [task for pair in self._pairs for task in pair.tasks]
        for pair in self._pairs:
            pair.reset()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for pair in self._pairs:
            for writer in (pair.client, pair.server):
                with contextlib.suppress(OSError):  # however it ended
                    await writer.wait_closed()
        await self._server.wait_closed()

    def cut_after(self, count: int, trigger: bytes | None = None) -> None:
        """Reset the client once `count` bytes to the server passed, counted from now or from the start of
        the first chunk with `trigger` in it. The server gets what passed, then an orderly end.
        """
        self._cut_after, self._trigger = count, trigger
        self.cut.clear()

    def black_hole(self) -> None:
        """Swallow everything both ways; connections stay open and new ones are taken."""
        self._swallow = True

    def refuse(self) -> None:
        """Reset every connection, present and new."""
        self._refuse = True
        for pair in self._pairs:
            pair.reset()

    def resume(self) -> None:
        """Pass everything again; what was swallowed stays lost."""
        self._swallow = self._refuse = False
        self._cut_after = self._trigger = None

    def sent(self, direction: Direction = "to_server", *, passed: bool = True) -> bytes:
        """All bytes of one direction in order: those handed on, or those that arrived here."""
        return b"".join(c.passed if passed else c.data for c in self.chunks if c.direction == direction)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuse:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self.connections += 1
        pair = _Pair(self.connections, writer, far_writer)
        self._pairs.append(pair)
        pair.tasks = [
            asyncio.create_task(self._pump(pair, reader, far_writer, "to_server")),
            asyncio.create_task(self._pump(pair, far_reader, writer, "to_client")),
        ]
        self.joined.set()

    async def _pump(
        self, pair: _Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        with contextlib.suppress(OSError):  # either side may reset at any time
            while data := await reader.read(65536):
                passed = b"" if self._swallow else self._allowed(data, direction)
                self.chunks.append(Chunk(time.monotonic(), pair.number, direction, data, passed))
                writer.write(passed)
                if direction == "to_server" and self._cut_after == 0 and self._trigger is None:
                    await self._drained_and_reset(pair)
                    return
                await writer.drain()
        if not self._swallow:
            pair.reset()

    def _allowed(self, data: bytes, direction: Direction) -> bytes:
        if direction == "to_client":
            return data
        if self._cut_after is None:
            return data
        if self._trigger is not None:
            if self._trigger not in data:
                return data
            self._trigger = None
        passed = data[: self._cut_after]
        self._cut_after -= len(passed)
        return passed

    async def _drained_and_reset(self, pair: _Pair) -> None:
        """The bytes that may pass reach the server as an orderly end; the client sees a reset."""
        self._cut_after = None
        pair.client.transport.abort()
        pair.server.close()
        self.cut.set()
