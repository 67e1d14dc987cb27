"""Killed and started again: what is in force is asked of the PLC, not believed (S18, S19, S22, S23, S26)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pymodbus.client import AsyncModbusTcpClient

from gateway.core.decision import DecisionRecord, Mode, WriteOutcome
from gateway.link.messages import DecisionView
from gateway.plantsim.plc import Block, Status
from gateway.protocols.modbus.block import BlockHead, compose, successor
from tests.integration.house import POINT, House, tell
from tests.integration.picture import Picture
from tests.integration.recorded import CONTROL_VALID, PUMP, SEQUENCE, audited, blocks

pytestmark = pytest.mark.integration

BLOCK_ADDRESS = 100
REARM_S = 3.0  # of the demo
LEASE_S = 3.0
RAMP_S = 10.0  # of the PLC's fallback, over the whole range
HIGH_M = 3.0  # well above what the PLC's fallback pumps down to: it goes to full speed and stays there
FULL_SPEED = 1000  # 0.1 %
OUTPUTS = ("TK1.P101.SP", "TK1.H101.CMD", "TK1.M101.STAGE")


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


async def in_control_for_a_while(house: House) -> None:
    """Armed, with writes confirmed: the first of them is remembered durably when the third is made."""
    at = time.monotonic()
    await house.arm()
    await house.until(
        lambda p: sum(view.write_outcome == "confirmed" for view in p.since(at)) >= 3, 30, "three writes"
    )


async def killed(house: House) -> None:
    assert house.daemon is not None
    house.daemon.send_signal(signal.SIGKILL)
    await house.daemon.wait()


def decided_since(picture: Picture, utc_ns: int) -> list[DecisionView]:
    """Decisions made since then, in order."""
    return [view for view in picture.decisions.values() if view.at_ns > utc_ns]


def values_on_record(records: list[DecisionRecord]) -> list[tuple[int, ...]]:
    """What armed decisions may have sent, in order."""
    surely_not_sent = (WriteOutcome.REFUSED, WriteOutcome.FAILED)
    return [
        tuple(next(value.raw for value in record.written if value.tag == tag) for tag in OUTPUTS)
        for record in records
        if record.mode is Mode.ARMED and record.written and record.write_outcome not in surely_not_sent
    ]


def values_of(sent: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The outputs of the blocks that took or kept control."""
    return [block[PUMP : PUMP + len(OUTPUTS)] for block in sent if block[CONTROL_VALID]]


def in_order(few: list[tuple[int, ...]], many: list[tuple[int, ...]]) -> bool:
    """Whether each of the few has one of its own among the many, in the same order."""
    left = iter(many)
    return all(one in left for one in few)


async def given_back(house: House) -> tuple[int, ...]:
    """The outputs that the PLC's own fallback has come to rest on once the lease has run out."""
    took = await house.panel.until(
        lambda words: words[1] & (Status.IN_CONTROL | Status.FALLBACK) == Status.FALLBACK, LEASE_S + 2
    )
    tell(f"the PLC fell back by itself {took:.1f} s after the kill")
    await house.panel.until(lambda words: words[4] == FULL_SPEED, RAMP_S + 2)
    return tuple((await house.panel.inputs())[4:7])


async def armed_again(house: House) -> int:
    """Started, at first in shadow without a write, and armed by nobody's hand; UTC ns of the start."""
    seen, started_ns, started = len(house.proxy.chunks), time.time_ns(), time.monotonic()
    await house.start_daemon()
    await house.until(
        lambda p: any(view.write_outcome == "confirmed" for view in decided_since(p, started_ns)),
        90,
        "armed again by itself",
    )
    tell(f"armed again by itself {time.monotonic() - started:.1f} s after the start")
    since = [chunk for chunk in house.proxy.chunks[seen:] if chunk.direction == "to_server"]
    first_write = next(chunk.at for chunk in since if blocks(chunk.passed))
    assert first_write - since[0].at >= REARM_S  # inputs cannot be Good for longer than they are read
    views = decided_since(house.picture, started_ns)
    unwritten = list(itertools.takewhile(lambda view: view.mode == "shadow", views))
    assert unwritten
    assert {view.write_outcome for view in unwritten} == {""}
    assert {view.mode for view in views[len(unwritten) :]} == {"armed"}
    await house.until(lambda p: p.mode == "armed" and p.in_control, 10, "armed and in control")
    return started_ns


def written_as_recorded(records: list[DecisionRecord], sent: list[tuple[int, ...]]) -> None:
    """Every block is on record before it went out, and every write said to be confirmed went out."""
    assert in_order(values_of(sent), values_on_record(records))
    confirmed = sum(record.write_outcome is WriteOutcome.CONFIRMED for record in records)
    assert 1 <= confirmed <= len(values_of(sent))


@pytest.mark.timeout(900)
async def test_s23_a_gateway_killed_in_control_arms_itself_again_from_what_the_plc_left_in_force(
    tmp_path: Path,
) -> None:
    async with House(tmp_path, level_m=HIGH_M) as house:
        await in_control_for_a_while(house)
        await killed(house)
        in_force = await given_back(house)
        first_life = blocks(house.proxy.sent())
        restarted_ns = await armed_again(house)
        await house.stop_daemon()

        sent = blocks(house.proxy.sent())
        second_life = sent[len(first_life) :]
        assert second_life[0][CONTROL_VALID] == 1
        assert values_of(second_life)[0] == in_force  # the first write
        assert len({block[SEQUENCE] for block in sent}) == len(sent)  # over both lives nothing was repeated
        records, acts = await audited(house.state)
        assert {*house.picture.decisions} <= {record.id for record in records}
        written_as_recorded([r for r in records if r.received_utc_ns < restarted_ns], first_life)
        written_as_recorded([r for r in records if r.received_utc_ns > restarted_ns], second_life)
        told = [(act.kind, act.who, act.what.get("why")) for act in acts if act.at_utc_ns > restarted_ns]
        assert told[0][:2] == ("start", "gateway")
        assert ("mode", "gateway", "armed before the start") in told
        await house.close()
        assert house.violations() == []


@pytest.mark.timeout(900)
async def test_s23_outputs_changed_by_hand_while_the_gateway_was_dead_leave_it_unarmed(
    tmp_path: Path,
) -> None:
    async with House(tmp_path) as house:
        await in_control_for_a_while(house)
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
        await house.stop_daemon()
        _, acts = await audited(house.state)
        told = next(act.what["why"] for act in reversed(acts) if act.kind == "unrequested")
        assert "were the last ones confirmed" in told
        assert not [act for act in acts if act.what.get("why") == "armed before the start"]


@pytest.mark.timeout(900)
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
