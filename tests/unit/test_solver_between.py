"""Where an input may have been between two readings, worked out by hand: bounded from both ends."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gateway.solver.monitor.envelope import Between

Ends = tuple[str, str]


def between(first: Ends, last: Ends, rate: str, whole: str = "4") -> Between:
    return Between(span(*first), span(*last), Fraction(rate), Fraction(whole))


def span(low: str, high: str) -> tuple[Fraction, Fraction]:
    return Fraction(low), Fraction(high)


# Up by 2 a second until half of the time is over, and down again, or the other way round.
@pytest.mark.parametrize(
    ("start", "end", "mean", "hull"),
    [
        (0, 4, ("8", "12"), ("6", "14")),
        (0, 1, ("9", "11"), ("8", "12")),
        (1, 2, ("7", "13"), ("6", "14")),
        (1, 3, ("7", "13"), ("6", "14")),
        (3, 4, ("9", "11"), ("8", "12")),
        (0, 3, ("23/3", "37/3"), ("6", "14")),
        (1, 1, ("8", "12"), ("8", "12")),
        (2, 2, ("6", "14"), ("6", "14")),
        (0, 0, ("10", "10"), ("10", "10")),
    ],
)
def test_s16_known_at_both_ends_it_can_have_gone_and_come_back(
    start: int, end: int, mean: Ends, hull: Ends
) -> None:
    known = between(("10", "10"), ("10", "10"), "2")

    assert known.mean(Fraction(start), Fraction(end)) == span(*mean)
    assert known.hull(Fraction(start), Fraction(end)) == span(*hull)


# The greatest course: 12 + 2t up to 18 after 3 s, 24 - 2t down to 16; the least: 10 - 2t, then 7 + 2t.
@pytest.mark.parametrize(
    ("start", "end", "mean", "hull"),
    [
        (0, 4, ("361/32", "31/2"), ("17/2", "18")),
        (0, 2, ("153/16", "14"), ("17/2", "16")),
        (3, 4, ("14", "17"), ("13", "18")),
        (2, 3, ("12", "17"), ("11", "18")),
    ],
)
def test_s16_another_value_at_the_end_and_errors_at_both_shift_where_it_turns(
    start: int, end: int, mean: Ends, hull: Ends
) -> None:
    known = between(("10", "12"), ("15", "16"), "2")

    assert known.mean(Fraction(start), Fraction(end)) == span(*mean)
    assert known.hull(Fraction(start), Fraction(end)) == span(*hull)


def test_s16_what_does_not_move_is_where_both_readings_let_it_be() -> None:
    known = between(("10", "12"), ("11", "15"), "0")

    assert known.mean(Fraction(0), Fraction(4)) == known.hull(Fraction(1), Fraction(2)) == span("11", "12")


def test_s16_readings_that_contradict_its_rate_give_the_hull_of_both() -> None:
    known = between(("10", "11"), ("13", "14"), "0")

    assert known.mean(Fraction(0), Fraction(4)) == known.hull(Fraction(0), Fraction(4)) == span("11", "13")


@pytest.mark.parametrize(("rate", "hull"), [("3", ("4", "16")), ("1/2", ("9", "11"))])
def test_s16_the_faster_it_may_move_the_farther_it_may_have_been(rate: str, hull: Ends) -> None:
    known = between(("10", "10"), ("10", "10"), rate)

    assert known.hull(Fraction(0), Fraction(4)) == span(*hull)
    assert known.hull(Fraction(0), Fraction(2)) == span(*hull)
