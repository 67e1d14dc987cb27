"""One decision, hop 6 to hop 13, with everything around it in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from fractions import Fraction

import pytest

from gateway.core.clock import Deadline
from gateway.core.decision import (
    CheckResult,
    DecisionRecord,
    Mode,
    Permitted,
    Refused,
    Rejected,
    Undetermined,
    WriteOutcome,
)
from gateway.core.errors import InferenceError, WorkerLostError
from gateway.core.ports import CheckRequest, ProvedBand, StateSet
from gateway.core.quality import StatusCode
from gateway.pipeline.lane import Ordered
from gateway.pipeline.rules import RulesInForce
from tests.fakes.pipeline import LEVEL, PUMP, STATUS, House, pump

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


async def decided(house: House, ordered: Ordered = ASK) -> DecisionRecord:
    """The record of one decision whose write, if any, has ended."""
    before = len(house.reports)
    async with serving(house):
        answer = await house.lane.request(ordered)
        assert isinstance(answer, DecisionRecord), answer
        for _ in range(20):
            await asyncio.sleep(0)
    return house.reports[-1][0] if len(house.reports) > before else answer


async def test_a_permitted_proposal_is_recorded_then_written_then_confirmed() -> None:
    house = House()
    record = await decided(house)
    assert record.outcome == Permitted((pump(50),))
    assert record.write_outcome is WriteOutcome.CONFIRMED
    assert house.sink.written == [(pump(50),)]
    assert house.audit.records[0].id == record.id
    assert house.audit.records[0].write_outcome is None
    assert house.point.previous() == {PUMP: Fraction(50)}


async def test_a_refused_proposal_is_never_written_and_gives_the_plant_back() -> None:
    house = House()
    house.proposer.percent = 90
    record = await decided(house)
    assert isinstance(record.outcome, Refused)
    assert house.sink.written == []
    assert house.sink.released == 1


async def test_no_audit_no_write() -> None:
    house = House()
    house.audit.full = True
    async with serving(house):
        answer = await house.lane.request(ASK)
    assert isinstance(answer, Rejected)
    assert "could not be kept" in answer.reason
    assert house.sink.written == []
    assert house.unrecorded == ["disk full"]


async def test_s15_an_input_that_is_not_plain_good_is_undetermined_and_not_written() -> None:
    for status in (StatusCode.GoodLocalOverride, StatusCode.UncertainSubstituteValue, StatusCode.Bad):
        house = House(fallback=("value_in_force",))
        house.sample(LEVEL, 2.0, status)
        record = await decided(house)
        assert record.outcome == Undetermined(f"input `LT` is {status.name}")
        assert house.sink.written == []


async def test_s15_a_bad_input_that_the_rules_tolerate_reaches_the_check_and_the_write() -> None:
    house = House()
    house.rules.activate(replace(house.rules.current, tolerated=frozenset({LEVEL})))
    house.sample(LEVEL, 2.0, StatusCode.BadSensorFailure)
    record = await decided(house)
    assert isinstance(record.outcome, Permitted)
    assert record.write_outcome is WriteOutcome.CONFIRMED


async def test_s17_an_input_that_turns_bad_after_the_check_closes_the_gate_though_rules_tolerate_it() -> None:
    house = House()
    house.rules.activate(replace(house.rules.current, tolerated=frozenset({LEVEL})))
    house.checker.on_check = lambda _: house.sample(LEVEL, 2.0, StatusCode.BadSensorFailure)
    record = await decided(house)
    assert isinstance(record.outcome, Permitted)
    assert record.write_outcome is WriteOutcome.REFUSED


async def test_s15_a_quality_that_the_rules_accept_is_used() -> None:
    house = House()
    accepted = {LEVEL: frozenset({"GoodLocalOverride"})}
    house.rules.activate(replace(house.rules.current, accepted=accepted))
    house.sample(LEVEL, 2.0, StatusCode.GoodLocalOverride)
    record = await decided(house)
    assert record.write_outcome is WriteOutcome.CONFIRMED


async def test_s14_inputs_too_far_apart_are_undetermined() -> None:
    house = House()
    settings = replace(house.point.settings, inputs=(LEVEL, STATUS))
    house.point.settings = settings
    house.clock.advance(0.3)
    house.sample(STATUS, 3)
    record = await decided(house)
    assert isinstance(record.outcome, Undetermined)
    assert "max_skew" in record.outcome.reason


@pytest.mark.parametrize(("apart_s", "used"), [(0.25, True), (0.25390625, False)])
async def test_s14_inputs_as_far_apart_as_max_skew_are_used_and_none_farther(
    apart_s: float, *, used: bool
) -> None:
    house = House()
    house.point.settings = replace(house.point.settings, inputs=(LEVEL, STATUS), max_skew_s=0.25)
    house.clock.advance(apart_s)
    house.sample(STATUS, 3)
    record = await decided(house)
    assert isinstance(record.outcome, Permitted) is used


async def test_a_model_without_an_answer_leaves_the_fallback_to_propose() -> None:
    for failure in (InferenceError("NaN in its output"), WorkerLostError("killed")):
        house = House(fallback=("value_in_force",))
        house.proposer.failure = failure
        record = await decided(house)
        assert isinstance(record.outcome, Undetermined)
        assert str(failure) in record.outcome.reason
        assert record.written_by == "value_in_force"


async def test_s24_an_empty_rule_set_permits_nothing() -> None:
    house = House(fallback=("value_in_force",))
    house.rules.activate(RulesInForce(2, "empty", frozenset(), ""))
    record = await decided(house)
    assert isinstance(record.outcome, Undetermined)
    assert house.checker.requests == []
    assert house.sink.written == []


async def test_s24_a_missing_required_module_is_undetermined() -> None:
    house = House()
    house.rules.activate(RulesInForce(2, "other", frozenset({"other"}), ""))
    record = await decided(house)
    assert record.outcome == Undetermined("required module `tank` is not in force")


async def test_s17_a_rule_set_that_changes_during_the_check_is_checked_again() -> None:
    house = House()

    def swap(request: CheckRequest) -> None:
        if request.generation == 1:
            house.rules.activate(RulesInForce(2, "digest-2", frozenset({"tank"}), ""))
            house.checker.limit = 45

    house.checker.on_check = swap
    record = await decided(house)
    assert [r.generation for r in house.checker.requests] == [1, 2]
    assert isinstance(record.outcome, Refused)
    assert record.generation == 2
    assert house.sink.written == []


async def test_s17_whatever_changed_after_the_check_closes_the_gate() -> None:
    def stop(house: House) -> None:
        house.stopped = True

    def disarm(house: House) -> None:
        house.point.mode = Mode.SHADOW

    def expire(house: House) -> None:
        house.clock.advance(1.0)

    def go_local(house: House) -> None:
        house.sample(STATUS, 2)

    def relink(house: House) -> None:
        house.session = 2

    def swap(house: House) -> None:
        house.rules.activate(RulesInForce(2, "digest-2", frozenset({"tank"}), ""))

    def spoil(house: House) -> None:
        house.sample(LEVEL, 2.0, StatusCode.UncertainLastUsableValue)

    def move(house: House) -> None:
        house.point.histories[PUMP].observe(Fraction(41), house.clock.monotonic())

    for change, word in (
        (stop, "kill switch"),
        (disarm, "not armed"),
        (expire, "deadline"),
        (go_local, "local"),
        (relink, "renewed"),
        (swap, "rule set 2"),
        (spoil, "not Good"),
        (move, "changed since"),
    ):
        house = House()
        house.sink.before_gate = lambda house=house, change=change: change(house)  # type: ignore[misc]
        record = await decided(house)
        assert record.write_outcome is WriteOutcome.REFUSED, change.__name__
        assert word in house.sink.gates[0]
        assert house.sink.written == []


async def test_s18_an_unconfirmed_write_leaves_before_and_after_until_read_back() -> None:
    house = House()
    house.sink.outcome = WriteOutcome.UNCONFIRMED
    record = await decided(house)
    assert record.write_outcome is WriteOutcome.UNCONFIRMED
    force = house.point.in_force(house.clock.monotonic())[PUMP]
    assert {e.value for e in force if e.ceased_s_ago == 0} == {Fraction(40), Fraction(50)}
    assert house.point.histories[PUMP].observe(Fraction(50), house.clock.monotonic() + 0.1) is False
    assert house.point.previous() == {PUMP: Fraction(50)}


async def test_s20_a_what_if_is_answered_and_never_written() -> None:
    house = House()
    record = await decided(house, Ordered(requested_by="scada", what_if={LEVEL: Fraction(3)}))
    assert isinstance(record.outcome, Permitted)
    assert house.checker.requests[0].inputs[LEVEL].value == 3.0
    assert house.point.carried is None
    assert house.sink.written == []
    assert (house.proposer.asked, house.proposer.asked_aside) == (0, 1)


async def test_s23_the_first_write_after_arming_is_the_value_in_force() -> None:
    house = House()
    house.point.first_write_due = True
    await decided(house)
    assert house.sink.written == [(pump(40),)]
    assert house.proposer.asked == 0
    await decided(house)
    assert house.sink.written[-1] == (pump(50),)


async def test_shadow_decides_and_never_writes() -> None:
    house = House()
    house.point.mode = Mode.SHADOW
    record = await decided(house)
    assert isinstance(record.outcome, Permitted)
    assert record.write_outcome is None
    assert house.sink.gates == []


async def test_a_full_queue_refuses_the_newest_with_a_reason() -> None:
    house = House(capacity=1)
    waiting = asyncio.create_task(house.lane.request(ASK))
    await asyncio.sleep(0)
    assert await house.lane.request(ASK) == Rejected("the queue is full")
    async with serving(house):
        assert isinstance(await waiting, DecisionRecord)


async def test_a_request_that_waited_past_its_deadline_is_undetermined() -> None:
    house = House(fallback=("value_in_force",))
    waiting = asyncio.create_task(house.lane.request(ASK))
    await asyncio.sleep(0)
    house.clock.advance(0.2)
    async with serving(house):
        record = await waiting
    assert isinstance(record, DecisionRecord)
    assert isinstance(record.outcome, Undetermined)
    assert house.sink.written == []


async def test_a_point_that_is_off_rejects() -> None:
    house = House()
    house.point.mode = Mode.OFF
    assert await house.lane.request(ASK) == Rejected("the decision point is off")


def _covers(house: House, low: float, high: float) -> None:
    """Every check from now on proves the level between two readings for a tenth of a second."""
    check = house.checker.check

    async def proving(request: CheckRequest, deadline: Deadline) -> tuple[CheckResult, StateSet | None]:
        result, state = await check(request, deadline)
        return replace(result, proved={LEVEL: ProvedBand(((0.0, low, high), (0.1, low, high)))}), state

    house.checker.check = proving  # type: ignore[method-assign]


@pytest.mark.parametrize(("level", "written"), [(2.04, 1), (2.06, 0)])
async def test_s17_a_newer_sample_outside_what_the_check_proved_closes_the_gate(
    level: float, written: int
) -> None:
    house = House()
    _covers(house, 1.95, 2.05)

    def newer() -> None:
        house.clock.advance(0.02)
        house.sample(LEVEL, level)

    house.sink.before_gate = newer
    record = await decided(house)
    assert len(house.sink.written) == written
    if not written:
        assert record.write_outcome is WriteOutcome.REFUSED
        why = house.reports[-1][1]
        assert why == (
            "broken assumption: `LT` now reads 2.06 m, and the check proved it between 1.95 m and 2.05 m "
            "for that moment"
        )


async def test_s17_what_a_fallback_writes_stands_on_the_fallbacks_own_check() -> None:
    house = House(fallback=("backup",))
    house.checker.limit = 45
    _covers(house, 1.95, 2.05)

    def newer() -> None:
        house.clock.advance(0.02)
        house.sample(LEVEL, 1.9)

    house.sink.before_gate = newer
    record = await decided(house)
    assert record.written_by == "backup"
    assert "`LT` now reads 1.9 m" in house.sink.gates[0]


async def test_s14_nothing_is_written_once_the_device_no_longer_proves_that_it_runs() -> None:
    house = House()

    def freeze() -> None:
        house.not_live = "the liveness counter `LIVE` was not seen to move"

    house.sink.before_gate = freeze
    record = await decided(house)
    assert record.write_outcome is WriteOutcome.REFUSED
    assert house.sink.gates == ["the liveness counter `LIVE` was not seen to move"]
    assert house.point.previous() == {PUMP: Fraction(40)}


async def test_what_the_record_will_say_of_its_check_is_known_to_the_log_while_it_is_made() -> None:
    house = House()
    record = await decided(house)

    ((request, inputs),) = house.audit.expected
    assert request is house.checker.requests[0]
    assert inputs is record.inputs


async def test_the_checker_gets_ready_while_the_model_works_and_only_then() -> None:
    house = House()
    await decided(house)
    (ahead,), (asked,) = house.checker.prepared, house.checker.requests

    assert ahead.proposal is None
    assert replace(ahead, proposal=asked.proposal) == asked

    await decided(house, replace(ASK, proposal={PUMP: Fraction(30)}))
    assert len(house.checker.prepared) == 1
