"""At a start and after a break the PLC itself is asked what is in force (S18, S21, S22, S23)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from fractions import Fraction

from gateway.core.clock import Deadline
from gateway.core.decision import DecisionId, DecisionRecord, Mode, Permitted, PointId, RegisterValue
from gateway.core.errors import LinkBrokenError
from gateway.daemon.readback import ReadBack
from gateway.daemon.rearming import moved_since, written_since
from gateway.daemon.takeover import TakeOver
from gateway.pipeline.history import OutputHistory
from gateway.protocols.modbus.handover import WorkingState
from tests.fakes.pipeline import PUMP, House, pump


def working(*values: RegisterValue, fallback: bool = False, owner: int = 1) -> WorkingState:
    return WorkingState(
        values={value.tag: value for value in values},
        remote=True,
        in_control=not fallback,
        fallback=fallback,
        accepted=7,
        owner=owner,
        epoch=1,
    )


class Block:
    """A hand-over block whose PLC answers `says`, or does not."""

    owner = epoch = 1

    def __init__(self, says: WorkingState | None) -> None:
        self.says, self.asked = says, asyncio.Event()

    async def read_working(self, deadline: Deadline) -> WorkingState:
        del deadline
        self.asked.set()
        if self.says is None:
            raise LinkBrokenError("plc", "there is no connection")
        return self.says


def started(says: WorkingState | None) -> tuple[House, TakeOver, Block]:
    """A gateway that knows nothing of its outputs yet."""
    house, block = House(), Block(says)
    name = house.point.settings.id
    house.point.histories[PUMP] = OutputHistory()
    read_back = ReadBack({name: house.point}, house.store, house.writer, house.clock)
    return house, TakeOver({name: house.point}, {name: block}, read_back, house.clock), block


async def test_s22_the_values_in_force_come_from_the_plcs_own_word_before_any_poll() -> None:
    house, take_over, block = started(working(pump(55)))
    assert house.point.previous() is None
    running = asyncio.create_task(take_over.run())
    async with asyncio.timeout(60):
        await block.asked.wait()
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert house.point.previous() == {PUMP: Fraction(55)}


async def test_without_an_answer_nothing_is_known_and_nothing_can_be_armed() -> None:
    house, take_over, _ = started(None)
    why = await take_over.why_not(house.point)
    assert why.startswith("the PLC's working values cannot be read")
    assert house.point.previous() is None


async def test_s21_a_plc_that_obeys_another_gateway_is_said_and_may_be_granted_again() -> None:
    house, take_over, block = started(working(pump(55), owner=2))
    assert "the PLC obeys owner 2 in epoch 1, and this gateway is owner 1" in await take_over.why_not(
        house.point
    )
    block.says = working(pump(55))
    assert await take_over.why_not(house.point) == ""


def test_s23_in_force_must_be_what_was_confirmed_last_unless_the_plcs_fallback_moved_it() -> None:
    assert moved_since(working(pump(55)), {PUMP: 550}) == ""
    assert moved_since(working(pump(55)), {PUMP: 400}) == (
        "`P.SP` is at 550 counts, and 400 were the last ones confirmed"
    )
    assert moved_since(working(pump(55), fallback=True), {PUMP: 400}) == ""
    local = replace(working(pump(55)), remote=False, in_control=False)
    assert moved_since(local, {PUMP: 400})  # neither we nor its fallback: somebody
    assert moved_since(working(pump(55)), {}) == ""


def decided(setpoint: int, *, mode: Mode = Mode.ARMED, what_if: bool = False) -> DecisionRecord:
    value = pump(setpoint)
    return DecisionRecord(
        id=DecisionId("d-1"),
        point=PointId("tank"),
        mode=mode,
        requested_by="period",
        received_utc_ns=0,
        outcome=Permitted((value,)),
        proposal=None,
        written=(value,),
        written_by="verdict",
        findings=(),
        inputs={},
        generation=1,
        rule_set_digest="",
        model_digest="",
        timings_ms={},
        what_if=what_if,
    )


def test_s18_a_write_cut_off_by_the_end_of_the_daemon_is_its_own() -> None:
    confirmed = {PUMP: 400}
    in_force = working(pump(45))
    assert written_since([decided(45), decided(40)], in_force, confirmed)
    assert written_since(
        [decided(46), decided(45), decided(40)], in_force, confirmed
    )  # the newest never left
    assert not written_since([], in_force, confirmed)
    assert not written_since([decided(46), decided(40)], in_force, confirmed)
    assert not written_since([decided(40), decided(45)], in_force, confirmed)  # older than the confirmed one
    assert not written_since([decided(45, mode=Mode.SHADOW)], in_force, confirmed)
    assert not written_since([decided(45, what_if=True)], in_force, confirmed)
