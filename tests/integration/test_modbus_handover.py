from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Awaitable, Callable
from fractions import Fraction

import pytest

from gateway.core.clock import Deadline
from gateway.core.decision import RegisterValue, WriteOutcome
from gateway.core.errors import LinkBrokenError, LinkError
from gateway.protocols.modbus.handover import HandOver
from tests.modbus_bench import (
    CLOCK,
    FC16,
    FRAME_BYTES,
    HEATER,
    LAYOUT,
    MIXER,
    PATIENCE_S,
    PUMP,
    HurriedClock,
    bench,
    open_gate,
    outputs,
    soon,
)
from tests.modbus_peer import PeerPlc

pytestmark = pytest.mark.integration


# S18, S22
async def test_a_block_is_confirmed_when_the_plc_works_with_every_value() -> None:
    async with bench() as b:
        outcome = await b.hand_over.write(outputs(425, 1, 2), open_gate, soon())

        assert outcome == (WriteOutcome.CONFIRMED, "")
        assert [w.words[5:8] for w in b.peer.writes()] == [(425, 1, 2)]
        working = await b.hand_over.read_working(soon())
        assert working.remote
        assert working.in_control
        assert {tag: value.value for tag, value in working.values.items()} == {
            PUMP.id: Fraction("42.5"),
            HEATER.id: 1,
            MIXER.id: 2,
        }


# S11: the lease word moves once for each confirmed decision, unchanged values included.
async def test_lease_advances_by_one_for_each_confirmed_write() -> None:
    async with bench() as b:
        for _ in range(3):
            assert (await b.hand_over.write(outputs(425), open_gate, soon()))[0] is WriteOutcome.CONFIRMED

        assert [w.words[3] for w in b.peer.writes()] == [1, 2, 3]
        assert [w.words[0] for w in b.peer.writes()] == [1, 2, 3]


# S17: the gate is asked with nothing between it and the bytes.
async def test_a_closed_gate_lets_no_byte_out_and_spends_no_lease() -> None:
    async with bench() as b:
        outcome = await b.hand_over.write(outputs(425), lambda: "writes are stopped", soon())

        assert outcome == (WriteOutcome.REFUSED, "writes are stopped")
        assert FC16 not in b.proxy.sent(passed=False)
        assert b.source.link is not None
        assert not b.source.link.fault
        await b.hand_over.write(outputs(425), open_gate, soon())
        assert b.plc.accepted_blocks[0][3] == 1


async def test_the_gate_is_asked_after_the_link_is_ours_and_after_other_requests_left() -> None:
    async with bench() as b:
        assert b.source.link is not None
        b.peer.hold = asyncio.Event()
        order: list[str] = []

        def gate() -> str:
            order.append("gate")
            return ""

        async def poll() -> None:
            assert b.source.link is not None
            await b.source.link.read(1, "input", 0, 13)
            order.append("poll answered")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(poll())
            await asyncio.wait_for(b.peer.served.wait(), PATIENCE_S)
            tasks.create_task(b.hand_over.write(outputs(1), gate, soon()))
            b.peer.hold.set()

        assert order == ["poll answered", "gate"]


async def test_without_a_link_nothing_left_and_the_write_has_failed() -> None:
    async with bench() as b:
        b.source.close()
        outcome, why = await b.hand_over.write(outputs(425), open_gate, soon())
        b.source.link = None
        again, _ = await b.hand_over.write(outputs(425), open_gate, soon())

        assert (outcome, again) == (WriteOutcome.FAILED, WriteOutcome.FAILED)
        assert why
        assert not b.peer.writes()


# S18: after a break the bytes may have arrived: unconfirmed, and nothing is ever repeated.
@pytest.mark.parametrize("count", range(FRAME_BYTES + 1))
async def test_a_write_cut_at_any_byte_is_unconfirmed_and_never_repeated(count: int) -> None:
    async with bench() as b:
        assert (await b.hand_over.write(outputs(100), open_gate, soon()))[0] is WriteOutcome.CONFIRMED
        b.proxy.cut_after(count, trigger=FC16)

        outcome, why = await b.hand_over.write(outputs(900), open_gate, soon())

        assert outcome is WriteOutcome.UNCONFIRMED
        assert why
        assert b.proxy.cut.is_set()
        await b.source.connect()
        working = await b.hand_over.read_working(soon())
        arrived = count == FRAME_BYTES
        assert working.values[PUMP.id].raw == (900 if arrived else 100)
        assert b.proxy.sent(passed=False).count(FC16) == 2
        assert len(b.peer.writes()) == (2 if arrived else 1)
        # the next block is a new one, and its lease is not the word the PLC already holds
        assert (await b.hand_over.write(outputs(200), open_gate, soon()))[0] is WriteOutcome.CONFIRMED
        last = b.plc.accepted_blocks[-1]
        assert last[0] == 3
        assert last[3] == (3 if arrived else 2)


