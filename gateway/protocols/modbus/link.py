"""One Modbus TCP connection: one client object, one transaction in flight, thrown away when it breaks.

pymodbus frames and decodes; it neither reconnects nor retries here. Every request has a time-out, and after
one the connection is reset: an answer that comes late finds no one, and bytes still unsent never leave.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from pymodbus.client import AsyncModbusTcpClient
from pymodbus.exceptions import ConnectionException, ModbusException
from pymodbus.pdu import ModbusPDU
from pymodbus.pdu.bit_message import ReadCoilsRequest, ReadDiscreteInputsRequest
from pymodbus.pdu.register_message import (
    ReadHoldingRegistersRequest,
    ReadInputRegistersRequest,
    WriteMultipleRegistersRequest,
)

from gateway.core.clock import Clock, Deadline
from gateway.core.errors import LinkBrokenError, LinkBusyError, LinkRefusedError, LinkTimeoutError
from gateway.core.ports import Gate
from gateway.protocols.modbus.model import ModbusEndpoint
from gateway.protocols.modbus.plan import Table

_READS: dict[Table, type[ModbusPDU]] = {
    "coil": ReadCoilsRequest,
    "discrete": ReadDiscreteInputsRequest,
    "holding": ReadHoldingRegistersRequest,
    "input": ReadInputRegistersRequest,
}
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: unsent bytes are dropped, not delivered late

# Modbus Application Protocol 1.1b3, 7
_EXCEPTIONS = {
    1: "illegal function",
    2: "illegal data address",
    3: "illegal data value",
    4: "server device failure",
    5: "acknowledge, not done yet",
    6: "server device busy",
    8: "memory parity error",
    10: "gateway path unavailable",
    11: "gateway target device failed to respond",
}


class ModbusExceptionError(LinkRefusedError):
    """The device answered with an exception code; the link is fine."""

    def __init__(self, link: str, unit_id: int, code: int) -> None:
        meaning = _EXCEPTIONS.get(code, "unknown to the specification")
        super().__init__(link, f"unit {unit_id} answered exception {code} ({meaning})")
        self.unit_id, self.code = unit_id, code


class GateClosedError(LinkRefusedError):
    """Our own gate was closed at the instant before the bytes; nothing left."""


class Departure:
    """A request's way through the gate; afterwards it tells whether any byte may have left."""

    def __init__(self, gate: Gate | None = None) -> None:
        self._gate = gate
        self.may_have_left = False

    def depart(self, link: str) -> None:
        """Called once, synchronously, directly before the bytes; raises GateClosedError."""
        reason = self._gate() if self._gate is not None else ""
        if reason:
            raise GateClosedError(link, reason)
        self.may_have_left = True


@dataclass(slots=True)
class LinkCounters:
    """What the links of one channel counted; outlives each of them."""

    requests: int = 0
    answers: int = 0
    exceptions: int = 0
    timeouts: int = 0
    breaks: int = 0
    wrong_answers: int = 0
    longest_answer_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Reply:
    """Registers (or bits as 0 and 1), and our monotonic time when they were asked for: they are no older."""

    words: tuple[int, ...]
    at: float


