"""S3: one tag in two modules: the weaker of each assumption and the stronger of each demand."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import pytest

from gateway.core.quality import StatusCode
from gateway.core.tag import TagId
from gateway.solver.modules.module import Interval, Variable
from gateway.solver.rules.joining import joined
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.solver_small import Plant, rule, small, verdict

Changes = Mapping[str, object]


def span(low: int, high: int) -> Interval:
    return Fraction(low), Fraction(high)


def both(name: str, one: Changes, other: Changes) -> Variable:
    """What the two make of a variable, the same whichever comes first."""
    first = small(rule("p <= 90"), id="one", variables={name: one})
    second = small(rule("p <= 95"), id="other", variables={name: other})
    found = joined(first.variables[name], second.variables[name])
    again = joined(second.variables[name], first.variables[name])
    assert (found.range, found.roams, found.error, found.max_age) == (
        again.range,
        again.roams,
        again.error,
        again.max_age,
    )
    assert (found.physical, found.max_rate, found.accept_quality) == (
        again.physical,
        again.max_rate,
        again.accept_quality,
    )
    assert RuleSet.of([first, second], 1).variables[found.tag] == found
    return found


def test_s3_a_reading_must_be_inside_both_ranges_and_the_plant_may_be_anywhere_in_either() -> None:
    found = both("l", {"range": ["0", "4"]}, {"range": ["1", "5"]})

    assert found.range == span(1, 4)
    assert found.roams == span(0, 5)


@pytest.mark.parametrize(
    ("other", "roams"),
    [(["0", "6"], (0, 6)), (["-1", "4"], (-1, 4)), (["-1", "6"], (-1, 6)), (["1", "3"], (0, 4))],
)
def test_s3_each_end_of_where_the_plant_may_be_is_the_farther_one(
    other: list[str], roams: tuple[int, int]
) -> None:
    assert both("l", {"range": ["0", "4"]}, {"range": other}).roams == span(*roams)


def test_s3_ranges_that_agree_leave_the_plant_where_they_say() -> None:
    found = both("l", {"range": ["0", "4"]}, {"range": ["0", "4"]})

    assert (found.range, found.roams, found.widest) == (span(0, 4), span(0, 4), None)


def test_s3_an_action_is_never_anywhere_but_where_both_modules_let_it_be() -> None:
    found = both("p", {"range": ["0", "80"]}, {"range": ["10", "100"]})

    assert (found.range, found.roams) == (span(10, 80), span(10, 80))


def test_s3_ranges_that_share_one_value_hold_together_and_those_that_share_none_do_not() -> None:
    assert both("l", {"range": ["0", "2"]}, {"range": ["2", "5"]}).range == span(2, 2)
    with pytest.raises(ValueError, match=r"ranges of `l` \(L\) have nothing in common"):
        both("l", {"range": ["0", "2"]}, {"range": ["2.001", "5"]})


def test_s3_what_both_vouch_for_is_the_wider_bound_and_the_faster_rate() -> None:
    one = {"physical": ["0", "3"], "max_rate": "1 m/s"}
    other = {"physical": ["1", "4"], "max_rate": "2 m/s"}
    found = both("l", one, other)

    assert (found.physical, found.max_rate) == (span(0, 4), Fraction(2))
    narrow = both("l", one, {**other, "physical": ["1", "2"]})
    assert narrow.physical == span(0, 3)


@pytest.mark.parametrize("key", ["physical", "max_rate"])
def test_s3_what_only_one_vouches_for_is_no_premise(key: str) -> None:
    vouched = {"physical": ["0", "3"], "max_rate": "1 m/s"}
    found = both("l", vouched, {k: v for k, v in vouched.items() if k != key})

    assert getattr(found, key) is None
    assert (found.physical, found.max_rate) != (None, None)


def test_s3_the_greater_error_and_the_smaller_age_count() -> None:
    found = both("l", {"error": "0.02", "max_age": "3 s"}, {"error": "0.01", "max_age": "1 s"})

    assert (found.error, found.max_age) == (Fraction("0.02"), Fraction(1))


def test_s3_the_longer_minimum_times_count() -> None:
    found = both("h", {"min_on": "30 s", "min_off": "5 s"}, {"min_on": "10 s", "min_off": "60 s"})

    assert (found.min_on, found.min_off) == span(30, 60)


# S15: a quality that one module does not accept stands behind no write.
def test_s15_a_quality_is_accepted_only_where_both_modules_accept_it() -> None:
    local, last = "GoodLocalOverride", "UncertainLastUsableValue"
    found = both("l", {"accept_quality": [local, last]}, {"accept_quality": [local]})
    assert found.accept_quality == {local}

    forced = Plant(status={"L": StatusCode.GoodLocalOverride})
    accepting = small(rule("l <= 3"), id="one", variables={"l": {"accept_quality": [local]}})
    other = small(rule("l <= 4"), id="other")
    assert verdict(accepting, forced) == "Permitted"
    assert verdict((accepting, other), forced) == "Undetermined"


def test_labels_that_mean_other_registers_in_two_modules_are_refused() -> None:
    idle = {"idle": 0, "run": 5, "stop": 9}
    assert both("s", {"values": idle}, {"values": dict(reversed(idle.items()))}).labels == idle
    with pytest.raises(ValueError, match=r"the labels of `s` \(S\) differ"):
        both("s", {"values": idle}, {"values": {**idle, "run": 6}})


def test_a_tag_that_is_an_action_here_and_a_reading_there_is_refused() -> None:
    reading = {"role": "measured", "error": "0.1", "max_age": "2 s"}
    with pytest.raises(ValueError, match=r"`p` \(P\) is declared otherwise than `p`"):
        both("p", {}, reading)


def test_an_age_that_one_module_asks_for_counts_for_a_reading_of_which_the_other_asks_none() -> None:
    found = both("l", {"max_age": "3 s"}, {"max_age": "2 s"})
    bare = small(rule("p <= 90")).variables["p"]

    assert found.max_age == 2
    assert joined(bare, bare).max_age is None
    assert found.tag == TagId("L")