async def test_a_break_during_the_read_back_leaves_the_write_unconfirmed() -> None:
    async with bench() as b:
        await b.hand_over.write(outputs(100), open_gate, soon())
        b.proxy.cut_after(FRAME_BYTES + 5, trigger=FC16)

        outcome, _ = await b.hand_over.write(outputs(900), open_gate, soon())

        assert outcome is WriteOutcome.UNCONFIRMED
        assert len(b.peer.writes()) == 2


async def test_a_black_hole_ends_unconfirmed_at_the_deadline_and_resets_the_link() -> None:
    async with bench() as b:
        await b.hand_over.write(outputs(100), open_gate, soon())
        b.proxy.black_hole()

        outcome, why = await b.hand_over.write(outputs(900), open_gate, soon(1.0))

        assert outcome is WriteOutcome.UNCONFIRMED
        waited = re.search(r"did not answer within (\S+) s$", why)
        assert waited is not None
        assert float(waited[1]) <= 1.0  # the deadline's time, not the link's own
        assert b.source.link is not None
        assert b.source.link.fault
        assert len(b.peer.writes()) == 1


# The PLC answers, but its program stands: nobody knows what it will do with the block.
async def test_a_frozen_plc_never_confirms() -> None:
    async with bench(HurriedClock()) as b:
        await b.hand_over.write(outputs(100), open_gate, soon())
        b.plc.frozen = True

        outcome, why = await b.hand_over.write(outputs(900), open_gate, soon(6.0))

        assert outcome is WriteOutcome.UNCONFIRMED
        assert "not confirmed by the deadline" in why
        assert b.source.link is not None
        assert not b.source.link.fault


# Else the PLC, which may have taken the block, could see the lease word stand still.
async def test_after_an_unconfirmed_write_the_next_lease_is_new_to_the_plc_in_the_same_session() -> None:
    async with bench(HurriedClock()) as b:
        await b.hand_over.write(outputs(100), open_gate, soon())
        b.plc.frozen = True
        assert (await b.hand_over.write(outputs(900), open_gate, soon(6.0)))[0] is WriteOutcome.UNCONFIRMED
        b.plc.frozen = False

        assert (await b.hand_over.write(outputs(200), open_gate, soon()))[0] is WriteOutcome.CONFIRMED

        assert b.source.session == 1
        assert [w.words[0] for w in b.peer.writes()] == [1, 2, 3]
        assert [w.words[3] for w in b.peer.writes()] == [1, 2, 3]


def _local(plc: PeerPlc) -> None:
    plc.local = True


def _other_owner(plc: PeerPlc) -> None:
    plc.owner = 2


def _other_epoch(plc: PeerPlc) -> None:
    plc.epoch = 9


def _clamps(plc: PeerPlc) -> None:
    plc.distort = -50


@pytest.mark.parametrize(
    ("change", "word"),
    [(_local, "local"), (_other_owner, "owner"), (_other_epoch, "epoch"), (_clamps, "850")],
)
async def test_a_plc_that_works_with_something_else_is_a_mismatch(
    change: Callable[[PeerPlc], None], word: str
) -> None:
    async with bench() as b:
        await b.hand_over.write(outputs(100), open_gate, soon())
        change(b.plc)

        outcome, why = await b.hand_over.write(outputs(900), open_gate, soon())

        assert outcome is WriteOutcome.MISMATCH
        assert word in why


# A reject code that stands from an earlier block says nothing of this one.
async def test_an_old_reject_code_does_not_condemn_a_new_block() -> None:
    async with bench() as b:
        b.plc.local = True
        assert (await b.hand_over.write(outputs(900), open_gate, soon()))[0] is WriteOutcome.MISMATCH
        b.plc.local = False
        b.plc.every, b.plc.chances = 13, 0  # read-backs see the code before the PLC sees the new block

        assert (await b.hand_over.write(outputs(300), open_gate, soon()))[0] is WriteOutcome.CONFIRMED


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (2, WriteOutcome.FAILED),
        (6, WriteOutcome.FAILED),
        (4, WriteOutcome.UNCONFIRMED),
        (11, WriteOutcome.UNCONFIRMED),
    ],
)
async def test_an_exception_is_a_failed_write_only_where_surely_nothing_was_done(
    code: int, expected: WriteOutcome
) -> None:
    async with bench() as b:
        await b.hand_over.write(outputs(100), open_gate, soon())
        b.peer.units[1].write_exception = code

        outcome, why = await b.hand_over.write(outputs(900), open_gate, soon())

        assert outcome is expected
        assert f"exception {code}" in why
        assert b.source.link is not None
        assert not b.source.link.fault


