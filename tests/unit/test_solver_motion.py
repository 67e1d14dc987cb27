"""Where the plant may be some time later: never less than where it can be (S2, S4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest

from gateway.core.decision import InForce, StateInterval, StateSet
from gateway.core.tag import TagId
from gateway.solver.checking.motion import grown, predicted, since
from gateway.solver.modules.module import Interval
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.rules.steps import FINE, fine
from tests.unit.solver_small import NOW, Plant, rule, small

P = TagId("P")


def later(name: str, changes: Mapping[str, object], ends: tuple[str, str], seconds: str) -> Interval:
    variable = small(rule("p <= 90"), variables={name: changes}).variables[name]
    return grown(variable, (Fraction(ends[0]), Fraction(ends[1])), Fraction(seconds))


def span(low: str, high: str) -> Interval:
    return Fraction(low), Fraction(high)


def test_s4_what_has_a_rate_moves_by_it_both_ways_from_wherever_it_was() -> None:
    assert later("q", {"max_rate": "2 m3/h/s"}, ("19", "21"), "1.5") == span("16", "24")


def test_s4_what_has_no_rate_is_anywhere_in_its_range_and_where_it_was_beyond_it() -> None:
    nowhere: dict[str, object] = {"max_rate": None}

    assert later("q", nowhere, ("19", "21"), "0.1") == span("10", "40")
    assert later("q", nowhere, ("4", "45"), "0.1") == span("4", "45")
    assert later("q", nowhere, ("19", "21"), "0") == span("19", "21")


# A count is a whole number at every moment, and may be the next one at any of them.
def test_s4_a_count_goes_on_in_whole_numbers() -> None:
    slow: dict[str, object] = {"max_rate": "0.5 1/s"}

    assert later("n", slow, ("3", "5"), "1") == span("2", "6")
    assert later("q", {"max_rate": "0.5 m3/h/s"}, ("13", "15"), "1") == span("12.5", "15.5")


@pytest.mark.parametrize(
    ("physical", "found"),
    [
        (["0", "36"], span("16", "24")),
        (["18", "36"], span("18", "24")),
        (["0", "23"], span("16", "23")),
        (["17", "22"], span("17", "22")),
    ],
)
def test_s3_it_goes_as_far_as_it_physically_can(physical: list[str], found: Interval) -> None:
    assert later("q", {"max_rate": "2 m3/h/s", "physical": physical}, ("19", "21"), "1.5") == found


@pytest.mark.parametrize(
    ("ceased", "low", "high"),
    [
        ({60: "0.4", 100: "0.8"}, "1.4", "1.60"),  # 100 % for 0.2 s, 60 % for 0.4 s, 40 % for 0.4 s
        ({100: "0.4", 60: "0.8"}, "1.4", "1.76"),  # 100 % for 0.6 s, which may have begun at any moment
        ({20: "0.5"}, "1.3", "1.4"),
        ({100: "1"}, "1.4", "1.4"),
        ({100: "1.5"}, "1.4", "1.4"),
        ({100: "1.5", 60: "0.5"}, "1.4", "1.5"),
        ({100: "0"}, "1.4", "2.0"),  # unconfirmed: either may be in force
    ],
)
def test_s2_what_ceased_acted_until_then_and_no_longer(ceased: dict[int, str], low: str, high: str) -> None:
    """A hundredth of the pump a second, and 40 % in force."""
    rules = RuleSet.of([small(rule("l <= 3", always=True), dynamics={"l": "l + 0.01*p"})], 1)
    entries = tuple(InForce(Fraction(value), float(ago)) for value, ago in ceased.items())
    plain = Plant().request()
    request = replace(plain, history={**plain.history, P: (InForce(Fraction(40), 0.0), *entries)})
    start = {str(v.tag): fine((Fraction(1), Fraction(1))) for v in rules.measured}

    found = since(rules, request, start, Fraction(1))
    assert (Fraction(found["L"][0], FINE), Fraction(found["L"][1], FINE)) == span(low, high)


@pytest.mark.parametrize(
    ("ceased", "low", "high"),
    [
        ({}, "5.8", "13.8"),  # anything for 80 s, then 40 % for 120 s
        ({100: "60"}, "5.8", "17.4"),  # until a minute ago perhaps 100 %
        ({20: "60"}, "4.6", "13.8"),
        ({100: "150"}, "5.8", "13.8"),
        ({20: "30", 100: "60"}, "4", "17.4"),
    ],
)
def test_s2_before_what_a_pipeline_tells_anything_may_have_acted(
    ceased: dict[int, str], low: str, high: str
) -> None:
    """A thousandth of the pump a second, and 40 % in force for 200 s, as far as is told."""
    module = small(rule("l <= 3", always=True), step="60 s", dynamics={"l": "l + 0.06*p"})
    rules = RuleSet.of([module], 1)
    entries = tuple(InForce(Fraction(value), float(ago)) for value, ago in ceased.items())
    plain = Plant().request()
    request = replace(plain, history={**plain.history, P: (InForce(Fraction(40), 0.0), *entries)})
    start = {str(v.tag): fine((Fraction(1), Fraction(1))) for v in rules.measured}

    found = since(rules, request, start, Fraction(200))
    assert (Fraction(found["L"][0], FINE), Fraction(found["L"][1], FINE)) == span(low, high)


FILLED = RuleSet.of([small(rule("l <= 3", always=True), dynamics={"l": "l + 0.01*p"})], 1)
ONE = StateInterval(Fraction(1), Fraction(1))
EVERYTHING = {str(v.tag): ONE for v in FILLED.measured}


def test_s2_what_the_last_check_kept_is_carried_on_for_the_time_since() -> None:
    found = predicted(FILLED, Plant(carried=StateSet(at=NOW - 2, intervals=EVERYTHING)).request())

    assert found is not None
    assert found.keys() == EVERYTHING.keys()
    assert (Fraction(found["L"][0], FINE), Fraction(found["L"][1], FINE)) == span("1.8", "1.8")


@pytest.mark.parametrize("lost", sorted(EVERYTHING))
def test_s2_what_knows_nothing_of_a_variable_is_not_carried_on(lost: str) -> None:
    known = {tag: ends for tag, ends in EVERYTHING.items() if tag != lost}

    assert predicted(FILLED, Plant(carried=StateSet(at=NOW - 2, intervals=known)).request()) is None
    assert predicted(FILLED, Plant().request()) is None


def test_s2_a_variable_that_no_module_has_any_more_is_left_behind() -> None:
    more = {**EVERYTHING, "GONE": ONE}
    found = predicted(FILLED, Plant(carried=StateSet(at=NOW - 2, intervals=more)).request())

    assert found is not None
    assert found.keys() == EVERYTHING.keys()
