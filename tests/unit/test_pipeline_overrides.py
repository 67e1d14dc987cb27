"""Decisions while an override ends (S17, S25): never under one that is over, and no stall before."""

from __future__ import annotations

from dataclasses import replace

from gateway.core.decision import Permitted, Refused, Undetermined, WriteOutcome
from gateway.core.override import Override
from gateway.core.ports import CheckRequest
from gateway.pipeline.rules import RulesInForce
from tests.fakes.pipeline import House
from tests.unit.test_pipeline_decide import decided

RAMP = Override(
    module="tank",
    constraint="ramp",
    reason="valve test",
    requested_by="anna",
    confirmed_by="bert",
    since_ns=1,
    until_ns=2,
)
UNDER = RulesInForce(1, "digest-1", frozenset({"tank"}), "", overrides=(RAMP,))
WITHOUT = RulesInForce(2, "digest-2", frozenset({"tank"}), "")
OVER = "the override of `tank/ramp` ended"


def under_override() -> House:
    house = House(fallback=("value_in_force",))
    house.rules.activate(UNDER)
    return house


async def test_s17_an_override_that_ends_while_the_checker_works_is_checked_again_without_it() -> None:
    house = under_override()

    def end(request: CheckRequest) -> None:
        if request.generation == 1:
            house.overdue = OVER
            house.rules.activate(WITHOUT)
            house.checker.limit = 45
            house.overdue = ""  # of the set in force nothing is overridden

    house.checker.on_check = end
    record = await decided(house)
    assert [r.generation for r in house.checker.requests[:2]] == [1, 2]
    assert isinstance(record.outcome, Refused)
    assert record.generation == 2
    assert record.overrides == ()


async def test_s25_an_override_that_is_over_before_the_rules_without_it_are_there_permits_nothing() -> None:
    house = under_override()

    def end(_request: CheckRequest) -> None:
        house.overdue = OVER

    house.checker.on_check = end
    record = await decided(house)
    assert record.outcome == Undetermined(OVER)
    assert record.overrides == (RAMP,)
    assert record.written == ()  # no fallback either: each would be checked under the same rules
    assert house.sink.written == []
    assert house.sink.released == 1


async def test_s25_nothing_is_asked_of_the_checker_under_an_override_that_is_over() -> None:
    house = under_override()
    house.overdue = OVER
    record = await decided(house)
    assert record.outcome == Undetermined(OVER)
    assert house.checker.requests == []


async def test_s17_an_override_that_ends_between_check_and_bytes_closes_the_last_gate() -> None:
    house = under_override()

    def end() -> None:
        house.overdue = OVER

    house.sink.before_gate = end
    record = await decided(house)
    assert isinstance(record.outcome, Permitted)
    assert record.write_outcome is WriteOutcome.REFUSED
    assert house.sink.gates == [OVER]
    assert house.sink.written == []


async def test_while_it_lasts_decisions_are_written_as_ever() -> None:
    house = under_override()
    record = await decided(house)
    assert record.write_outcome is WriteOutcome.CONFIRMED
    assert replace(UNDER, overrides=()).unusable_for(("tank",)) == ""
