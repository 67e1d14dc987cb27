"""What the pipeline knows of rules before there are any (S24)."""

from __future__ import annotations

import pytest

from gateway.pipeline.decide import Decider
from gateway.pipeline.rules import RulesHolder, RulesInForce
from gateway.pipeline.writer import SetpointWriter
from tests.fakes.pipeline import House
from tests.unit.test_pipeline_decide import decided


def test_s24_before_any_module_nothing_may_be_armed_or_decided_and_nothing_is_disproved() -> None:
    rules = RulesHolder().current

    assert rules.not_armable
    assert rules.unusable_for(())
    assert (rules.generation, rules.digest, rules.disproved) == (0, "", "")


@pytest.mark.parametrize(
    ("moves_each_s", "period_s", "too_seldom"),
    [(1.0, 1.0, False), (1.0, 0.5, False), (1.0, 1.5, True), (None, 60.0, False), (1.0, None, False)],
)
def test_s1_a_point_decides_at_least_as_often_as_the_backup_is_proved_to_move(
    moves_each_s: float | None, period_s: float | None, *, too_seldom: bool
) -> None:
    said = RulesInForce(backup_moves_each_s=moves_each_s).too_seldom(period_s)

    assert bool(said) is too_seldom
    assert not too_seldom or "each step of 1 s, and the point decides every 1.5 s" in said


async def test_a_gateway_without_overrides_is_never_kept_from_writing_by_one() -> None:
    house = House()
    house.lane._decider = Decider(
        clock=house.clock,
        store=house.store,
        checker=house.checker,
        audit=house.audit,
        rules=house.rules,
        link_session=lambda: 1,
        certify=lambda _record: "certificate",
    )
    house.lane._writer = SetpointWriter(
        clock=house.clock,
        store=house.store,
        rules=house.rules,
        link_session=lambda: 1,
        writes_stopped=lambda: False,
        not_live=lambda _point: "",
    )
    await decided(house)
    assert len(house.sink.written) == 1
