"""A Modbus TCP server on asyncio: every request of a segment answered, in order, under its own id.

Requests are answered synchronously, so a write is whole before any other callback of the loop runs.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from gateway.plantsim.modbus_pdu import Identity, Unit, respond

_HEADER = struct.Struct(">HHHB")  # transaction, protocol, length of what follows, unit
_LENGTH_END = 6  # octets of the header that `length` does not count
_LONGEST = 254  # unit id and a PDU of 253 octets
_SHORTEST = 2  # unit id and a function code

log = structlog.get_logger().bind(component="plantsim")


@dataclass(slots=True)
class ServerCounters:
    """What the server did and refused since it started."""

    requests: int = 0
    connections: int = 0
    refused_connections: int = 0
    broken_frames: int = 0
    idle_closed: int = 0


class ModbusTcpServer:
    """Units by unit id behind one listening port; a simulator, so whoever connects may write."""

    def __init__(
        self,
        units: Mapping[int, Unit],
        identity: Identity,
        *,
        idle_s: float = 60.0,
        most_connections: int = 32,
    ) -> None:
        self.counters = ServerCounters()
        self._units = units
        self._identity = identity
        self._idle_s = idle_s
        self._most = most_connections
        self._open: set[_Connection] = set()

    @asynccontextmanager
    async def serving(self, host: str, port: int) -> AsyncIterator[int]:
        """Listen while the context is open; gives the bound port. On leaving every connection is cut."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Connection(self), host, port)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for connection in tuple(self._open):
                connection.cut()
            await server.wait_closed()

    def opened(self, connection: _Connection) -> bool:
        """Whether one more connection is served."""
        if len(self._open) >= self._most:
            self.counters.refused_connections += 1
            log.warning("connection_refused", open=len(self._open))
            return False
        self.counters.connections += 1
        self._open.add(connection)
        return True

    def closed(self, connection: _Connection) -> None:
        """Forget a connection."""
        self._open.discard(connection)

    def answer(self, unit: int, pdu: bytes) -> bytes:
        """The response PDU."""
        self.counters.requests += 1
        return respond(self._units.get(unit), pdu, self._identity)

    @property
    def idle_s(self) -> float:
        """Seconds without a complete request after which a connection is closed."""
        return self._idle_s


class _Connection(asyncio.Protocol):
    def __init__(self, server: ModbusTcpServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._broken = False
        self._received = bytearray()
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  # create_server makes no other kind
        if not self._server.opened(self):
            transport.abort()
            return
        self._transport = transport
        self._restart_idle()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # however it ended
        if self._idle is not None:
            self._idle.cancel()
        self._transport = None
        self._server.closed(self)

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._broken:
            return
        self._received += data
        replies = bytearray()
        sound = self._answer_all(replies)
        if replies:
            self._transport.write(replies)
            self._restart_idle()
        if not sound:
            self._server.counters.broken_frames += 1
            log.warning("frame_broken", peer=self._transport.get_extra_info("peername"))
            self._broken = True
            self._transport.close()

    def pause_writing(self) -> None:
        """A client that does not read its answers is not read either."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def cut(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _answer_all(self, replies: bytearray) -> bool:
        """Answer each complete frame; False where the stream can no longer be framed."""
        while len(self._received) >= _HEADER.size:
            transaction, protocol, length, unit = _HEADER.unpack_from(self._received)
            if protocol != 0 or not _SHORTEST <= length <= _LONGEST:
                return False
            end = _LENGTH_END + length
            if len(self._received) < end:
                break
            pdu = self._server.answer(unit, bytes(self._received[_HEADER.size : end]))
            del self._received[:end]
            replies += _HEADER.pack(transaction, 0, len(pdu) + 1, unit) + pdu
        return True

    def _restart_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(self._server.idle_s, self._close_idle)

    def _close_idle(self) -> None:
        self._server.counters.idle_closed += 1
        if self._transport is not None:
            self._transport.abort()
