"""What a person reads when a link cannot do what was asked, each by a peer that brings it about."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.core.clock import Deadline, SystemClock
from gateway.core.errors import LinkBusyError, LinkError, LinkRefusedError, LinkTimeoutError
from gateway.link.client import LinkClient
from gateway.protocols.modbus.link import (
    Departure,
    GateClosedError,
    LinkCounters,
    ModbusExceptionError,
    ModbusLink,
)
from gateway.protocols.modbus.model import ModbusEndpoint
from gateway.protocols.mqtt.backlog import Message
from gateway.protocols.mqtt.link import MqttLink
from gateway.protocols.mqtt.settings import MqttSettings
from tests.modbus_peer import ModbusPeer, PeerUnit

pytestmark = pytest.mark.integration  # every test has a peer on loopback

CLOCK = SystemClock()
NOT_AUTHORIZED = 0x87  # MQTT 5.0, table 3-1


async def linked(port: int, timeout_s: float = 30.0) -> ModbusLink:
    endpoint = ModbusEndpoint(host="127.0.0.1", port=port, timeout_s=timeout_s)
    return await ModbusLink.connect(endpoint, name="plc1", clock=CLOCK, counters=LinkCounters())


async def test_a_device_that_refuses_is_quoted_with_what_its_code_means() -> None:
    async with ModbusPeer({7: PeerUnit(exception=6)}) as peer:
        link = await linked(peer.port)
        with pytest.raises(ModbusExceptionError) as told:
            await link.read(7, "holding", 0, 1)
        assert str(told.value) == "link `plc1`: unit 7 answered exception 6 (server device busy)"
        assert (told.value.unit_id, told.value.code) == (7, 6)
        link.abort("done")


async def test_a_device_that_says_nothing_is_named_with_the_time_it_had() -> None:
    async with ModbusPeer({7: PeerUnit(silent=True)}) as peer:
        link = await linked(peer.port, timeout_s=0.7)
        with pytest.raises(LinkTimeoutError, match=r"^link `plc1`: unit 7 did not answer within 0\.7 s$"):
            await link.read(7, "holding", 0, 1)


async def test_a_link_that_is_taken_until_the_deadline_says_so() -> None:
    async with ModbusPeer({7: PeerUnit(silent=True)}) as peer:
        link = await linked(peer.port, timeout_s=30.0)
        first = asyncio.create_task(link.read(7, "holding", 0, 1), name="first")
        await asyncio.wait_for(peer.served.wait(), 60)
        with pytest.raises(LinkBusyError, match=r"^link `plc1`: other requests held the link until the dead"):
            await link.read(7, "holding", 0, 1, Deadline.after(0.02, CLOCK))
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_a_gate_that_is_closed_gives_its_own_reason_and_no_byte_leaves() -> None:
    async with ModbusPeer({7: PeerUnit(holding={0: 0})}) as peer:
        link = await linked(peer.port)
        departure = Departure(lambda: "writes are stopped by a person")
        with pytest.raises(GateClosedError, match=r"^link `plc1`: writes are stopped by a person$"):
            await link.write_registers(7, 0, [1], Deadline.after(60.0, CLOCK), departure)
        assert not departure.may_have_left
        assert peer.writes() == []
        link.abort("done")


async def test_a_broker_that_refuses_is_named_with_its_reason() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(bytes([0x20, 3, 0, NOT_AUTHORIZED, 0]))  # CONNACK
        await reader.read()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        settings = MqttSettings(host="127.0.0.1", port=port, client_id="g", prefix="o3")
        said = rf"^link `mqtt 127\.0\.0\.1:{port}`: the broker refused: Not authorized$"
        with pytest.raises(LinkRefusedError, match=said):
            await MqttLink.open(
                settings,
                Message("o3/state", b"", retain=True),
                clock=CLOCK.monotonic,
                on_arrival=lambda _arrival: None,
                on_ack=lambda _mid, _ok: None,
                on_lost=lambda: None,
            )


# One type for whoever only has to know that there is no answer.
async def test_a_gateway_that_is_not_there_is_named_by_its_socket(tmp_path: Path) -> None:
    with pytest.raises(LinkError, match=rf"^link `{tmp_path}/o3\.sock`: no gateway answers there \("):
        await LinkClient.connect(tmp_path / "o3.sock", "o3ctl")
