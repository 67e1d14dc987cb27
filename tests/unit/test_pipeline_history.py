"""What an output has been: S6, S18, S19 and S23 rest on it."""

from __future__ import annotations

import random
from fractions import Fraction

from gateway.pipeline.history import OutputHistory

OLD, NEW, OTHER = Fraction(40), Fraction(50), Fraction(45)


def known(value: Fraction = OLD, at: float = 100.0) -> OutputHistory:
    history = OutputHistory()
    assert history.observe(value, at) is False
    return history


def may_be(history: OutputHistory, now: float) -> set[Fraction]:
    return {entry.value for entry in history.in_force(now) if entry.ceased_s_ago == 0}


def test_s23_an_output_is_unknown_until_the_plc_was_read() -> None:
    history = OutputHistory()
    assert history.current is None
    assert history.in_force(100.0) == ()
    assert history.held_s(100.0) == 0.0
    history.observe(OLD, 100.0)
    assert history.known
    assert history.current == OLD


def test_s23_minimum_times_begin_anew_with_the_first_read_back() -> None:
    history = known(at=100.0)
    assert history.held_s(103.0) == 3.0


def test_s6_values_of_the_past_stay_with_the_time_since_they_ceased() -> None:
    history = known(at=100.0)
    history.confirm(NEW, 101.0)
    history.confirm(OTHER, 102.0)
    assert [(e.value, e.ceased_s_ago) for e in history.in_force(104.0)] == [
        (OTHER, 0.0),
        (NEW, 2.0),
        (OLD, 3.0),
    ]


def test_s6_the_past_is_kept_two_minutes_and_no_longer() -> None:
    history = known(at=100.0)
    history.confirm(NEW, 101.0)
    assert len(history.in_force(221.0)) == 2
    assert len(history.in_force(221.1)) == 1
    for step in range(1_000):
        history.confirm(Fraction(step), 221.0 + step)
    assert len(history.in_force(1_221.0)) <= 122


def test_confirming_the_same_value_again_does_not_begin_its_hold_anew() -> None:
    history = known(at=100.0)
    history.confirm(OLD, 105.0)
    assert history.held_s(110.0) == 10.0


def test_s18_an_unconfirmed_write_is_before_or_after() -> None:
    history = known()
    history.unconfirmed(NEW, 101.0)
    assert history.current is None
    assert may_be(history, 101.5) == {OLD, NEW}
    assert history.held_s(101.5) == 0.0


def test_s18_a_read_back_of_the_new_value_settles_it_as_requested() -> None:
    history = known()
    history.unconfirmed(NEW, 101.0)
    assert history.observe(NEW, 101.1) is False
    assert history.current == NEW


def test_s18_while_the_write_is_under_way_the_old_value_settles_nothing() -> None:
    history = known()
    history.unconfirmed(NEW, 101.0)
    assert history.observe(OLD, 101.01) is False
    assert may_be(history, 101.02) == {OLD, NEW}
    assert history.observe(NEW, 101.03) is False


def test_s18_once_the_write_has_ended_the_old_value_shows_that_it_did_not_arrive() -> None:
    history = known()
    history.unconfirmed(NEW, 101.0)
    history.ended(101.1)
    assert history.observe(OLD, 101.05) is False  # taken before the end
    assert history.current is None
    assert history.observe(OLD, 101.2) is False
    assert history.current == OLD
    assert history.observe(NEW, 101.3) is True


def test_s18_two_unconfirmed_writes_leave_three_possible_values() -> None:
    history = known()
    history.unconfirmed(NEW, 101.0)
    history.ended(101.1)
    history.unconfirmed(OTHER, 102.0)
    history.ended(102.1)
    assert may_be(history, 102.2) == {OLD, NEW, OTHER}
    assert history.observe(NEW, 102.3) is False
    assert history.current == NEW


def test_s18_a_later_write_that_never_left_does_not_settle_an_earlier_one() -> None:
    history = known()
    history.unconfirmed(NEW, 101.0)
    history.ended(101.1)
    history.cancel()  # the gate closed before a next attempt
    assert may_be(history, 101.2) == {OLD, NEW}
    history.unconfirmed(OTHER, 102.0)
    history.cancel()  # it surely never left
    assert may_be(history, 102.2) == {OLD, NEW}


