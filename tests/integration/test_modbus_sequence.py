"""Sequence and lease words: to the PLC each block is a later one, whoever began anew (S18, S20, S23)."""

from __future__ import annotations

import pytest

from gateway.core.decision import WriteOutcome
from gateway.protocols.modbus.handover import HandOver
from tests.modbus_bench import CLOCK, LAYOUT, bench, open_gate, outputs, soon

pytestmark = pytest.mark.integration


# S23: a new process continues where the PLC stands, with a sequence and a lease it has not seen.
async def test_after_a_restart_sequence_and_lease_continue_from_the_plc() -> None:
    async with bench() as b:
        for pump in (100, 200):
            await b.hand_over.write(outputs(pump), open_gate, soon())
        reborn = HandOver(b.source, LAYOUT, owner=1, epoch=1, clock=CLOCK)

        assert (await reborn.write(outputs(200), open_gate, soon()))[0] is WriteOutcome.CONFIRMED

        assert b.plc.accepted_blocks[-1][:4] == (3, 1, 1, 3)


async def test_sequence_and_lease_wrap_without_zero() -> None:
    async with bench() as b:
        b.plc.accepted = 65535
        b.peer.units[1].holding[103] = 65535

        assert (await b.hand_over.write(outputs(200), open_gate, soon()))[0] is WriteOutcome.CONFIRMED

        assert b.plc.accepted_blocks[-1][:4] == (1, 1, 1, 1)


# A PLC that was switched off and on counts from 0: our own next one, far ahead, would be an old one to it.
@pytest.mark.parametrize("last", [3, 0x7FFF, 0x8000, 0xFFFF])
async def test_after_the_plc_began_anew_blocks_are_later_ones_to_it_again(last: int) -> None:
    async with bench() as b:
        b.plc.accepted = last - 1
        assert (await b.hand_over.write(outputs(100), open_gate, soon()))[0] is WriteOutcome.CONFIRMED
        b.plc.accepted = b.peer.units[1].input[2] = 0
        b.source.close()
        await b.source.connect()

        assert (await b.hand_over.write(outputs(200), open_gate, soon()))[0] is WriteOutcome.CONFIRMED

        assert 0 < b.plc.accepted <= 0x8000


# The same behind a gateway of field buses that keeps its own connection: one block is lost, and told.
async def test_a_plc_that_began_anew_unseen_refuses_one_block_as_not_later() -> None:
    async with bench() as b:
        b.plc.accepted = 0x9000
        assert (await b.hand_over.write(outputs(100), open_gate, soon()))[0] is WriteOutcome.CONFIRMED
        b.plc.accepted = b.peer.units[1].input[2] = 0

        outcome, why = await b.hand_over.write(outputs(200), open_gate, soon())

        assert outcome is WriteOutcome.MISMATCH
        assert "its sequence is not later than the one accepted last" in why
        assert (await b.hand_over.write(outputs(200), open_gate, soon()))[0] is WriteOutcome.CONFIRMED
