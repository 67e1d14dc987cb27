"""What is written where the answer is no: the first fallback that passes its own check (S9, S10)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from gateway.core.decision import Refused
from tests.fakes.pipeline import PUMP, House, pump
from tests.unit.test_pipeline_decide import decided


async def test_s10_the_first_fallback_that_passes_its_own_check_is_written() -> None:
    house = House(fallback=("backup", "value_in_force"))
    house.proposer.percent, house.checker.backup = 90, 80
    record = await decided(house)
    assert isinstance(record.outcome, Refused)
    assert record.written_by == "value_in_force"
    assert house.sink.written == [(pump(40),)]


async def test_s10_a_fallback_to_values_writes_those_of_the_point_and_none_where_it_has_none() -> None:
    for values, written in (({PUMP: Fraction(20)}, [(pump(20),)]), ({}, [])):
        house = House(fallback=("value",))
        house.point.settings = replace(house.point.settings, fallback_values=values)
        house.proposer.percent = 90
        record = await decided(house)
        assert isinstance(record.outcome, Refused)
        assert house.sink.written == written
        assert record.written_by == ("value" if written else "")


async def test_s10_a_fallback_is_checked_as_it_is_and_never_repaired() -> None:
    house = House(fallback=("value_in_force",))
    house.proposer.percent, house.checker.limit = 90, 35
    record = await decided(house)
    assert isinstance(record.outcome, Refused)
    assert [request.may_repair for request in house.checker.requests] == [True, False]
    assert house.sink.written == []


async def test_s9_recovery_writes_only_the_backup() -> None:
    house = House(fallback=("backup", "value_in_force"))
    house.proposer.percent, house.checker.limit, house.checker.backup = 90, 5, 80
    house.checker.recovery = True
    record = await decided(house)
    assert isinstance(record.outcome, Refused)
    assert record.written_by == "recovery"
    assert house.sink.written == [(pump(80),)]


async def test_s7_a_record_holds_the_check_that_a_fallback_stands_on_and_none_where_there_is_none() -> None:
    house = House(fallback=("value_in_force",))
    record = await decided(house)
    assert (record.written_by, record.fallback) == ("verdict", None)

    house.proposer.percent = 90
    record = await decided(house)
    assert record.fallback is not None
    assert record.fallback.request is house.checker.requests[-1]
    assert record.examined is not None
    assert record.examined.request is house.checker.requests[-2]
