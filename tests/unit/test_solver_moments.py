"""What the readings of one instant say to the assumption monitor, worked out by hand (S16)."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from gateway.core.decision import CheckRequest, InForce
from gateway.core.quality import StatusCode
from gateway.core.tag import TagId
from gateway.solver.monitor.readings import Moment, moment, pieces
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.rules.steps import FINE, Whole
from tests.unit.solver_small import NOW, Plant, rule, small

L, P, Q = TagId("L"), TagId("P"), TagId("Q")
Ends = tuple[str, str]
FILLED = small(
    rule("l <= 3", always=True),
    dynamics={"l": "l + 0.01*p"},
    variables={"t": {"physical": ["5", "80"]}, "l": {"accept_quality": ["GoodLocalOverride"]}},
)
RULES = RuleSet.of([FILLED], 1)


def said(sets: Whole) -> tuple[Fraction, Fraction]:
    return Fraction(sets[0], FINE), Fraction(sets[1], FINE)


def span(low: str, high: str) -> tuple[Fraction, Fraction]:
    return Fraction(low), Fraction(high)


def at(plant: Plant, **history: tuple[InForce, ...]) -> Moment:
    request = plant.request()
    told = {**request.history, **{TagId(tag): entries for tag, entries in history.items()}}
    return moment(RULES, replace(request, history=told), Fraction(1000))


def test_s16_a_fresh_reading_is_where_its_error_and_half_a_count_let_the_plant_be() -> None:
    found = at(Plant(l=2.0))

    assert said(found.sets[L]) == span("1.9895", "2.0105")
    assert found.at == 1000
    assert found.confirmed_at[L] == NOW


def test_s16_an_old_reading_is_carried_on_by_its_dynamics_and_its_rate() -> None:
    """40 % for 0.8 s raise the level by 0.32, and the inflow moves by 2 a second."""
    found = at(Plant(l=2.0, q=20.0, t=40.0, ages={"L": 0.8, "Q": 0.5, "T": 0.5}))

    assert said(found.sets[L]) == span("2.3095", "2.3305")
    assert said(found.sets[Q]) == span("18.695", "21.305")
    assert said(found.sets[TagId("T")]) == span("39.895", "40.105")  # its change is nobody's business
    assert found.confirmed_at[L] == NOW - 0.8


def test_s16_readings_of_different_ages_are_carried_on_each_by_its_own() -> None:
    both = small(rule("l <= 3", always=True), dynamics={"l": "l + 0.01*p", "g": "g + 0.1*p"})
    plant = Plant(l=2.0, g=2.0, ages={"L": 0.5, "G": 0.25})
    found = moment(RuleSet.of([both], 1), plant.request(), Fraction(1000))

    assert said(found.sets[L]) == span("2.1895", "2.2105")
    assert said(found.sets[TagId("G")]) == span("2.895", "3.105")


def test_s16_what_acted_since_a_reading_counts_from_when_it_ceased() -> None:
    found = at(Plant(l=2.0, ages={"L": 1.0}), P=(InForce(Fraction(40), 0.0), InForce(Fraction(100), 0.5)))

    assert said(found.sets[L]) == span("2.3895", "2.7105")


@pytest.mark.parametrize("status", [StatusCode.Bad, StatusCode.UncertainLastUsableValue])
def test_s16_a_reading_of_no_use_is_none_and_the_plant_is_wherever_it_can_be(status: StatusCode) -> None:
    found = at(Plant(status={"T": status, "Q": status, "L": status}))

    assert said(found.sets[TagId("T")]) == span("5", "80")
    assert said(found.sets[Q]) == span("10", "40")
    assert said(found.sets[L]) == span("-1", "5")
    assert not {TagId("T"), Q, L} & found.confirmed_at.keys()


def test_s15_a_quality_that_the_modules_accept_is_a_measurement() -> None:
    forced = {"L": StatusCode.GoodLocalOverride, "Q": StatusCode.GoodLocalOverride}
    found = at(Plant(status=forced))

    assert L in found.confirmed_at
    assert Q not in found.confirmed_at


@pytest.mark.parametrize(
    "spoilt", [{"value": None}, {"value": "high"}, {"value": math.nan}, {"value": math.inf},
               {"confirmed_at": math.nan}, {"confirmed_at": -math.inf}]
)  # fmt: skip
def test_s16_what_is_no_number_or_of_no_time_is_no_measurement(spoilt: dict[str, object]) -> None:
    request = Plant().request()
    sample = replace(request.inputs[L], **spoilt)  # type: ignore[arg-type]  # of any field
    missing: CheckRequest = replace(request, inputs={t: s for t, s in request.inputs.items() if t != L})

    for given in (replace(request, inputs={**request.inputs, L: sample}), missing):
        found = moment(RULES, given, Fraction(1000))
        assert L not in found.confirmed_at
        assert said(found.sets[L]) == span("-1", "5")


def test_s16_a_reading_from_after_the_decision_is_as_fresh_as_one_of_its_instant() -> None:
    request = Plant(l=2.0, ages={"L": -0.5}).request()

    assert said(moment(RULES, request, Fraction(1000)).sets[L]) == span("1.9895", "2.0105")


def test_s16_a_measurement_is_newer_where_there_was_none_or_it_was_confirmed_later() -> None:
    now, same, older = at(Plant()), at(Plant()), at(Plant(ages={"L": 0.5}))
    without = at(Plant(status={"L": StatusCode.Bad}))

    assert now.newer(L, None)
    assert now.newer(L, older)
    assert now.newer(L, without)
    assert not now.newer(L, same)
    assert not older.newer(L, now)
    assert not without.newer(L, None)
    assert not without.newer(L, older)


def told(seconds: str, *ceased: tuple[int, str]) -> list[tuple[Fraction, tuple[Fraction, Fraction]]]:
    """The pieces of the newest seconds by what the pump may have been in them, 40 % being in force."""
    request = Plant().request()
    entries = tuple(InForce(Fraction(value), float(ago)) for value, ago in ceased)
    history = {**request.history, P: (InForce(Fraction(40), 0.0), *entries)}
    found = pieces(RULES, replace(request, history=history), Fraction(seconds))
    return [(piece.seconds, said(piece.acting[P])) for piece in found]


def test_s16_the_time_between_two_decisions_is_cut_where_something_ceased_oldest_first() -> None:
    assert told("1") == [(Fraction(1), span("40", "40"))]
    assert told("1", (60, "0.25"), (100, "0.75")) == [
        (Fraction("0.25"), span("40", "100")),
        (Fraction("0.5"), span("40", "60")),
        (Fraction("0.25"), span("40", "40")),
    ]
    assert told("1", (60, "1"), (100, "1.5")) == [(Fraction(1), span("40", "40"))]
    assert told("1", (60, "0")) == [(Fraction(1), span("40", "60"))]  # unconfirmed: either may act
