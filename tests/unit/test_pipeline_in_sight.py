"""Readings and carried states from before the outputs were in sight: what acted is unknown (S2, S23)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from gateway.core.decision import Permitted, Undetermined
from gateway.core.quality import StatusCode
from tests.fakes.pipeline import LEVEL, PUMP, House
from tests.unit.test_pipeline_decide import decided


# The PLC may have gone its own way while its working values could not be read.
async def test_s23_a_reading_from_before_the_values_in_force_were_known_decides_nothing() -> None:
    house = House()
    house.point.histories[PUMP].out_of_sight(house.clock.monotonic())
    house.clock.advance(0.5)
    house.point.histories[PUMP].observe(Fraction(40), house.clock.monotonic())
    record = await decided(house)
    assert isinstance(record.outcome, Undetermined)
    assert "`LT` was read before the values in force were" in record.outcome.reason
    assert house.checker.requests == []

    house.sample(LEVEL, 2.0)
    assert isinstance((await decided(house)).outcome, Permitted)


async def test_s23_such_a_reading_counts_as_none_where_the_rules_go_on_without() -> None:
    house = House()
    house.rules.activate(replace(house.rules.current, tolerated=frozenset({LEVEL})))
    await decided(house)
    house.clock.advance(0.5)
    house.point.histories[PUMP].out_of_sight(house.clock.monotonic())
    house.point.histories[PUMP].observe(Fraction(40), house.clock.monotonic())
    await decided(house)
    statuses = [request.inputs[LEVEL].status for request in house.checker.requests]
    assert statuses == [StatusCode.Good, StatusCode.BadWaitingForInitialData]


async def test_s2_no_state_is_carried_over_a_time_in_which_nobody_knew_what_acted() -> None:
    house = House()
    await decided(house)
    await decided(house)
    house.clock.advance(0.5)
    house.point.histories[PUMP].out_of_sight(house.clock.monotonic())
    house.point.histories[PUMP].observe(Fraction(50), house.clock.monotonic())
    house.sample(LEVEL, 2.0)
    await decided(house)
    await decided(house)
    carried = [request.carried is not None for request in house.checker.requests]
    assert carried == [False, True, False, True]
