"""The plant as others meet it: over real sockets, by foreign clients, started and stopped as a program."""

from __future__ import annotations

import asyncio
import shutil
import signal
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pymodbus.client import AsyncModbusTcpClient
from pymodbus.pdu.mei_message import ReadDeviceInformationResponse

from gateway.plantsim.judge import violations
from gateway.plantsim.modbus_tcp import ModbusTcpServer
from gateway.plantsim.plant import PlantSettings, RunningPlant, running_plant
from gateway.plantsim.plc import SoftPlc, Status, block_checksum
from gateway.plantsim.scan_log import read_scans
from gateway.plantsim.units import IDENTITY, units_of
from tests.ports import free_port

pytestmark = pytest.mark.integration
PATIENCE_S = 60.0


def block(sequence: int, *, pump: int = 300, heater: int = 1, mixer: int = 1) -> list[int]:
    words = [sequence, 1, 1, sequence, 1, pump, heater, mixer]
    return [*words, block_checksum(words)]


def frame(transaction: int, pdu: str, *, unit: int = 1, protocol: int = 0) -> bytes:
    body = bytes.fromhex(pdu)
    return struct.pack(">HHHB", transaction, protocol, len(body) + 1, unit) + body


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    header = await reader.readexactly(7)
    transaction, _, length, unit = struct.unpack(">HHHB", header)
    return transaction, unit, await reader.readexactly(length - 1)


