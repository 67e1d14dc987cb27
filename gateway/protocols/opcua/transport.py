"""The TCP side of the server: headers are judged before a byte of their body is kept."""

from __future__ import annotations

import asyncio
import struct
import time

import structlog
from asyncua import ua
from asyncua.common.connection import TransportLimits
from asyncua.common.utils import Buffer
from asyncua.server.binary_server_asyncio import BinaryServer, OPCUAProtocol
from asyncua.ua.ua_binary import header_from_binary

from gateway.protocols.opcua.processor import GatewayProcessor
from gateway.protocols.opcua.wire import Foreign, error_message
from gateway.supervision.seldom import Seldom

log = structlog.get_logger().bind(component="opcua")

CHUNK_LIMIT_BYTES = 65_535
_TYPES = frozenset({b"HEL", b"OPN", b"MSG", b"CLO"})
_HEADER = struct.Struct("<3scI")


class GatewayProtocol(OPCUAProtocol):
    """One connection. A header that declares too much, or is none, ends it at once."""

    crowd: Seldom  # of all connections of the listener, as the next
    wrong: Seldom

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, or close it when there are enough."""
        self.peer_name = transport.get_extra_info("peername")
        if len(self.clients) >= self.iserver.max_connections or not isinstance(transport, asyncio.Transport):
            if count := self.crowd.due(time.monotonic()):
                told = {"peer": str(self.peer_name), "connections": count}
                log.warning("connection_refused", **told, reason="too many connections")
            transport.close()
            return
        self.transport = transport
        self.processor = GatewayProcessor(self.iserver, transport, self.limits)
        self.processor.set_policies(self.policies)  # type: ignore[no-untyped-call]  # asyncua leaves it untyped
        self.iserver.asyncio_transports.append(transport)
        self.clients.append(self)
        self._task = asyncio.create_task(self._process_received_message_loop(), name="opcua-connection")
        self._activation_watchdog_task = asyncio.create_task(
            self._activation_watchdog(), name="opcua-watchdog"
        )

    def data_received(self, data: bytes) -> None:
        """Cut the stream into chunks; nothing is kept of a stream that is not OPC UA."""
        if self.transport is None or self.transport.is_closing():
            return
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            kind, _, size = _HEADER.unpack_from(self._buffer)
            if kind not in _TYPES:
                self._refuse(ua.StatusCodes.BadTcpMessageTypeInvalid, "not an OPC UA message")
                return
            if not (12 if kind != b"HEL" else 8) <= size <= CHUNK_LIMIT_BYTES:
                self._refuse(ua.StatusCodes.BadTcpMessageTooLarge, "a chunk may hold 65535 bytes")
                return
            if len(self._buffer) < size:
                return
            chunk, self._buffer = self._buffer[:size], self._buffer[size:]
            body = Buffer(chunk)
            try:
                self.messages.put_nowait((header_from_binary(body), body))
            except asyncio.QueueFull:
                self._refuse(ua.StatusCodes.BadTcpNotEnoughResources, "too many requests at once")
                return

    def _refuse(self, code: int, reason: str) -> None:
        if count := self.wrong.due(time.monotonic()):
            log.warning("connection_closed", peer=str(self.peer_name), reason=reason, connections=count)
        self._buffer = b""
        if self.transport is not None:
            self.transport.write(error_message(code, reason))
            self.transport.close()


class GatewayListener(BinaryServer):
    """asyncua's listener with our connections."""

    def __init__(self, internal_server: Foreign, hostname: str, port: int, limits: TransportLimits) -> None:
        super().__init__(internal_server, hostname, port, limits)
        self._crowd, self._wrong = Seldom(), Seldom()

    def _make_protocol(self) -> OPCUAProtocol:
        made = GatewayProtocol(
            iserver=self.iserver,
            policies=self._policies,
            clients=self.clients,
            closing_tasks=self.closing_tasks,
            limits=self.limits,
        )
        made.crowd, made.wrong = self._crowd, self._wrong
        return made
