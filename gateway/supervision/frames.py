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
    return await reader.readexactly(await read_length(reader))


async def read_length(reader: asyncio.StreamReader) -> int:
    """How long the body is that follows; raises as `read_frame`, and `FrameError` for what nobody sends."""
    (length,) = _HEADER.unpack(await reader.readexactly(_HEADER.size))
    if length > FRAME_LIMIT_BYTES:
        msg = f"frame of {length} bytes is over the limit of {FRAME_LIMIT_BYTES}"
        raise FrameError(msg)
    return int(length)


def frame(body: bytes) -> bytes:
    """`body` with its length before it."""
    return _HEADER.pack(len(body)) + body


class Frames:
    """Cuts what a stream socket delivers into the bodies of its frames."""

    def __init__(self) -> None:
        self._held = bytearray()

    def fed(self, data: bytes) -> list[bytes]:
        """The bodies that `data` completes, in order; raises `FrameError` for a length nobody sends."""
        held = self._held
        held += data
        bodies: list[bytes] = []
        at = 0
        while len(held) - at >= _HEADER.size:
            (length,) = _HEADER.unpack_from(held, at)
            if length > FRAME_LIMIT_BYTES:
                msg = f"frame of {length} bytes is over the limit of {FRAME_LIMIT_BYTES}"
                raise FrameError(msg)
            end = at + _HEADER.size + length
            if len(held) < end:
                break
            bodies.append(bytes(held[at + _HEADER.size : end]))
            at = end
        del held[:at]
        return bodies


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
