"""Channel and hand-over against the demo plant's soft PLC in its own process; mbpoll reads along."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fractions import Fraction

import pytest

from gateway.core.clock import Deadline, SystemClock
from gateway.core.decision import RegisterValue, WriteOutcome
from gateway.core.quality import StatusCode
from gateway.core.tag import TagDefinition, TagId, TagKind
from gateway.core.tagstore import TagStore
from gateway.protocols.modbus.channel import ModbusChannel
from gateway.protocols.modbus.handover import HandOver
from gateway.protocols.modbus.link import Departure
from gateway.protocols.modbus.model import ModbusDevice, ModbusEndpoint, ModbusTag
from tests.modbus_bench import FC16, FRAME_BYTES, HEATER, LAYOUT, MIXER, PATIENCE_S, PUMP
from tests.recording_proxy import RecordingProxy

pytestmark = pytest.mark.integration

CLOCK = SystemClock()
MBPOLL = shutil.which("mbpoll")
REMOTE, FREEZE, FORCE, LEASE_MS = 0, 1, 2, 3  # the local panel, unit 2


def definition(name: str, kind: TagKind = TagKind.REAL, scale: str = "1") -> TagDefinition:
    return TagDefinition(id=TagId(name), kind=kind, scale=Fraction(scale))


STATUS = definition("TK1.STATUS", TagKind.INTEGER)
LEVEL = definition("TK1.LT101", scale="0.001")
LIVE = definition("TK1.LIVE", TagKind.INTEGER)
FLAGS = definition("TK1.FLAGS", TagKind.INTEGER)
TANK = ModbusDevice(
    id="TK1",
    unit_id=1,
    tags=(
        ModbusTag(definition=LIVE, table="input", address=0),
        ModbusTag(definition=STATUS, table="input", address=1),
        ModbusTag(
            definition=LEVEL, table="input", address=7, raw_type="int16", flag_tag=FLAGS.id, flag_bit=0
        ),
        ModbusTag(definition=FLAGS, table="input", address=10),
    ),
    poll_groups={"fast": 0.1},
    liveness_tag=LIVE.id,
    liveness_limit_s=0.5,
)


def outputs(pump: int, heater: int = 0, mixer: int = 1) -> tuple[RegisterValue, ...]:
    raws = ((PUMP, pump), (HEATER, heater), (MIXER, mixer))
    return tuple(RegisterValue(d.id, raw, Fraction(d.engineering(raw))) for d, raw in raws)


def soon() -> Deadline:
    return Deadline.after(PATIENCE_S, CLOCK)


@dataclass
class Plant:
    port: int
    proxy: RecordingProxy
    store: TagStore
    channel: ModbusChannel
    hand_over: HandOver
    changed: asyncio.Event

    async def until(self, true: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
        async with asyncio.timeout(within_s):
            while not true():
                self.changed.clear()
                await self.changed.wait()

    async def renewed(self, session: int) -> None:
        await self.until(lambda: self.channel.session > session and self.status(LEVEL) is StatusCode.Good)

    async def panel(self, register: int, value: int) -> None:
        assert self.channel.link is not None
        await self.channel.link.write_registers(2, register, [value], soon(), Departure())

    def status(self, tag: TagDefinition) -> StatusCode:
        return self.store[tag.id].status

    async def write(self, values: tuple[RegisterValue, ...]) -> tuple[WriteOutcome, str]:
        return await self.hand_over.write(values, lambda: "", soon())


@asynccontextmanager
async def plant() -> AsyncIterator[Plant]:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway.plantsim", "--port", "0", stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            said = (await program.stdout.readline()).decode()
        found = re.search(r":(\d+)$", said.strip())
        assert found, said
        async with RecordingProxy("127.0.0.1", int(found[1])) as proxy:
            store, changed = TagStore([t.definition for t in TANK.tags], CLOCK), asyncio.Event()
            store.observe(lambda _tag, _value: changed.set())
            endpoint = ModbusEndpoint(host="127.0.0.1", port=proxy.port, timeout_s=10, back_off_first_s=0.05)
            channel = ModbusChannel("plc1", endpoint, [TANK], store, CLOCK)
            hand_over = HandOver(channel, LAYOUT, owner=1, epoch=1, clock=CLOCK)
            made = Plant(int(found[1]), proxy, store, channel, hand_over, changed)
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(channel.run())
                try:
                    await made.until(lambda: made.status(LEVEL) is StatusCode.Good)
                    await made.panel(LEASE_MS, 60_000)  # it ends where that is the subject
                    yield made
                finally:
                    running.cancel()
    finally:
        program.terminate()
        await asyncio.wait_for(program.communicate(), PATIENCE_S)


async def mbpoll(port: int, first: int, count: int) -> list[int]:
    """Input registers of unit 1 as mbpoll reads them."""
    if MBPOLL is None:
        pytest.skip("mbpoll is not installed (Debian package `mbpoll`)")
    arguments = [
        "-m",
        "tcp",
        "-p",
        str(port),
        "-a",
        "1",
        "-0",
        "-r",
        str(first),
        "-c",
        str(count),
        "-t",
        "3",
        "-1",
    ]
    process = await asyncio.create_subprocess_exec(
        MBPOLL, *arguments, "127.0.0.1", stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    return [int(value) for value in re.findall(r"^\[\d+\]:\s+(\d+)", out.decode(), re.MULTILINE)]


async def test_what_the_write_confirmed_is_what_mbpoll_reads() -> None:
    async with plant() as p:
        assert await p.write(outputs(425, 1, 2)) == (WriteOutcome.CONFIRMED, "")
        working = await p.hand_over.read_working(soon())

        assert working.remote
        assert working.in_control
        assert (await mbpoll(p.port, 4, 3)) == [425, 1, 2]


async def test_a_plc_in_local_is_a_mismatch_and_in_remote_it_obeys_again() -> None:
    async with plant() as p:
        assert (await p.write(outputs(300)))[0] is WriteOutcome.CONFIRMED
        await p.panel(REMOTE, 0)

        outcome, why = await p.write(outputs(600))

        assert outcome is WriteOutcome.MISMATCH
        assert "local" in why
        await p.panel(REMOTE, 1)
        assert await p.write(outputs(600)) == (WriteOutcome.CONFIRMED, "")


# S11, S23: after the lease ran out the PLC is its own master until a block with a lease it has not seen.
async def test_after_its_lease_ran_out_the_plc_obeys_the_next_block() -> None:
    async with plant() as p:
        assert (await p.write(outputs(300)))[0] is WriteOutcome.CONFIRMED
        await p.until(lambda: int(p.store[STATUS.id].value or 0) & 0b110 == 0b010)

        await p.panel(LEASE_MS, 1)
        await p.until(lambda: int(p.store[STATUS.id].value or 0) & 0b110 == 0b100)
        await p.panel(LEASE_MS, 60_000)

        assert not (await p.hand_over.read_working(soon())).in_control
        assert await p.write(outputs(310)) == (WriteOutcome.CONFIRMED, "")


async def test_release_gives_the_plant_to_the_plc_at_once() -> None:
    async with plant() as p:
        assert (await p.write(outputs(300)))[0] is WriteOutcome.CONFIRMED
        await p.until(lambda: int(p.store[STATUS.id].value or 0) & 0b110 == 0b010)

        await p.hand_over.release(soon())

        await p.until(lambda: int(p.store[STATUS.id].value or 0) & 0b110 == 0b100)
        assert await p.write(outputs(310)) == (WriteOutcome.CONFIRMED, "")


# S14, S18: the registers answer, the counter stands: no write is confirmed, no input is Good.
async def test_a_frozen_plc_confirms_nothing_and_is_uncertain() -> None:
    async with plant() as p:
        await p.panel(FREEZE, 1)

        outcome, _ = await p.hand_over.write(outputs(500), lambda: "", Deadline.after(2.0, CLOCK))

        assert outcome is WriteOutcome.UNCONFIRMED
        await p.until(lambda: p.status(LEVEL) is StatusCode.UncertainLastUsableValue)
        await p.panel(FREEZE, 0)
        await p.until(lambda: p.status(LEVEL) is StatusCode.Good)
        assert await p.write(outputs(510)) == (WriteOutcome.CONFIRMED, "")


async def test_a_forced_sensor_is_no_longer_good() -> None:
    async with plant() as p:
        await p.panel(FORCE, 1)

        await p.until(lambda: p.status(LEVEL) is StatusCode.UncertainSubstituteValue)


# S18: whatever a cut leaves behind, the PLC works with the old values or the new ones, never with a mixture.
@pytest.mark.parametrize("counts", [range(8), range(8, 16), range(16, 24), range(24, FRAME_BYTES + 1)])
async def test_a_link_cut_at_any_byte_of_a_write_leaves_old_or_new_values_and_heals(counts: range) -> None:
    before, after = (200, 0, 1), (800, 1, 3)
    async with plant() as p:
        for count in counts:
            assert (await p.write(outputs(*before)))[0] is WriteOutcome.CONFIRMED
            writes, session = p.proxy.sent(passed=False).count(FC16), p.channel.session
            p.proxy.cut_after(count, trigger=FC16)

            outcome, _ = await p.write(outputs(*after))

            assert outcome is WriteOutcome.UNCONFIRMED
            await p.renewed(session)
            working = await p.hand_over.read_working(soon())
            found = tuple(value.raw for value in working.values.values())
            assert found == (after if count == FRAME_BYTES else before)
            assert p.proxy.sent(passed=False).count(FC16) == writes + 1