def test_s6_a_value_that_may_have_been_in_force_stays_in_the_past() -> None:
    history = known()
    history.unconfirmed(NEW, 101.0)
    history.ended(101.1)
    history.confirm(OTHER, 102.0)
    assert {(e.value, e.ceased_s_ago) for e in history.in_force(103.0)} == {
        (OTHER, 0.0),
        (NEW, 1.0),
        (OLD, 1.0),
    }


def test_s6_confirming_the_old_value_again_does_not_forget_what_may_have_been_between() -> None:
    history = known()
    history.unconfirmed(NEW, 101.0)
    history.ended(101.1)
    history.unconfirmed(OLD, 102.0)
    history.confirm(OLD, 102.1)
    assert {e.value for e in history.in_force(103.0)} == {OLD, NEW}
    assert history.current == OLD


def test_s6_a_write_shown_not_to_have_arrived_leaves_no_past() -> None:
    history = known()
    history.unconfirmed(NEW, 101.0)
    history.ended(101.1)
    history.observe(OLD, 101.2)
    assert [e.value for e in history.in_force(102.0)] == [OLD]


def test_a_write_that_surely_never_left_changes_nothing() -> None:
    history = known()
    history.unconfirmed(NEW, 101.0)
    history.cancel()
    assert history.current == OLD


def test_s19_a_value_nobody_wrote_is_unrequested_and_taken_over() -> None:
    history = known()
    assert history.observe(OTHER, 101.0) is True
    assert history.current == OTHER
    assert history.held_s(103.0) == 2.0


def test_s19_a_third_value_during_an_unconfirmed_write_is_unrequested() -> None:
    history = known()
    history.unconfirmed(NEW, 101.0)
    assert history.observe(OTHER, 101.1) is True
    assert history.current == OTHER


def test_a_read_back_older_than_the_confirmed_write_is_ignored() -> None:
    history = known()
    history.confirm(NEW, 101.0)
    assert history.observe(OLD, 100.9) is False
    assert history.current == NEW


def test_s6_many_decisions_a_second_thin_the_record_and_never_loosen_a_ramp() -> None:
    history, whole = OutputHistory(), list[tuple[Fraction, float]]()
    rng = random.Random(7)  # noqa: S311  # a seeded sequence, not a secret
    level = 500
    for number in range(4_000):
        at = 100 + number * 0.05
        wild = number % 900 < 300
        level = rng.randrange(0, 1000) if wild else max(0, min(1000, level + rng.randint(-4, 4)))
        value = Fraction(level, 10)
        if whole and whole[0][0] == value:
            whole.pop(0)  # it goes on
        elif whole:
            whole[0] = whole[0][0], at  # it ceases when the next one is confirmed
        whole.insert(0, (value, at))
        history.confirm(value, at)
        if number % 137:
            continue
        now = at + 0.02
        past = [(whole[0][0], 0.0), *((v, now - ceased) for v, ceased in whole[1:] if now - ceased <= 120.0)]
        listed = history.in_force(now)
        limit = Fraction(10)
        highest = min(value + limit * Fraction(1 + ago) for value, ago in past)
        lowest = max(value - limit * Fraction(1 + ago) for value, ago in past)
        assert min(e.value + limit * Fraction(1 + e.ceased_s_ago) for e in listed) == highest
        assert max(e.value - limit * Fraction(1 + e.ceased_s_ago) for e in listed) == lowest
    assert len(history._stretches) < 200


def test_s16_it_is_known_since_when_the_values_in_force_were_seen_without_interruption() -> None:
    history = OutputHistory()
    assert history.in_sight_since == float("-inf")
    history.observe(OLD, 100.0)
    history.observe(NEW, 101.0)
    history.confirm(NEW, 102.0)
    assert history.in_sight_since == 100.0
    history.out_of_sight(103.0)
    history.observe(NEW, 102.9)  # of before: still nobody knows
    assert history.in_sight_since == 100.0
    history.observe(NEW, 104.0)
    assert history.in_sight_since == 104.0
    history.out_of_sight(105.0)
    history.confirm(NEW, 106.0)  # the PLC's own word, with the write
    assert history.in_sight_since == 106.0
