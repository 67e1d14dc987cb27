"""Read-back: what each output really is, and whose change it was (S18, S19, S22, S23)."""

from __future__ import annotations

import asyncio
from fractions import Fraction

from gateway.core.decision import DecisionRecord, Mode, Undetermined
from gateway.core.quality import StatusCode
from gateway.daemon.readback import ReadBack
from gateway.pipeline.lane import Ordered
from tests.fakes.pipeline import LEVEL, PUMP, PUMP_PV, STATUS, House, pump

REMOTE_ONLY, IN_CONTROL = 1, 3


def watched() -> tuple[House, ReadBack]:
    house = House()
    read_back = ReadBack({house.point.settings.id: house.point}, house.store, house.writer, house.clock)
    house.store.observe(read_back.take)
    house.clock.advance(0.1)
    house.sample(PUMP_PV, 40.0)
    return house, read_back


def test_s19_a_change_nobody_requested_while_in_control_is_told_once() -> None:
    house, read_back = watched()
    house.clock.advance(0.1)
    house.sample(PUMP_PV, 70.0)
    found = read_back.settle()
    assert [(point.settings.id, why) for point, why in found] == [
        ("tank", "`P.SP` became 70.0 without a request")
    ]
    assert read_back.settle() == []
    assert house.point.previous() == {PUMP: Fraction(70)}


def test_what_the_plcs_own_fallback_does_is_taken_over_and_is_no_fault() -> None:
    house, read_back = watched()
    house.clock.advance(0.1)
    house.sample(STATUS, REMOTE_ONLY)
    house.sample(PUMP_PV, 41.0)
    assert read_back.settle() == []
    assert house.point.first_write_due
    house.sample(STATUS, IN_CONTROL)  # regained before anybody looked again
    assert read_back.settle() == []


def test_s18_a_value_that_stays_settles_an_unconfirmed_write() -> None:
    house, read_back = watched()
    history = house.point.histories[PUMP]
    house.point.unconfirmed((pump(40),), house.clock.monotonic())
    history.ended(house.clock.monotonic())
    read_back.settle()
    house.clock.advance(0.1)
    house.sample(PUMP_PV, 40.0)  # no change, so no observer hears of it
    read_back.settle()
    assert house.point.previous() == {PUMP: Fraction(40)}


def test_s18_a_working_value_that_is_not_good_leaves_the_value_in_force_unknown() -> None:
    house, read_back = watched()
    house.clock.advance(0.1)
    house.sample(PUMP_PV, 70.0, StatusCode.UncertainLastUsableValue)
    assert read_back.settle() == []
    assert house.point.previous() is None
    assert house.point.values_in_force() == {PUMP: ()}
    house.clock.advance(0.1)
    house.sample(PUMP_PV, 40.0)
    assert house.point.previous() == {PUMP: Fraction(40)}


async def test_s18_after_a_break_nothing_is_decided_for_writing_before_the_outputs_were_read_back() -> None:
    house, read_back = watched()
    house.proposer.percent = 45
    house.clock.advance(0.1)
    house.store.degrade([PUMP_PV], StatusCode.BadNoCommunication)  # its poll group is slower than the inputs'
    house.sample(LEVEL, 2.0)
    serving = asyncio.create_task(house.lane.run())
    try:
        record = await house.lane.request(Ordered(requested_by="test"))
        assert isinstance(record, DecisionRecord)
        assert record.outcome == Undetermined("the value in force of `P.SP` is not known yet")
        assert house.sink.written == []
        before_the_break = house.clock.monotonic() - 0.15
        read_back.working(house.point, (pump(40),), before_the_break, in_control=True)
        assert house.point.previous() is None  # what was read before the break says nothing
        house.clock.advance(0.1)
        house.sample(LEVEL, 2.0)
        read_back.working(house.point, (pump(40),), house.clock.monotonic(), in_control=True)
        await house.lane.request(Ordered(requested_by="test"))
        await settled(house)
        assert house.sink.written == [(pump(45),)]
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def settled(house: House) -> None:
    """The write of the decision just answered is over."""
    async with asyncio.timeout(60):
        while not house.sink.gates:  # noqa: ASYNC110  # the fake sink tells nobody
            await asyncio.sleep(0)


def test_s19_a_change_while_the_link_was_broken_is_a_change_nobody_requested() -> None:
    house, read_back = watched()
    house.clock.advance(0.1)
    house.store.degrade([PUMP_PV], StatusCode.BadNoCommunication)
    house.clock.advance(0.5)
    read_back.working(house.point, (pump(70),), house.clock.monotonic(), in_control=True)
    (found,) = read_back.settle()
    assert found[1] == "`P.SP` became 70 without a request"


def test_s23_how_long_a_value_was_held_is_unknown_after_a_break() -> None:
    house, _ = watched()
    house.clock.advance(60)
    house.sample(PUMP_PV, 40.0)
    assert house.point.held_s(house.clock.monotonic())[PUMP] > 50
    house.store.degrade([PUMP_PV], StatusCode.BadNoCommunication)
    assert house.point.held_s(house.clock.monotonic())[PUMP] == 0
    house.clock.advance(1)
    house.sample(PUMP_PV, 40.0)
    assert house.point.held_s(house.clock.monotonic())[PUMP] == 0


def test_s23_a_status_word_older_than_the_confirmed_write_does_not_ask_for_a_first_write_again() -> None:
    house, read_back = watched()
    house.sample(STATUS, REMOTE_ONLY)
    house.clock.advance(0.05)
    house.point.confirm((pump(50),), house.clock.monotonic())
    house.point.first_write_due = False
    read_back.settle()
    assert not house.point.first_write_due
    house.clock.advance(0.1)
    house.sample(STATUS, REMOTE_ONLY)
    read_back.settle()
    assert house.point.first_write_due


def test_a_change_in_shadow_is_taken_over_and_not_told() -> None:
    house, read_back = watched()
    house.point.mode = Mode.SHADOW
    house.clock.advance(0.1)
    house.sample(PUMP_PV, 70.0)
    assert read_back.settle() == []
