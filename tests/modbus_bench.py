"""A hand-over block between a hand-made PLC and the real link, for the tests of `HandOver`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.core.clock import Clock, Deadline, SystemClock
from gateway.core.decision import RegisterValue
from gateway.core.tag import TagDefinition, TagId, TagKind
from gateway.protocols.modbus.block import HandOverLayout, HandOverOutput
from gateway.protocols.modbus.handover import HandOver
from gateway.protocols.modbus.link import LinkCounters, ModbusLink
from gateway.protocols.modbus.model import ModbusEndpoint
from tests.modbus_peer import ModbusPeer, PeerPlc
from tests.recording_proxy import RecordingProxy

CLOCK = SystemClock()
PATIENCE_S = 60.0  # only a failure waits so long
PUMP = TagDefinition(
    id=TagId("TK1.P101.SP"), kind=TagKind.REAL, unit="%", scale=Fraction("0.1"), writable=True
)
HEATER = TagDefinition(id=TagId("TK1.H101.CMD"), kind=TagKind.BOOLEAN, writable=True)
MIXER = TagDefinition(id=TagId("TK1.M101.STAGE"), kind=TagKind.INTEGER, writable=True)
LAYOUT = HandOverLayout(
    unit_id=1,
    outputs=(
        HandOverOutput(definition=PUMP, working_address=4),
        HandOverOutput(definition=HEATER, working_address=5),
        HandOverOutput(definition=MIXER, working_address=6),
    ),
    block_address=100,
    status_address=1,
    accepted_address=2,
    reject_address=3,
    owner_address=11,
    epoch_address=12,
    liveness_address=0,
)
FRAME_BYTES = 31  # MBAP header 7, FC16 header 6, nine registers
FC16 = bytes([1, 16, 0, 100])


class HurriedClock(SystemClock):
    """Runs ahead by a twentieth of a second at each look: a deadline comes while the link still has time."""

    def __init__(self) -> None:
        self._looks = 0

    def monotonic(self) -> float:
        self._looks += 1
        return super().monotonic() + self._looks / 20


def outputs(pump: int, heater: int = 0, mixer: int = 1) -> tuple[RegisterValue, ...]:
    raws = ((PUMP, pump), (HEATER, heater), (MIXER, mixer))
    return tuple(RegisterValue(d.id, raw, Fraction(d.engineering(raw))) for d, raw in raws)


def open_gate() -> str:
    return ""


def soon(seconds: float = PATIENCE_S) -> Deadline:
    return Deadline.after(seconds, CLOCK)


@dataclass
class Source:
    """Stands in for the channel: a link on request."""

    port: int
    link: ModbusLink | None = None
    session: int = 0
    counters: LinkCounters = field(default_factory=LinkCounters)

    async def connect(self, timeout_s: float = 2 * PATIENCE_S) -> None:
        endpoint = ModbusEndpoint(host="127.0.0.1", port=self.port, timeout_s=timeout_s)
        self.link = await ModbusLink.connect(endpoint, name="plc1", clock=CLOCK, counters=self.counters)
        self.session += 1

    def close(self) -> None:
        if self.link is not None:
            self.link.abort("the test is over")


@dataclass
class Bench:
    plc: PeerPlc
    peer: ModbusPeer
    proxy: RecordingProxy
    source: Source
    hand_over: HandOver


@asynccontextmanager
async def bench(clock: Clock = CLOCK) -> AsyncIterator[Bench]:
    plc = PeerPlc()
    async with ModbusPeer({1: plc.unit()}) as peer, RecordingProxy("127.0.0.1", peer.port) as proxy:
        source = Source(proxy.port)
        await source.connect()
        async with asyncio.timeout(PATIENCE_S):
            await proxy.joined.wait()
            await peer.joined.wait()
        try:
            yield Bench(plc, peer, proxy, source, HandOver(source, LAYOUT, owner=1, epoch=1, clock=clock))
        finally:
            source.close()