async def until(ready: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what a scan of the plant brings about, asking it no oftener than it scans."""
    async with asyncio.timeout(PATIENCE_S):
        while not await ready():  # noqa: ASYNC110  # the event is on the other side of a socket
            await asyncio.sleep(0.02)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield reader, writer
        finally:
            writer.close()


@pytest.fixture
async def plant(tmp_path: Path) -> AsyncIterator[RunningPlant]:
    async with running_plant(PlantSettings(port=0, scan_log=tmp_path / "scan.csv")) as running:
        yield running


@pytest.fixture
async def client(plant: RunningPlant) -> AsyncIterator[AsyncModbusTcpClient]:
    modbus = AsyncModbusTcpClient("127.0.0.1", port=plant.port, timeout=PATIENCE_S)
    assert await modbus.connect()
    yield modbus
    modbus.close()


async def test_pymodbus_hands_over_a_block_and_reads_it_back_as_working(
    client: AsyncModbusTcpClient,
) -> None:
    await client.write_register(3, 60_000, device_id=2)  # the lease outlives this test
    await client.write_registers(100, block(1, pump=333, mixer=2), device_id=1)

    async def taken() -> bool:
        return (await client.read_input_registers(2, count=1, device_id=1)).registers == [1]

    await until(taken)
    answer = await client.read_input_registers(1, count=6, device_id=1)
    assert answer.registers == [Status.REMOTE | Status.IN_CONTROL, 1, 0, 333, 1, 2]


async def test_the_plc_falls_back_when_the_lease_stands(
    client: AsyncModbusTcpClient,
) -> None:
    await client.write_register(3, 200, device_id=2)  # lease of 200 ms
    await client.write_registers(100, block(1, pump=900), device_id=1)

    async def fell_back() -> bool:
        answer = await client.read_input_registers(1, count=5, device_id=1)
        return answer.registers[1] == 1 and answer.registers[0] == Status.REMOTE | Status.FALLBACK

    await until(fell_back)
    assert (await client.read_input_registers(5, count=1, device_id=1)).registers == [0]


async def test_pymodbus_gets_every_function_code_and_the_identity(
    client: AsyncModbusTcpClient,
) -> None:
    assert (await client.read_coils(0, count=2, device_id=2)).bits[:2] == [True, False]
    assert (await client.read_discrete_inputs(0, count=1, device_id=1)).bits[0] is True
    assert not (await client.write_coil(1, value=False, device_id=2)).isError()
    assert not (await client.write_coils(0, [True, False], device_id=2)).isError()
    masked = await client.mask_write_register(address=3, and_mask=0xFFFF, or_mask=0, device_id=2)
    assert not masked.isError()
    swapped = await client.readwrite_registers(
        read_address=0, read_count=4, write_address=3, values=[2500], device_id=2
    )
    assert swapped.registers == [1, 0, 0, 2500]
    identity = await client.read_device_information(device_id=1)
    assert isinstance(identity, ReadDeviceInformationResponse)
    assert identity.information[1] == b"O3-PLANTSIM"


async def test_requests_of_one_segment_are_all_answered_in_order_under_their_own_ids(
    plant: RunningPlant,
) -> None:
    requests = [
        frame(7000 + n, ("03 0064 0009", "63", "04 0000 000d", "03 0000 0001")[n % 4]) for n in range(40)
    ]
    async with connected(plant.port) as (reader, writer):
        writer.write(b"".join(requests))
        answers = [await read_frame(reader) for _ in requests]
    assert [transaction for transaction, _, _ in answers] == [7000 + n for n in range(40)]
    assert [pdu[0] for _, _, pdu in answers[:4]] == [0x03, 0xE3, 0x04, 0x83]
    assert len(answers[0][2]) == 2 + 18


async def test_a_request_cut_into_single_octets_is_answered_once(plant: RunningPlant) -> None:
    async with connected(plant.port) as (reader, writer):
        for octet in frame(1, "03 0064 0001"):
            writer.write(bytes((octet,)))
            await writer.drain()
        assert await read_frame(reader) == (1, 1, bytes.fromhex("03 02 0000"))


async def test_an_unknown_unit_is_answered_as_a_gateway_without_that_device(plant: RunningPlant) -> None:
    async with connected(plant.port) as (reader, writer):
        writer.write(frame(5, "03 0064 0001", unit=77))
        assert await read_frame(reader) == (5, 77, bytes.fromhex("83 0b"))


@pytest.mark.parametrize("header", ["0001 0001 0006 01", "0001 0000 0001 01", "0001 0000 0100 01"])
async def test_a_frame_that_is_not_modbus_closes_the_connection_after_the_answers_before_it(
    plant: RunningPlant, header: str
) -> None:
    async with connected(plant.port) as (reader, writer):
        writer.write(frame(1, "03 0064 0001") + bytes.fromhex(header) + b"\x03\x00\x64\x00\x01")
        assert (await read_frame(reader))[0] == 1
        assert await reader.read() == b""
    assert plant.server.counters.broken_frames == 1


async def test_a_connection_cut_at_any_octet_of_a_hand_over_leaves_no_part_of_it(plant: RunningPlant) -> None:
    words = struct.pack(">9H", *block(9, pump=1000, mixer=3))
    request = frame(1, "10 0064 0009 12" + words.hex())
    before = list(plant.plc.block)
    for cut in range(len(request)):
        async with connected(plant.port) as (_, writer):
            writer.write(request[:cut])
            await writer.drain()
            writer.transport.abort()
    async with connected(plant.port) as (reader, writer):
        writer.write(frame(2, "03 0064 0001"))
        assert (await read_frame(reader))[0] == 2
    assert plant.plc.block == before
    assert plant.plc.inputs[2] == 0


async def test_one_connection_too_many_is_refused() -> None:
    server = ModbusTcpServer(units_of(SoftPlc(seed=1)), IDENTITY, most_connections=1)
    async with server.serving("127.0.0.1", 0) as port, connected(port) as (reader, writer):
        writer.write(frame(1, "03 0064 0001"))
        await read_frame(reader)
        async with connected(port) as (second, _):
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await second.readexactly(1)
    assert server.counters.refused_connections == 1


async def test_an_idle_connection_is_closed() -> None:
    server = ModbusTcpServer(units_of(SoftPlc(seed=1)), IDENTITY, idle_s=0.2)
    async with server.serving("127.0.0.1", 0) as port, connected(port) as (reader, _):
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
    assert server.counters.idle_closed == 1


async def test_mbpoll_reads_the_plc_and_sets_a_switch(plant: RunningPlant) -> None:
    mbpoll = shutil.which("mbpoll")
    if mbpoll is None:
        pytest.skip("mbpoll is not installed (apt-get install mbpoll)")

    async def run(*arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            mbpoll,
            *("-m", "tcp", "-p", str(plant.port), "-0", "-1", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        assert process.returncode == 0, output.decode()
        return output.decode()

    read = await run("-a", "1", "-t", "3", "-r", "11", "-c", "2", "127.0.0.1")
    assert "[11]: \t1" in read
    assert "[12]: \t1" in read
    await run("-a", "2", "-t", "4", "-r", "2", "127.0.0.1", "5")
    assert plant.plc.panel[2] == 5


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
async def test_the_program_says_where_it_serves_and_stops_cleanly_with_its_log_complete(
    tmp_path: Path, ending: signal.Signals
) -> None:
    path = tmp_path / "logs" / "scan.csv"
    process = await start_program("--port", "0", "--level", "2.5", "--scan-log", str(path))
    try:
        port = await served_port(process)
        async with connected(port) as (reader, writer):
            writer.write(frame(1, "04 0000 0001"))
            await read_frame(reader)
            process.send_signal(ending)
            assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    scans = list(read_scans(path))
    assert [scan.scan for scan in scans] == list(range(1, len(scans) + 1))
    assert scans[0].level_m == pytest.approx(2.5, abs=0.01)
    assert violations(path) == []


async def test_a_killed_plant_leaves_its_log_and_starts_again_on_the_same_port(tmp_path: Path) -> None:
    path, port = tmp_path / "scan.csv", free_port()
    for run in (1, 2):
        process = await start_program("--port", str(port), "--scan-log", str(path))
        try:
            assert await served_port(process) == port
            async with connected(port) as (reader, writer):

                async def logged(
                    reader: asyncio.StreamReader = reader,
                    writer: asyncio.StreamWriter = writer,
                    run: int = run,
                ) -> bool:
                    writer.write(frame(1, "04 0000 000d"))
                    await read_frame(reader)
                    *runs, last = (path.read_bytes() if path.exists() else b"").split(b"monotonic_s")
                    return len(runs) == run and last.count(b"\n") > 11

                await until(logged)
        finally:
            process.kill()
            await process.wait()
    scans = list(read_scans(path))
    assert {scan.run for scan in scans} == {1, 2}
    assert len(scans) >= 2 * 10
    assert violations(path) == []


async def test_a_port_in_use_is_said_in_one_line(plant: RunningPlant) -> None:
    process = await start_program("--port", str(plant.port))
    assert process.stderr is not None
    said = await asyncio.wait_for(process.stderr.read(), PATIENCE_S)
    assert await process.wait() == 1
    assert said.count(b"\n") == 1
    assert b"cannot serve on 127.0.0.1" in said


async def start_program(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "gateway.plantsim", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def served_port(process: asyncio.subprocess.Process) -> int:
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
    return int(line.rpartition(b":")[2])
