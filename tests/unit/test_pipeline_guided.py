"""Guided decoding in the pipeline: asked for where it is wanted, bounded by the deadline, never believed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.clock import Deadline
from gateway.core.decision import DecisionRecord, Permitted, Refused
from gateway.core.errors import InferenceError
from gateway.core.guidance import NOTHING, Refusals
from gateway.pipeline.guided import MOST_ATTEMPTS
from tests.fakes.pipeline import PUMP, House, pump
from tests.unit.test_pipeline_decide import decided


def guided(*, fallback: tuple[str, ...] = ()) -> House:
    house = House(fallback=fallback)
    house.point.settings = replace(house.point.settings, guided=True)
    house.proposer.percent = 90  # the checker permits up to 60
    return house


async def test_without_the_setting_nothing_is_asked_and_nothing_is_told() -> None:
    house = House()
    record = await decided(house)
    assert isinstance(record, DecisionRecord)
    assert record.decoding is None
    assert house.checker.told_refused == []


async def test_a_guided_block_is_checked_like_any_other_and_told_as_guided() -> None:
    house = guided()
    house.checker.guidance_of = lambda _refused: 55

    record = await decided(house)

    assert isinstance(record.outcome, Permitted)
    assert record.written == (pump(55),)
    assert len(house.checker.requests) == 1
    assert house.checker.requests[0].proposal is not None
    assert house.checker.requests[0].proposal.decoding is None  # no check depends on it
    assert record.decoding is not None
    assert (record.decoding.guided, record.decoding.attempts) == (True, 1)
    assert house.point.drift == {PUMP: 0.25}
    assert house.decider.guided.statistics().guided == 1


async def test_guidance_that_is_wrong_permits_nothing() -> None:
    house = guided()
    house.checker.guidance_of = lambda _refused: 80  # more than is permitted

    record = await decided(house)

    assert isinstance(record.outcome, Refused)
    assert record.written == ()
    assert record.decoding is not None
    assert record.decoding.attempts == MOST_ATTEMPTS
    assert house.decider.guided.statistics().refused == 1


async def test_a_refusal_narrows_the_next_attempt_and_the_last_check_is_on_record() -> None:
    house = guided()

    def narrowed(refused: Refusals) -> int:
        return 80 if not refused else refused[-1].block[0] // 10 - 25

    house.checker.guidance_of = narrowed

    record = await decided(house)

    assert isinstance(record.outcome, Permitted)
    assert record.written == (pump(55),)
    assert record.examined is not None
    assert record.examined.request.proposal == record.proposal
    assert [len(refused) for refused in house.checker.told_refused] == [0, 1]
    assert house.checker.told_refused[1][0].constraint == "no-overflow"
    assert len(house.checker.requests) == 2


async def test_no_attempt_is_made_that_the_deadline_leaves_no_time_for() -> None:
    house = guided()
    house.checker.guidance_of = lambda _refused: 80
    house.proposer.on_propose = lambda _deadline: house.clock.advance(0.045)  # of 0.1 s

    record = await decided(house)

    assert isinstance(record.outcome, Refused)
    assert house.proposer.asked == 1


async def test_where_nothing_can_be_permitted_no_other_attempt_is_made() -> None:
    house = guided(fallback=("backup",))
    house.checker.guidance_of = lambda _refused: NOTHING

    record = await decided(house)

    assert isinstance(record.outcome, Refused)
    assert house.proposer.asked == 1
    assert record.written_by == "backup"
    assert record.decoding is not None
    assert (record.decoding.guided, record.decoding.because) == (False, NOTHING)


async def test_an_attempt_that_fails_leaves_the_verdict_before_it() -> None:
    house = guided()
    house.checker.guidance_of = lambda _refused: 80

    def fails_later(_deadline: Deadline) -> None:
        if house.proposer.asked > 1:
            raise InferenceError("lost")

    house.proposer.on_propose = fails_later

    record = await decided(house)

    assert isinstance(record.outcome, Refused)
    assert house.proposer.asked == 2


@pytest.mark.parametrize("why", ["guidance came too late", "rule set 1 is not loaded"])
async def test_without_guidance_the_model_decodes_as_ever_and_that_is_counted(why: str) -> None:
    house = guided()
    house.proposer.percent = 50
    house.checker.guidance_of = lambda _refused: why

    record = await decided(house)

    assert isinstance(record.outcome, Permitted)
    assert record.written == (pump(50),)
    assert record.decoding is not None
    assert record.decoding.because == why
    assert house.decider.guided.statistics().unguided == 1