# S10: control-valid is cleared, the lease word is not touched, the outputs stay what they were.
async def test_release_clears_control_valid_in_a_whole_block() -> None:
    async with bench() as b:
        await b.hand_over.write(outputs(425, 1, 2), open_gate, soon())

        await b.hand_over.release(soon())

        last = b.peer.writes()[-1].words
        assert last[:8] == (2, 1, 1, 1, 0, 425, 1, 2)
        assert not (await b.hand_over.read_working(soon())).in_control
        await b.hand_over.release(soon())
        assert len(b.peer.writes()) == 2  # nothing left to release
        assert (await b.hand_over.write(outputs(425), open_gate, soon()))[0] is WriteOutcome.CONFIRMED


# S21
async def test_another_gateways_block_is_not_released() -> None:
    async with bench() as b:
        await b.hand_over.write(outputs(425), open_gate, soon())
        other = HandOver(b.source, LAYOUT, owner=2, epoch=1, clock=CLOCK)

        await other.release(soon())

        assert len(b.peer.writes()) == 1
        assert other.statistics().releases == 1


async def test_release_without_a_link_does_not_raise_and_read_working_does() -> None:
    async with bench() as b:
        b.source.link = None

        await b.hand_over.release(soon())

        assert b.hand_over.statistics().releases == 0
        with pytest.raises(LinkBrokenError):
            await b.hand_over.read_working(soon())


async def refused(work: Awaitable[tuple[WriteOutcome, str]]) -> tuple[WriteOutcome, str]:
    try:
        return await work
    except LinkError as exc:
        pytest.fail(f"an outcome is a value: {exc}")


async def test_values_that_are_not_what_was_checked_never_leave() -> None:
    async with bench() as b:
        pump, heater, mixer = outputs(425)
        wrong = (
            (pump, heater),
            (pump, heater, mixer, mixer),
            (RegisterValue(PUMP.id, 425, Fraction(43)), heater, mixer),
            (RegisterValue(PUMP.id, 70000, Fraction(7000)), heater, mixer),
            (RegisterValue(PUMP.id, -1, Fraction("-0.1")), heater, mixer),
        )
        for values in wrong:
            outcome, why = await refused(b.hand_over.write(values, open_gate, soon()))
            assert outcome is WriteOutcome.FAILED
            assert why
        assert not b.peer.writes()
        assert b.hand_over.statistics().failed == len(wrong)


async def test_a_write_whose_deadline_passed_is_not_begun() -> None:
    async with bench() as b:
        outcome, _ = await b.hand_over.write(outputs(425), open_gate, Deadline(CLOCK.monotonic() - 1))

        assert outcome is WriteOutcome.FAILED
        assert not b.peer.requests


# A cancelled decision must not leave a request whose answer could be taken for another's.
async def test_a_cancelled_write_resets_the_link() -> None:
    async with bench() as b:
        await b.hand_over.write(outputs(100), open_gate, soon())
        b.peer.hold = asyncio.Event()
        b.peer.served.clear()
        task = asyncio.ensure_future(b.hand_over.write(outputs(900), open_gate, soon()))
        await asyncio.wait_for(b.peer.served.wait(), PATIENCE_S)

        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
        assert b.source.link is not None
        assert b.source.link.fault
        b.peer.hold.set()


async def test_the_block_on_the_wire_is_what_the_contract_says() -> None:
    async with bench() as b:
        await b.hand_over.write(outputs(1000, 1, 3), open_gate, soon())

        sent = b.proxy.sent()
        at = sent.index(FC16)
        frame = sent[at - 6 : at - 6 + FRAME_BYTES]
        assert struct.unpack(">HHHBBHHB", frame[:13])[1:] == (0, 25, 1, 16, 100, 9, 18)
        assert struct.unpack(">8H", frame[13:29]) == (1, 1, 1, 1, 1, 1000, 1, 3)
