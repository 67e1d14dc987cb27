"""How long each hop of a decision took, as its record says it: milliseconds of the gateway's own clock."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gateway.core.decision import DecisionRecord
from tests.fakes.pipeline import House
from tests.unit.test_pipeline_decide import ASK, decided, serving


async def test_a_record_says_how_long_each_hop_took() -> None:
    house = House()
    house.proposer.on_propose = lambda _deadline: house.clock.advance(0.008)
    house.checker.on_check = lambda _request: house.clock.advance(0.016)
    append = house.audit.append

    async def slow(record: DecisionRecord) -> None:
        house.clock.advance(0.004)
        await append(record)

    house.audit.append = slow  # type: ignore[method-assign]
    waiting = asyncio.create_task(house.lane.request(ASK))
    await asyncio.sleep(0)
    house.clock.advance(0.032)
    async with serving(house):
        record = await waiting

    assert isinstance(record, DecisionRecord)
    took = {"queue": 32, "propose": 8, "check": 16, "verdict": 56, "audit": 4}
    assert {name: record.timings_ms[name] for name in took} == pytest.approx(took)


async def test_what_is_asked_twice_is_told_together() -> None:
    house = House(fallback=("value_in_force",))
    house.proposer.percent = 90
    house.checker.on_check = lambda _request: house.clock.advance(0.016)

    record = await decided(house)
    assert len(house.checker.requests) == 2
    assert record.timings_ms["check"] == pytest.approx(32)


async def test_a_model_that_is_asked_for_more_is_told_together() -> None:
    house = House()
    house.point.settings = replace(house.point.settings, n_best=3)
    house.proposer.percent, house.proposer.others = 90, (30,)
    house.proposer.on_propose = lambda _deadline: house.clock.advance(0.008)

    record = await decided(house)
    assert house.proposer.asked == 2
    assert record.timings_ms["propose"] == pytest.approx(16)
