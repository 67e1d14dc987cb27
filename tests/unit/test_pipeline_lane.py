"""The lane: its period, one decision in flight, and what a question may not do to the plant."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from fractions import Fraction

import pytest

from gateway.core.clock import Deadline
from gateway.core.decision import DecisionRecord, Mode, Refused, Rejected, Undetermined, WriteOutcome
from gateway.core.errors import LinkBrokenError
from gateway.core.ports import CheckRequest, Gate
from gateway.pipeline.lane import Ordered
from gateway.pipeline.rules import RulesInForce
from tests.fakes.pipeline import LEVEL, PUMP, House, pump

ASK = Ordered(requested_by="test")


@asynccontextmanager
async def serving(house: House) -> AsyncIterator[None]:
    task = asyncio.create_task(house.lane.run())
    try:
        async with asyncio.timeout(60):
            yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(5_000):
        if holds():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came about")


def periodic(period_s: float) -> House:
    house = House()
    house.point.settings = replace(house.point.settings, period_s=period_s)
    return house


async def test_the_first_periodic_decision_comes_at_once_and_the_next_after_the_period() -> None:
    house = periodic(3600.0)
    async with serving(house):
        await until(lambda: house.lane.counters.decisions == 1)
        await asyncio.sleep(0.01)
        assert house.lane.counters.decisions == 1
    assert house.audit.records[0].requested_by == "period"


async def test_a_requested_decision_moves_the_next_periodic_one() -> None:
    house = periodic(0.5)
    async with serving(house):
        await until(lambda: house.lane.counters.decisions == 1)
        for _ in range(10):
            house.clock.advance(0.4)
            await house.lane.request(ASK)
    assert house.lane.counters.decisions == 11


async def test_a_what_if_does_not_move_the_period() -> None:
    house = periodic(0.05)
    async with serving(house):
        await until(lambda: house.lane.counters.decisions == 1)
        house.clock.advance(0.05)
        await house.lane.request(Ordered(requested_by="scada", what_if={LEVEL: Fraction(3)}))
        await until(lambda: [r.requested_by for r in house.audit.records].count("period") == 2)


# Else one question of an operator ends the lane, and with it the gateway.
@pytest.mark.parametrize("value", [Fraction(10**400), -Fraction(10**310)])
async def test_s20_a_what_if_beyond_any_number_is_rejected_and_decisions_go_on(value: Fraction) -> None:
    house = periodic(3600.0)
    async with serving(house):
        await until(lambda: house.lane.counters.decisions == 1)
        async with asyncio.timeout(60):
            answer = await house.lane.request(Ordered(requested_by="scada", what_if={LEVEL: value}))
            record = await house.lane.request(ASK)
    assert answer == Rejected("it asks what if `LT` had a value that no tag can have")
    assert isinstance(record, DecisionRecord)


async def test_s24_a_new_rule_set_is_decided_on_without_waiting_for_the_period() -> None:
    house = periodic(3600.0)
    async with serving(house):
        await until(lambda: house.lane.counters.decisions == 1)
        house.rules.activate(RulesInForce(2, "digest-2", frozenset({"tank"}), ""))
        house.lane.due_now()
        await until(lambda: house.lane.counters.decisions == 2)
    assert house.audit.records[-1].generation == 2


async def test_s17_a_decision_whose_ground_moved_is_made_again_at_once_but_once_a_period() -> None:
    house = periodic(3600.0)
    moves = iter(range(41, 100))

    def ramp() -> None:
        house.clock.advance(0.001)
        house.point.histories[PUMP].observe(Fraction(next(moves)), house.clock.monotonic())

    house.sink.before_gate = ramp
    async with serving(house):
        await until(lambda: house.lane.counters.writes_other == 2)
        await asyncio.sleep(0.02)
        assert house.lane.counters.decisions == 2
        house.sink.before_gate = lambda: None
        house.clock.advance(3600.0)
        house.sample(LEVEL, 2.0)
        await house.lane.request(ASK)
        await until(lambda: house.lane.counters.writes_confirmed == 1)


async def test_a_point_that_is_off_makes_no_periodic_decision() -> None:
    house = periodic(3600.0)
    house.point.mode = Mode.OFF
    async with serving(house):
        for _ in range(50):
            await asyncio.sleep(0)
    assert house.audit.records == []


async def test_s19_one_decision_is_in_flight_until_its_write_has_ended() -> None:
    house = House()
    open_write = asyncio.Event()
    under_way = asyncio.Event()

    async def slow(values: object, gate: Gate, deadline: Deadline) -> tuple[WriteOutcome, str]:
        del values, deadline
        gate()
        under_way.set()
        await open_write.wait()
        return WriteOutcome.CONFIRMED, ""

    house.sink.write = slow  # type: ignore[method-assign]
    async with serving(house):
        await house.lane.request(ASK)
        await under_way.wait()
        second = asyncio.create_task(house.lane.request(ASK))
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(house.checker.requests) == 1
        open_write.set()
        assert isinstance(await second, DecisionRecord)


async def test_a_link_that_breaks_before_the_bytes_is_a_failed_write_and_the_lane_goes_on() -> None:
    house = House()
    write = house.sink.write

    async def broken(*_: object) -> tuple[WriteOutcome, str]:
        raise LinkBrokenError("plc", "reset")

    house.sink.write = broken  # type: ignore[assignment,method-assign]
    async with serving(house):
        await house.lane.request(ASK)
        await until(lambda: house.lane.counters.writes_other == 1)
        house.sink.write = write  # type: ignore[method-assign]
        await house.lane.request(ASK)
        await until(lambda: house.lane.counters.writes_confirmed == 1)
    assert house.point.previous() == {PUMP: Fraction(50)}


async def test_a_requester_who_left_does_not_stop_the_lane() -> None:
    house = House()
    left = asyncio.create_task(house.lane.request(ASK))
    await asyncio.sleep(0)
    left.cancel()
    async with serving(house):
        assert isinstance(await house.lane.request(ASK), DecisionRecord)


async def test_stopping_answers_the_request_in_flight() -> None:
    house = House()
    never = asyncio.Event()

    async def stuck(request: CheckRequest, deadline: Deadline) -> object:
        del request, deadline
        await never.wait()
        return None

    house.checker.check = stuck  # type: ignore[assignment,method-assign]
    async with serving(house):
        waiting = asyncio.create_task(house.lane.request(ASK))
        for _ in range(20):
            await asyncio.sleep(0)
    async with asyncio.timeout(60):
        assert await waiting == Rejected("the gateway is stopping")


async def test_a_point_without_on_request_rejects_requests() -> None:
    house = House()
    house.point.settings = replace(house.point.settings, on_request=False)
    answer = await house.lane.request(ASK)
    assert isinstance(answer, Rejected)
    assert "on_request" in answer.reason


async def test_nobody_takes_the_plant_from_the_gateway_by_asking_in_a_hurry() -> None:
    house = House()
    late = asyncio.create_task(house.lane.request(ASK))
    await asyncio.sleep(0)
    house.clock.advance(0.2)
    hurried = Ordered(requested_by="test", deadline_s=0.001)
    house.checker.on_check = lambda _request: house.clock.advance(0.01)
    house.checker.limit = 0
    async with serving(house):
        record = await late
        assert isinstance(record, DecisionRecord)
        assert isinstance(record.outcome, Undetermined)
        await house.lane.request(hurried)
        await house.lane.request(Ordered(requested_by="test", what_if={LEVEL: Fraction(3)}))
    assert house.sink.released == 0


async def test_a_denied_wish_is_an_answer_and_the_plant_stays_as_it_is() -> None:
    house = House(fallback=("backup", "value_in_force"))
    wish = Ordered(requested_by="scada", proposal={PUMP: Fraction(90)})
    async with serving(house):
        record = await house.lane.request(wish)
        await house.lane.request(ASK)
        await until(lambda: house.lane.counters.writes_confirmed == 1)
    assert isinstance(record, DecisionRecord)
    assert isinstance(record.outcome, Refused)
    assert record.written == ()
    assert house.sink.written == [(pump(50),)]
    assert house.sink.released == 0


async def test_s23_a_wish_is_not_the_first_write_after_arming() -> None:
    house = House()
    house.point.first_write_due = True
    async with serving(house):
        record = await house.lane.request(Ordered(requested_by="scada", proposal={PUMP: Fraction(45)}))
    assert isinstance(record, DecisionRecord)
    assert isinstance(record.outcome, Undetermined)
    assert house.sink.written == []


async def test_s2_a_what_if_is_not_judged_by_what_was_predicted_of_the_real_plant() -> None:
    house = House()
    async with serving(house):
        await house.lane.request(ASK)
        record = await house.lane.request(Ordered(requested_by="scada", what_if={LEVEL: Fraction(3)}))
    assert house.checker.requests[1].carried is None
    assert isinstance(record, DecisionRecord)
    assert record.what_if
    assert house.point.last_decision == house.audit.records[0].id


async def test_s18_a_closed_gate_does_not_settle_an_earlier_unconfirmed_write() -> None:
    house = House()
    house.sink.outcome = WriteOutcome.UNCONFIRMED
    house.proposer.percent = 50
    async with serving(house):
        await house.lane.request(ASK)
        await until(lambda: house.lane.counters.writes_other == 1)
        house.stopped = True
        await house.lane.request(Ordered(requested_by="test", proposal={PUMP: Fraction(45)}))
        await until(lambda: house.lane.counters.writes_other == 2)
    force = house.point.in_force(house.clock.monotonic())[PUMP]
    assert {e.value for e in force if e.ceased_s_ago == 0} == {Fraction(40), Fraction(50)}
