"""A model's list in the pipeline: the first that is permitted is taken, before any is repaired; one write."""

from __future__ import annotations

from dataclasses import replace

from gateway.core.clock import Deadline
from gateway.core.decision import (
    DecisionRecord,
    Mode,
    PassedOver,
    Permitted,
    Refused,
    Repaired,
    Shortlist,
    Undetermined,
    WriteOutcome,
)
from gateway.core.errors import InferenceError
from gateway.core.guidance import Refusals
from gateway.core.ports import CheckRequest
from gateway.core.restraint import UNRESTRAINED
from gateway.pipeline.lane import Ordered
from gateway.pipeline.rules import RulesInForce
from tests.fakes.pipeline import COUNTEREXAMPLE, House, pump
from tests.unit.test_pipeline_decide import decided


def listing(*others: int, first: int = 90, fallback: tuple[str, ...] = (), n_best: int = 4) -> House:
    """A house whose model has a list; the checker permits up to 60 and repairs to 60."""
    house = House(fallback=fallback)
    house.point.settings = replace(house.point.settings, n_best=n_best)
    house.proposer.percent, house.proposer.others = first, others
    house.checker.repaired = 60
    return house


def looked_at(house: House) -> list[tuple[int, bool]]:
    """Pump values that were checked, and whether they might be repaired."""
    return [
        (int(request.proposal.values[0].value), request.may_repair)
        for request in house.checker.requests
        if request.proposal is not None
    ]


def passed(rank: int, percent: int) -> PassedOver:
    return PassedOver(rank=rank, values=(pump(percent),), confidence=None, counterexample=COUNTEREXAMPLE)


async def test_s12_the_first_that_is_permitted_is_taken_and_nothing_is_repaired() -> None:
    house = listing(80, 55, 50)
    record = await decided(house)

    assert record.outcome == Permitted((pump(55),))
    assert record.written == (pump(55),)
    assert record.write_outcome is WriteOutcome.CONFIRMED
    assert house.sink.written == [(pump(55),)]  # one decision, one write
    assert looked_at(house) == [(90, False), (80, False), (55, False)]
    assert record.shortlist == Shortlist(length=4, rank=3, passed_over=(passed(1, 90), passed(2, 80)))
    assert record.proposal is not None
    assert record.proposal.values == (pump(55),)
    assert record.examined is not None
    assert record.examined.request.proposal == record.proposal
    assert len(house.audit.records) == 1


async def test_a_permitted_first_is_taken_and_no_other_is_looked_at() -> None:
    house = listing(40, 30, first=50)
    record = await decided(house)
    assert record.written == (pump(50),)
    assert looked_at(house) == [(50, False)]
    assert house.proposer.wanted == [1], "no list was made"
    assert record.shortlist is None
    assert house.lane.statistics()["n_best_lists"] == house.lane.statistics()["n_best_checked"] == 0


async def test_a_list_is_made_only_after_a_refusal_for_the_same_measurements() -> None:
    house = listing(55)
    record = await decided(house)
    assert house.proposer.wanted == [1, 4]
    assert record.written == (pump(55),)
    assert record.shortlist == Shortlist(length=2, rank=2, passed_over=(passed(1, 90),))
    assert record.timings_ms["propose"] >= 0
    assert len(house.checker.prepared) <= 1


async def test_a_list_that_the_model_cannot_make_leaves_the_repair() -> None:
    house = listing(55)

    def failing(_deadline: Deadline) -> None:
        if house.proposer.asked == 2:
            house.proposer.failure = InferenceError("too late")

    house.proposer.on_propose = failing
    record = await decided(house)
    assert isinstance(record.outcome, Repaired)
    assert looked_at(house) == [(90, False), (90, True)]
    assert record.shortlist is None


async def test_a_list_that_would_take_longer_than_the_model_may_is_not_asked_for() -> None:
    """It takes up to four times the first answer: after one of 20 of 100 ms there is no time for it."""
    house = listing(55)
    house.proposer.on_propose = lambda _deadline: house.clock.advance(0.02)
    record = await decided(house)
    assert house.proposer.wanted == [1]
    assert isinstance(record.outcome, Repaired)
    assert record.shortlist is None


async def test_a_model_that_has_no_other_proposal_is_repaired() -> None:
    house = listing()
    record = await decided(house)
    assert house.proposer.wanted == [1, 4]
    assert isinstance(record.outcome, Repaired)
    assert record.shortlist is None
    assert house.lane.statistics()["n_best_lists"] == 0


async def test_where_none_is_permitted_the_first_is_repaired() -> None:
    house = listing(80, 70)
    record = await decided(house)

    assert isinstance(record.outcome, Repaired)
    assert record.written == (pump(60),)
    assert looked_at(house) == [(90, False), (80, False), (70, False), (90, True)]
    assert record.shortlist == Shortlist(length=3, rank=1, passed_over=(passed(2, 80), passed(3, 70)))
    assert record.proposal is not None
    assert record.proposal.values == (pump(90),)
    assert record.examined is not None
    assert record.examined.request.may_repair


async def test_one_proposal_is_checked_and_repaired_at_once_as_ever() -> None:
    house = listing(55, n_best=1)
    record = await decided(house)
    assert house.proposer.wanted == [1]
    assert looked_at(house) == [(90, True)]
    assert record.shortlist is None
    assert not any(name.startswith("n_best") for name in house.lane.statistics())


async def test_nothing_that_is_checked_of_a_list_holds_the_list() -> None:
    house = listing(80, 55)
    await decided(house)
    for request in house.checker.requests:
        assert request.proposal is not None
        assert request.proposal == request.proposal.alone()
        assert request.proposal.others == ()


async def test_s12_what_keeps_outputs_still_holds_for_every_proposal_of_a_list() -> None:
    house = listing(80, 55)
    await decided(house)
    restraints = [request.restraint for request in house.checker.requests]
    assert restraints[0] != UNRESTRAINED
    assert restraints == [restraints[0]] * 3


async def test_no_other_is_looked_at_that_the_deadline_leaves_no_time_for() -> None:
    """Another look, a repair and a fallback must fit: of 100 ms and looks of 15, they do not."""
    house = listing(80, 55)
    house.checker.on_check = lambda _request: house.clock.advance(0.015)
    record = await decided(house)
    assert looked_at(house) == [(90, False), (90, True)]
    assert isinstance(record.outcome, Repaired)
    assert house.proposer.wanted == [1]
    assert record.shortlist is None


async def test_a_repair_that_comes_too_late_leaves_the_refusal() -> None:
    house = listing(80)

    def late(request: CheckRequest) -> None:
        if request.may_repair:
            house.rules.activate(RulesInForce(2, "digest-2", frozenset({"tank"}), ""))
            house.clock.advance(1.0)

    house.checker.on_check = late
    record = await decided(house)
    assert isinstance(record.outcome, Refused)
    assert record.written == ()
    assert record.examined is not None
    assert record.examined.result.verdict == record.outcome
    assert record.proposal is not None
    assert record.proposal.values == (pump(90),)


async def test_where_nobody_can_judge_the_first_no_other_is_looked_at() -> None:
    house = listing(55)
    house.overdue = "an override has ended"
    record = await decided(house)
    assert isinstance(record.outcome, Undetermined)
    assert looked_at(house) in ([], [(90, False)])
    assert house.sink.written == []


async def test_a_list_is_looked_at_under_the_rules_in_force_at_each_look() -> None:
    house = listing(55)

    def swapped(_request: CheckRequest) -> None:
        if len(house.checker.requests) == 1:
            house.rules.activate(RulesInForce(2, "digest-2", frozenset({"tank"}), ""))

    house.checker.on_check = swapped
    record = await decided(house)
    assert record.written == (pump(55),)
    assert record.generation == 2
    assert [request.generation for request in house.checker.requests] == [1, 2, 2]


async def test_s10_fallbacks_follow_a_list_of_which_nothing_is_permitted() -> None:
    house = listing(80, fallback=("backup",))
    house.checker.repaired = None
    record = await decided(house)
    assert isinstance(record.outcome, Refused)
    assert record.written_by == "backup"
    assert record.shortlist == Shortlist(length=2, rank=1, passed_over=(passed(2, 80),))
    assert house.checker.requests[-1].restraint == UNRESTRAINED


async def test_s19_a_persons_wish_is_no_list() -> None:
    house = listing(55)
    record = await decided(house, Ordered(requested_by="op", proposal={pump(90).tag: pump(90).value}))
    assert record.shortlist is None
    assert house.proposer.asked == 0


async def test_counters_tell_lists_looks_and_what_came_of_them() -> None:
    house = listing(80, 55)
    await decided(house)
    house.proposer.others = (80, 70)
    await decided(house)
    house.proposer.others = ()
    await decided(house)
    told = house.lane.statistics()
    names = ("lists", "checked", "used", "exhausted")
    assert [told[f"n_best_{name}"] for name in names] == [2, 4, 1, 1]
    assert told["permitted"] == 1
    assert told["repaired"] == 2


async def test_s12_another_of_a_list_counts_as_a_correction_of_what_was_wished() -> None:
    """Else an output could go to and fro between a refused wish and another one without anybody counting."""
    house = listing(55)
    await decided(house)
    assert house.point.repairs.kept_back(house.clock.monotonic()) == {pump(55).tag: -1}
    assert house.point.repairs.held_back == 0
    house.proposer.percent, house.proposer.others = 20, ()
    await decided(house)
    assert house.point.repairs.reversals == 1


async def test_a_guided_attempt_leaves_out_all_that_the_list_before_it_was_refused_for() -> None:
    house = listing(80)
    house.point.settings = replace(house.point.settings, guided=True)
    house.checker.repaired = None

    def narrowed(refused: Refusals) -> int:
        return 90 if not refused else 50

    house.checker.guidance_of = narrowed
    record = await decided(house)
    assert record.written == (pump(50),)
    assert [[r.block[0] for r in told] for told in house.checker.told_refused] == [[], [900, 800]]
    assert record.decoding is not None
    assert record.decoding.attempts == 2
    assert record.shortlist is None, "the second attempt's first was permitted"
    assert house.proposer.wanted == [4, 4], "with guidance the list comes at once"


async def test_in_shadow_a_list_is_judged_and_nothing_is_written() -> None:
    house = listing(55)
    house.point.mode = Mode.SHADOW
    record = await decided(house)
    assert isinstance(record, DecisionRecord)
    assert record.outcome == Permitted((pump(55),))
    assert house.sink.written == []


async def test_the_model_is_asked_with_the_decisions_own_deadline() -> None:
    house = listing(55)
    seen: list[Deadline] = []
    house.proposer.on_propose = seen.append
    await decided(house)
    assert house.proposer.wanted == [1, 4]
    assert all(each.at <= house.clock.monotonic() + 0.1 for each in seen)


def test_a_list_is_told_in_words() -> None:
    assert Shortlist(length=4, rank=1).said() == "proposal 1 of 4 of the model"
    told = Shortlist(length=4, rank=3, passed_over=(passed(1, 90), passed(2, 80))).said()
    assert told == (
        "proposal 3 of 4 of the model; not permitted: 1 by `tank/no-overflow`, 2 by `tank/no-overflow`"
    )
