"""A small Modbus TCP server with a PLC's hand-over contract, for tests that need to see every request."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from gateway.protocols.modbus.block import crc16, is_later


@dataclass(slots=True)
class PeerUnit:
    """Registers of one unit; an address that is missing answers exception 2."""

    input: dict[int, int] = field(default_factory=dict)
    holding: dict[int, int] = field(default_factory=dict)
    coil: dict[int, int] = field(default_factory=dict)
    discrete: dict[int, int] = field(default_factory=dict)
    silent: bool = False
    exception: int = 0  # answer everything with this code
    write_exception: int = 0  # answer writes with this code
    on_scan: Callable[[PeerUnit], None] | None = None


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """One request as the peer saw it."""

    unit: int
    function: int
    address: int
    count: int
    words: tuple[int, ...] = ()


class ModbusPeer:
    """`async with ModbusPeer({1: unit}) as peer`; a unit's program scans before and after every request."""

    def __init__(self, units: dict[int, PeerUnit]) -> None:
        self.units = units
        self.requests: list[PeerRequest] = []
        self.spoil: Callable[[bytes], bytes] | None = None  # changes an answer on its way out
        self.hold: asyncio.Event | None = None  # answers wait until it is set
        self.joined = asyncio.Event()  # set by the first connection
        self.served = asyncio.Event()  # set by the first request
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; on the port of last time where there was one."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the listener and every connection."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            with contextlib.suppress(OSError):  # however it ended
                await writer.wait_closed()
        self._writers.clear()
        await self._server.wait_closed()

    def writes(self) -> list[PeerRequest]:
        """FC16 requests that arrived whole."""
        return [request for request in self.requests if request.function == 16]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.append(writer)
        self.joined.set()
        with contextlib.suppress(asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            while True:
                head = await reader.readexactly(7)
                tid, _, length, unit_id = struct.unpack(">HHHB", head)
                answer = self._answer(unit_id, await reader.readexactly(length - 1))
                self.served.set()
                if answer is None:
                    continue
                if self.hold is not None:
                    await self.hold.wait()
                framed = struct.pack(">HHHB", tid, 0, len(answer) + 1, unit_id) + answer
                writer.write(self.spoil(framed) if self.spoil else framed)
        self._tasks.discard(task)
        writer.transport.abort()

    def _answer(self, unit_id: int, pdu: bytes) -> bytes | None:
        function, address, count = struct.unpack(">BHH", pdu[:5])
        words = struct.unpack(f">{count}H", pdu[6:]) if function == 16 else ()
        self.requests.append(PeerRequest(unit_id, function, address, count, words))
        unit = self.units.get(unit_id)
        if unit is None:
            return bytes([function | 0x80, 11])
        if unit.silent:
            return None
        if code := unit.exception or (function == 16 and unit.write_exception):
            return bytes([function | 0x80, code])
        if unit.on_scan:
            unit.on_scan(unit)
        answer = self._carry_out(unit, function, address, count, words)
        if unit.on_scan:
            unit.on_scan(unit)
        return answer

    @staticmethod
    def _carry_out(unit: PeerUnit, function: int, address: int, count: int, words: tuple[int, ...]) -> bytes:
        table = {1: unit.coil, 2: unit.discrete, 3: unit.holding, 4: unit.input, 16: unit.holding}[function]
        if any(a not in table for a in range(address, address + count)):
            return bytes([function | 0x80, 2])
        if function == 16:
            table.update(zip(range(address, address + count), words, strict=True))
            return struct.pack(">BHH", function, address, count)
        held = [table[a] for a in range(address, address + count)]
        if function in {3, 4}:
            return struct.pack(f">BB{count}H", function, 2 * count, *held)
        packed = bytearray(-(-count // 8))
        for n, bit in enumerate(held):
            packed[n // 8] |= bit << (n % 8)
        return bytes([function, len(packed), *packed])


@dataclass(slots=True)
class PeerPlc:
    """The demo plant's hand-over contract without its physics: scans when told by the peer."""

    frozen: bool = False
    local: bool = False
    owner: int = 1
    epoch: int = 1
    accepted: int = 0
    distort: int = 0  # added to the first working value: a PLC that clamps
    every: int = 1  # chances to scan for one scan: a PLC slower than its clients
    chances: int = 0
    lease_seen: int | None = None
    accepted_blocks: list[tuple[int, ...]] = field(default_factory=list)

    def unit(self) -> PeerUnit:
        """Unit 1 of the demo plant."""
        unit = PeerUnit(on_scan=self.scan)
        unit.input = dict.fromkeys(range(13), 0)
        unit.input |= {7: 2000, 8: 1200, 9: 4000}
        unit.holding = dict.fromkeys(range(100, 109), 0)
        return unit

    def scan(self, unit: PeerUnit) -> None:
        """One scan: look at the block, copy all outputs or say why not, move the counter."""
        self.chances += 1
        if self.frozen or self.chances % self.every:
            return
        words = tuple(unit.holding[a] for a in range(100, 109))
        reject = self._reject(words)
        in_control = bool(unit.input[1] & 2) and words[4] == 1 and not self.local
        new = words[0] != self.accepted
        if not reject and new and not is_later(words[0], self.accepted):
            reject = 8
        if not reject and new:
            self.accepted = words[0]
            self.accepted_blocks.append(words)
            unit.input[4], unit.input[5], unit.input[6] = words[5] + self.distort, words[6], words[7]
            in_control = in_control or words[3] != self.lease_seen
            self.lease_seen = words[3]
        unit.input[0] = (unit.input[0] + 1) & 0xFFFF
        unit.input[1] = (0 if self.local else 1) | (2 if in_control else 4)
        unit.input[2], unit.input[3] = self.accepted, reject
        unit.input[11], unit.input[12] = self.owner, self.epoch

    def _reject(self, words: tuple[int, ...]) -> int:
        if crc16(struct.pack(">8H", *words[:8])) != words[8]:
            return 1
        if words[1] != self.owner:
            return 2
        if words[2] != self.epoch:
            return 3
        if self.local:
            return 4
        if not words[4]:
            return 6
        return 5 if words[5] > 1000 or words[6] > 1 or words[7] > 3 else 0
