"""Killed and started again: what is in force is asked of the PLC, not believed (S18, S19, S22, S23, S26)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pymodbus.client import AsyncModbusTcpClient

from gateway.plantsim.plc import Block, Status
from gateway.protocols.modbus.block import BlockHead, compose, successor
from tests.integration.house import POINT, House, tell
from tests.integration.recorded import blocks

pytestmark = pytest.mark.integration

BLOCK_ADDRESS = 100
REARM_S = 3.0  # of the demo


@contextlib.asynccontextmanager
async def somebody_else_drives(house: House, pump_raw: int) -> AsyncIterator[None]:
    """Another Modbus client that writes whole blocks, with the lease moving, as owner of this epoch."""
    client = AsyncModbusTcpClient("127.0.0.1", port=house.plant_port)
    assert await client.connect()
    held = await client.read_holding_registers(BLOCK_ADDRESS, count=9, device_id=1)
    sequence, lease = held.registers[Block.SEQUENCE], held.registers[Block.LEASE]

    async def write() -> None:
        nonlocal sequence, lease
        sequence, lease = successor(sequence), successor(lease)
        head = BlockHead(sequence=sequence, owner=1, epoch=1, lease=lease, control_valid=True)
        words = compose(head, (pump_raw, 0, held.registers[Block.MIXER]))
        reply = await client.write_registers(BLOCK_ADDRESS, list(words), device_id=1)
        assert not reply.isError()

    enough = asyncio.Event()

    async def drive() -> None:
        while not enough.is_set():
            await write()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):  # less than the PLC's lease
                    await enough.wait()

    await write()
    driving = asyncio.create_task(drive())
    try:
        yield
    finally:
        enough.set()
        await driving  # a write that failed is told here
        client.close()


async def killed(house: House) -> None:
    assert house.daemon is not None
    house.daemon.send_signal(signal.SIGKILL)
    await house.daemon.wait()


@pytest.mark.timeout(240)
async def test_s23_outputs_changed_by_hand_while_the_gateway_was_dead_leave_it_unarmed(
    tmp_path: Path,
) -> None:
    async with House(tmp_path) as house:
        await house.arm()
        await killed(house)
        before = (await house.panel.inputs())[4]
        async with somebody_else_drives(house, before + 60 if before < 900 else before - 60):
            await house.panel.until(
                lambda words: words[4] != before and bool(words[1] & Status.IN_CONTROL), 5
            )
            sent_before = blocks(house.proxy.sent())
            started = time.monotonic()
            await house.start_daemon()
            await house.until(
                lambda p: p.seen_alarm_with("unrequested"), 60, "the change nobody requested, said"
            )
            tell(f"said {time.monotonic() - started:.1f} s after the start")
            seen = len(house.picture.decisions)
            await house.until(
                lambda p: len(p.decisions) > seen + 2 * REARM_S, 60, "decisions past `rearm_after`"
            )
            assert house.picture.mode == "shadow"
            memory = json.loads((house.state / "state.json").read_text())["points"][POINT]
            assert memory["armed_before"] is False
            assert blocks(house.proxy.sent()) == sent_before  # nothing of ours since
        last = house.picture.last
        assert last is not None
        assert last.mode == "shadow"
        assert last.write_outcome == ""


@pytest.mark.timeout(240)
async def test_s26_a_binding_changed_while_the_gateway_was_dead_is_named_and_leaves_it_unarmed(
    tmp_path: Path,
) -> None:
    async with House(tmp_path) as house:
        await house.arm()
        await killed(house)
        table = house.folder / "tk1.csv"
        table.write_text(table.read_text().replace("m3/h,0.01,0,-1,40", "m3/h,0.01,0,-1,36"))
        await house.start_daemon()
        await house.until(
            lambda p: "eu_high is 40 in the sheet and 36" in p.points[POINT].blocked,
            60,
            "the changed line, said",
        )
        why = (await house.ask("mode", {"point": POINT, "mode": "armed"})).error
        assert "`TK1.FT101`: eu_high is 40 in the sheet and 36 in the configuration" in why
        assert f"o3ctl binding print {POINT}" in why
        assert house.picture.mode == "shadow"
