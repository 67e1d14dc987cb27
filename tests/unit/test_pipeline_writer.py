"""What carries a record out: nothing to write says nothing, and the PLC's own word is read as it stands."""

from __future__ import annotations

from dataclasses import replace

from gateway.core.decision import Mode, WriteOutcome
from gateway.core.errors import InferenceError
from gateway.pipeline.lane import Ordered
from tests.fakes.pipeline import STATUS, House
from tests.unit.test_pipeline_decide import decided


async def test_a_plant_without_a_status_word_is_written_and_given_back_all_the_same() -> None:
    house = House()
    house.point.settings = replace(house.point.settings, status_tag=None)

    assert (await decided(house)).write_outcome is WriteOutcome.CONFIRMED
    house.proposer.percent = 90
    await decided(house)
    assert house.sink.released == 1


# S17: the bits of a word that is zero are all off, the first as well as any other.
async def test_s17_a_status_word_of_zero_means_local() -> None:
    for remote_bit in (0, 3):
        house = House()
        house.point.settings = replace(house.point.settings, remote_bit=remote_bit)
        house.sink.before_gate = lambda house=house: house.sample(STATUS, 0)  # type: ignore[misc]
        record = await decided(house)
        assert record.write_outcome is WriteOutcome.REFUSED
        assert house.sink.gates == ["the PLC is in local"]


async def test_where_nothing_was_to_be_written_no_reason_is_told() -> None:
    watched = House()
    watched.point.mode = Mode.SHADOW
    await decided(watched)
    assert watched.reports[-1][1] == ""

    hurried = House()
    hurried.proposer.percent = 90
    await decided(hurried, Ordered(requested_by="scada", deadline_s=0.05))
    assert hurried.reports[-1][1] == ""
    assert hurried.sink.released == 0


# S23: the first write is nobody's proposal, and no model's.
async def test_s23_a_record_says_that_the_value_in_force_was_written_first() -> None:
    house = House()
    house.point.first_write_due = True
    record = await decided(house)
    assert record.proposal is not None
    assert record.proposal.by == "value_in_force"

    house.proposer.failure = InferenceError("no answer")
    record = await decided(house)
    assert (record.proposal, record.model_digest) == (None, "")