class ModbusLink:
    """Made by `connect`, used until `lost`, then thrown away. `fault` says why it was lost."""

    def __init__(self, endpoint: ModbusEndpoint, name: str, clock: Clock, counters: LinkCounters) -> None:
        self.name, self.counters = name, counters
        self.fault = ""
        self.lost = asyncio.Event()
        self._endpoint, self._clock = endpoint, clock
        self._turn = asyncio.Lock()
        self._departure: Departure | None = None
        self._in_flight = False
        self._last_answer_at = self._asked_at = float("-inf")
        self._client = AsyncModbusTcpClient(
            endpoint.host,
            port=endpoint.port,
            name=name,
            timeout=2 * endpoint.timeout_s + 1,  # ours is the shorter one and says which request it was
            retries=0,
            reconnect_delay=0,
            trace_packet=self._on_packet,
            trace_connect=self._on_connection,
        )

    @classmethod
    async def connect(
        cls, endpoint: ModbusEndpoint, *, name: str, clock: Clock, counters: LinkCounters
    ) -> ModbusLink:
        """A fresh connection; raises LinkBrokenError or LinkTimeoutError."""
        link = cls(endpoint, name, clock, counters)
        where = f"{endpoint.host}:{endpoint.port}"
        try:
            with _cancellation_kept():
                async with asyncio.timeout(endpoint.timeout_s):
                    connected = await link._client.connect()
        except TimeoutError as exc:
            link.abort("no connection in time")
            raise LinkTimeoutError(name, f"no connection to {where} within {endpoint.timeout_s:g} s") from exc
        except BaseException:
            link.abort("connecting was given up")
            raise
        if not connected:
            raise LinkBrokenError(name, f"nobody listens at {where}")
        if endpoint.settle_s:
            await asyncio.sleep(endpoint.settle_s)
        return link

    async def read(
        self, unit_id: int, table: Table, address: int, count: int, deadline: Deadline | None = None
    ) -> Reply:
        """Exactly `count` registers or bits; raises LinkError, and ModbusExceptionError for a refusal."""
        request = _READS[table](dev_id=unit_id, address=address, count=count)
        answer = await self._exchange(request, deadline, Departure())
        if table in {"input", "holding"}:
            words, expected = tuple(answer.registers), count
        else:
            words, expected = tuple(int(bit) for bit in answer.bits), -(-count // 8) * 8
        if len(words) != expected:
            raise self._wrong(f"{len(words)} values for {count} asked of unit {unit_id}")
        return Reply(words[:count], self._asked_at)

    async def write_registers(
        self, unit_id: int, address: int, words: Sequence[int], deadline: Deadline, departure: Departure
    ) -> None:
        """One FC16 write. The gate in `departure` is asked directly before the bytes leave.

        Raises GateClosedError, ModbusExceptionError or another LinkError; then `departure.may_have_left`
        tells whether the device may have the write. Never repeated.
        """
        request = WriteMultipleRegistersRequest(dev_id=unit_id, address=address, registers=list(words))
        answer = await self._exchange(request, deadline, departure)
        if (answer.address, answer.count) != (address, len(words)):
            raise self._wrong(f"a write of {len(words)} registers was answered as {answer.count}")

    def abort(self, reason: str) -> None:
        """Reset the connection at once; a request in flight fails with LinkBrokenError."""
        if self.fault:
            return
        self.fault = reason
        transport = self._client.ctx.transport
        if isinstance(transport, asyncio.Transport):
            peer = transport.get_extra_info("socket")
            if peer is not None and not transport.is_closing():
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            transport.abort()
        self._client.close()
        self._fail_request()
        self.lost.set()

    async def _exchange(
        self, request: ModbusPDU, deadline: Deadline | None, departure: Departure
    ) -> ModbusPDU:
        async with self._turn_by(deadline):
            if self._endpoint.gap_s:
                await asyncio.sleep(self._last_answer_at + self._endpoint.gap_s - self._clock.monotonic())
            if self.fault:
                raise LinkBrokenError(self.name, self.fault)
            self._asked_at = self._clock.monotonic()
            allowed = self._endpoint.timeout_s
            if deadline is not None:
                allowed = min(allowed, deadline.remaining(self._clock))
            if allowed <= 0:
                raise LinkBusyError(self.name, "the deadline passed before the request could leave")
            answer = await self._ask(request, allowed, departure)
            self._last_answer_at = self._clock.monotonic()
            took = self._last_answer_at - self._asked_at
            self.counters.longest_answer_s = max(self.counters.longest_answer_s, took)
        return self._checked(request, answer)

    @asynccontextmanager
    async def _turn_by(self, deadline: Deadline | None) -> AsyncIterator[None]:
        """The link to ourselves; LinkBusyError when the deadline comes first. Holders are bounded anyway."""
        try:
            async with asyncio.timeout(None if deadline is None else deadline.remaining(self._clock)):
                await self._turn.acquire()
        except TimeoutError as exc:
            raise LinkBusyError(self.name, "other requests held the link until the deadline") from exc
        try:
            yield
        finally:
            self._turn.release()

    async def _ask(self, request: ModbusPDU, allowed_s: float, departure: Departure) -> ModbusPDU:
        """The answer to this request. Whatever ends it early, cancellation too, resets the connection."""
        self._departure, self._in_flight = departure, True
        try:
            with _cancellation_kept():
                async with asyncio.timeout(allowed_s):
                    # awaited directly: from here to the bytes nothing else runs
                    answer: ModbusPDU = await self._client.execute(False, request)  # noqa: FBT003 - pymodbus
        except GateClosedError:
            raise
        except TimeoutError as exc:
            self.counters.timeouts += 1
            self.abort(f"unit {request.dev_id} did not answer in time")
            raise LinkTimeoutError(
                self.name, f"unit {request.dev_id} did not answer within {allowed_s:.3g} s"
            ) from exc
        except (ConnectionException, ModbusException) as exc:
            self.abort(exc.string)
            raise LinkBrokenError(self.name, self.fault) from exc
        except BaseException:
            self.abort("a request was given up before its answer came")
            raise
        finally:
            self._departure, self._in_flight = None, False
        return answer

    def _checked(self, request: ModbusPDU, answer: ModbusPDU) -> ModbusPDU:
        # pymodbus lets an answer with transaction id 0 pass, and any function code
        if answer.transaction_id != request.transaction_id or answer.dev_id != request.dev_id:
            raise self._wrong(f"an answer of unit {answer.dev_id} to transaction {answer.transaction_id}")
        if answer.function_code & 0x7F != request.function_code:
            raise self._wrong(f"function {request.function_code} was answered as {answer.function_code}")
        if answer.isError():
            self.counters.exceptions += 1
            raise ModbusExceptionError(self.name, request.dev_id, answer.exception_code)
        self.counters.answers += 1
        return answer

    def _wrong(self, problem: str) -> LinkBrokenError:
        self.counters.wrong_answers += 1
        self.abort(problem)
        return LinkBrokenError(self.name, problem)

    def _on_packet(self, sending: bool, data: bytes) -> bytes:  # noqa: FBT001 - pymodbus's signature
        """Called by pymodbus with the finished frame, directly before it goes to the transport."""
        if sending and self._departure is not None:
            transport = self._client.ctx.transport
            if transport is None or transport.is_closing():
                raise ConnectionException("the connection is closing")
            self._departure.depart(self.name)
            self.counters.requests += 1
        return data

    def _on_connection(self, made: bool) -> None:  # noqa: FBT001 - pymodbus's signature
        if made or self.fault:
            return
        self.counters.breaks += 1
        self.fault = "the peer closed the connection"
        self._fail_request()
        self.lost.set()

    def _fail_request(self) -> None:
        answer = self._client.ctx.response_future
        if self._in_flight and not answer.done():
            answer.set_exception(ConnectionException(self.fault))


@contextmanager
def _cancellation_kept() -> Iterator[None]:
    """Raises a cancellation that came with a result: `wait_for` of Python 3.11, in pymodbus, drops it."""
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    yield
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError
