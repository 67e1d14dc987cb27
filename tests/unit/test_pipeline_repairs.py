"""S12: what a point remembers of repairs, and when they are too many."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from gateway.core.decision import (
    DecisionId,
    DecisionRecord,
    Mode,
    Outcome,
    Permitted,
    PointId,
    Refused,
    RegisterValue,
    Repaired,
    Undetermined,
)
from gateway.core.tag import TagId
from gateway.pipeline.repairs import RepairLimit, Repairs
from tests.fakes.pipeline import COUNTEREXAMPLE, PUMP, proposal, pump

OTHER = TagId("Q.SP")
LIMIT = RepairLimit(repairs=3, reversals=2, window_s=60.0)


def record(outcome: Outcome, asked: int, written: int, by: str = "verdict") -> DecisionRecord:
    return DecisionRecord(
        id=DecisionId("d"),
        point=PointId("tank"),
        mode=Mode.ARMED,
        requested_by="period",
        received_utc_ns=0,
        outcome=outcome,
        proposal=proposal(asked),
        written=(pump(written),),
        written_by=by,
        findings=(),
        inputs={},
        generation=1,
        rule_set_digest="",
        model_digest="",
        timings_ms={},
    )


def other(value: int) -> RegisterValue:
    return RegisterValue(OTHER, value, Fraction(value))


def permitted(value: int) -> DecisionRecord:
    return record(Permitted((pump(value),)), value, value)


def repaired(asked: int, written: int) -> DecisionRecord:
    return record(Repaired((pump(written),), COUNTEREXAMPLE), asked, written)


def backed_up(asked: int, written: int) -> DecisionRecord:
    return record(Refused(COUNTEREXAMPLE), asked, written, "backup")


class Plant:
    """Takes decisions one second apart and has their values in force after them."""

    def __init__(self, limit: RepairLimit | None = LIMIT, value: float = 40, now: float = 0.0) -> None:
        self.repairs, self.now, self.value = Repairs(limit, 30.0), now, Fraction(value)

    def take(self, *records: DecisionRecord) -> Plant:
        for one in records:
            self.now += 1.0
            self.repairs.took(one, {PUMP: self.value}, self.now)
            self.value = one.written[0].value
        return self

    @property
    def too_many(self) -> str:
        return self.repairs.too_many

    def kept(self) -> dict[str, int]:
        return {str(tag): side for tag, side in self.repairs.kept_back(self.now).items()}


@pytest.mark.parametrize(
    ("one", "side"),
    [
        (repaired(0, 30), {"P.SP": 1}),
        (repaired(90, 50), {"P.SP": -1}),
        (backed_up(0, 50), {"P.SP": 1}),
        (record(Permitted((pump(45),), "kept back lately"), 30, 45), {"P.SP": 1}),
        (permitted(30), {}),
        (record(Undetermined("bad input"), 30, 40, "value_in_force"), {}),
        (record(Permitted((pump(40),)), 39, 40), {}),  # too small to write, not kept back
    ],
)
def test_s12_what_is_left_short_of_the_proposal_for_a_rule_is_kept_back(
    one: DecisionRecord, side: dict[str, int]
) -> None:
    assert Plant().take(one).kept() == side


def test_s12_it_is_kept_back_until_no_repair_did_so_for_a_while() -> None:
    plant = Plant().take(repaired(0, 30), permitted(29), permitted(28))
    assert plant.kept() == {"P.SP": 1}
    plant.now += 28.0
    assert plant.kept() == {"P.SP": 1}
    plant.now += 0.1
    assert plant.kept() == {}


def test_s12_what_does_not_move_the_plant_is_not_remembered() -> None:
    for unwritten in (
        replace(repaired(0, 30), mode=Mode.SHADOW),
        replace(repaired(0, 30), mode=Mode.ADVISORY),
        replace(repaired(0, 30), what_if=True),
    ):
        plant = Plant().take(*[unwritten] * 9)
        assert plant.kept() == {}
        assert not plant.too_many


@pytest.mark.parametrize("now", [0.0, 1_000_000.0])
def test_s12_many_repairs_within_the_window_are_too_many(now: float) -> None:
    assert not Plant(now=now).take(*[repaired(0, 30)] * 3).too_many
    assert (
        Plant(now=now).take(*[repaired(0, 30)] * 4).too_many
        == "4 repairs of proposals within 60 s, and at most 3 are allowed"
    )


def test_s12_a_repair_counts_for_as_long_as_the_window_and_no_longer() -> None:
    for later, why in ((60.0, "4 repairs"), (60.5, "")):
        plant = Plant().take(repaired(0, 30))
        plant.now += later - 3.0
        plant.take(*[repaired(0, 30)] * 3)
        assert plant.too_many[:9] == why


def test_s12_repairs_outside_the_window_do_not_add_up() -> None:
    plant = Plant()
    for _ in range(20):
        plant.take(repaired(0, 30))
        plant.now += 20.0
    assert not plant.too_many


def test_s12_reversals_that_repairs_cause_are_counted_a_models_own_are_not() -> None:
    own = Plant().take(*[permitted(v) for v in (30, 40, 30, 40, 30, 40)])
    assert own.repairs.reversals == 0
    plant = Plant().take(backed_up(0, 50), permitted(45), backed_up(0, 55), permitted(50))
    assert plant.repairs.reversals == 3
    assert plant.too_many.startswith("3 reversals of outputs that repairs caused within 60 s")


# An output is turned round by less than its unit as well.
def test_s12_small_moves_are_moves_and_small_differences_are_kept_back() -> None:
    def down(by: str) -> DecisionRecord:
        asked = Fraction(40) - Fraction(by)
        one = repaired(0, 0)
        return replace(
            one,
            proposal=replace(proposal(0), values=(pump(asked - Fraction("0.3")),)),
            written=(pump(asked),),
        )

    plant = Plant().take(down("0.5"))
    assert plant.kept() == {"P.SP": 1}
    plant.take(down("0.2"), down("0.4"), down("0.1"))  # up, down, up
    assert plant.repairs.reversals == 3


def test_s12_an_output_that_is_written_as_proposed_is_not_reversed_by_a_repair_of_another() -> None:
    plant = Plant()
    for number, pumped in enumerate((30, 40, 30, 40)):
        one = repaired(pumped, pumped)
        assert one.proposal is not None
        wish = replace(one.proposal, values=(*one.proposal.values, other(0)))
        plant.repairs.took(
            replace(one, proposal=wish, written=(*one.written, other(5))),
            {PUMP: Fraction(70 - pumped), OTHER: Fraction(5)},
            float(number),
        )
    assert plant.repairs.kept_back(4.0) == {OTHER: 1}
    assert plant.repairs.reversals == 0


# What an output did is not known where its value in force before is not.
def test_s12_what_was_in_force_before_may_not_be_known() -> None:
    for known, reversals in ((None, 0), ({}, 0), ({PUMP: Fraction(40)}, 1)):
        plant = Plant().take(backed_up(0, 50))
        plant.repairs.took(repaired(0, 30), known, plant.now)
        assert plant.kept() == {"P.SP": 1}
        assert plant.repairs.reversals == reversals


def test_s12_what_goes_less_far_though_permitted_is_counted() -> None:
    kept_back = record(Permitted((pump(45),), "kept back lately"), 30, 45)
    plant = Plant().take(permitted(30), kept_back, repaired(0, 30), kept_back)
    assert plant.repairs.held_back == 2


def test_s12_nobody_takes_the_plant_away_by_asking_for_what_must_be_repaired() -> None:
    asked = repaired(0, 30)
    assert asked.proposal is not None
    wish = replace(asked, proposal=replace(asked.proposal, by="request:scada"))
    assert not Plant().take(*[wish] * 20).too_many


def test_s12_arming_begins_anew() -> None:
    plant = Plant().take(*[repaired(0, 30)] * 9)
    assert plant.too_many
    plant.repairs.forget()
    plant.take(repaired(0, 30))
    assert not plant.too_many
    assert plant.kept() == {"P.SP": 1}


def test_s12_the_limit_can_be_off() -> None:
    assert not Plant(None).take(*[repaired(0, 30)] * 500).too_many
