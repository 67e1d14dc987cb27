"""S12: what of a point's settings and past the check is told."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from gateway.core.decision import WriteOutcome
from gateway.core.restraint import UNRESTRAINED, Restraint
from gateway.pipeline.lane import Ordered
from tests.fakes.pipeline import LEVEL, PUMP, House, pump
from tests.unit.test_pipeline_decide import decided


async def test_s12_what_a_repair_kept_back_is_told_to_the_next_check() -> None:
    house = House(fallback=("backup",))
    house.point.settings = replace(
        house.point.settings, least_change={PUMP: Fraction(1, 2)}, release_margin=Fraction(1, 8)
    )
    house.checker.limit = 45
    await decided(house)  # 50 is refused, the backup writes 10
    house.sample(LEVEL, 2.0)
    await decided(house)
    first, backup, second = [r.restraint for r in house.checker.requests[:3]]
    assert first == Restraint(least_change={PUMP: Fraction(1, 2)}, margin=Fraction(1, 8))
    assert backup == UNRESTRAINED, "a fallback is written as it is"
    assert second == replace(first, kept_back={PUMP: -1})


async def test_s12_a_check_is_told_where_the_points_repairs_are_looked_for() -> None:
    house = House()
    await decided(house)
    house.point.settings = replace(house.point.settings, repair="nearest")
    house.sample(LEVEL, 2.0)
    await decided(house)
    assert [house.checker.requests[0].repair, house.checker.requests[-1].repair] == ["segment", "nearest"]


async def test_s12_the_plants_past_holds_no_what_if() -> None:
    house = House(fallback=("backup",))
    house.checker.limit = 45
    await decided(house)
    house.sample(LEVEL, 2.0)
    await decided(house, Ordered(requested_by="scada", what_if={LEVEL: Fraction(3)}))
    assert house.checker.requests[-1].restraint.kept_back == {}
    assert house.point.repairs.kept_back(house.clock.monotonic()) == {PUMP: -1}


async def test_s11_s12_a_block_that_holds_every_value_is_written_and_the_lease_goes_on() -> None:
    house = House()
    house.proposer.percent = 40
    record = await decided(house)
    assert record.write_outcome is WriteOutcome.CONFIRMED
    assert house.sink.written == [(pump(40),)]
