"""Length-prefixed msgspec frames over stream sockets: the one wire format between our own processes."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a worker that only receives and sends must not pay for the event loop at its start
    import asyncio

_HEADER = struct.Struct("!I")
FRAME_LIMIT_BYTES = 16 * 1024 * 1024


class FrameError(Exception):
    """A peer sent something that is not a frame of ours."""


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """One frame's body; raises `asyncio.IncompleteReadError` at end of stream."""
    (length,) = _HEADER.unpack(await reader.readexactly(_HEADER.size))
    if length > FRAME_LIMIT_BYTES:
        msg = f"frame of {length} bytes is over the limit of {FRAME_LIMIT_BYTES}"
        raise FrameError(msg)
    return await reader.readexactly(length)


def frame(body: bytes) -> bytes:
    """`body` with its length before it."""
    return _HEADER.pack(len(body)) + body


def receive(sock: socket.socket) -> bytes | None:
    """One frame's body from a blocking socket, or None at end of stream."""
    header = _exactly(sock, _HEADER.size)
    if header is None:
        return None
    (length,) = _HEADER.unpack(header)
    if length > FRAME_LIMIT_BYTES:
        msg = f"frame of {length} bytes is over the limit of {FRAME_LIMIT_BYTES}"
        raise FrameError(msg)
    return _exactly(sock, length)


def send(sock: socket.socket, body: bytes) -> None:
    """Write one frame to a blocking socket."""
    sock.sendall(frame(body))


def _exactly(sock: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        part = sock.recv(count - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)
