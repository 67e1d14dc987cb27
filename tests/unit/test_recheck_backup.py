"""S1, S7, S11: the backup and its terminal set, followed by the independent checker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.recheck.check import Question
from gateway.recheck.exactly import HOLDS, VIOLATED, recheck_exactly
from tests.unit.test_recheck_courses import DRAIN, F, P, X, Y, asked, rule, small, violated


def at_once(x: str, p: str) -> Question:
    """A PLC that does not wait."""
    return asked(x=(x, x), p=(p, p), patience_s=F(0))


def test_s1_the_backup_carries_the_state_into_the_terminal_set() -> None:
    text = small({"x": {**X, "error": "0"}, "p": P}, rule("x <= 5.2", always=True), **DRAIN)
    assert violated(text, at_once("4.2", "2")) == set()  # 5.2, 4.2, 3.2, 2.2
    assert violated(text, at_once("4.21", "2")) == {"r", "terminal[1]"}
    shorter = text.replace('"horizon": 3', '"horizon": 2')
    assert violated(shorter, at_once("4.2", "2")) == {"terminal[1]"}


def test_s1_the_backup_acts_by_what_the_sensor_shows() -> None:
    text = small({"x": {**X, "error": "0.3"}, "p": P}, rule("x <= 9", always=True), **DRAIN)
    one_step = text.replace('"horizon": 3', '"horizon": 1')
    # At 2.05 the backup should stop p; a sensor that shows 1.75 keeps p at 1.2, and x rises to 2.45.
    assert violated(one_step, at_once("2.05", "1.2")) == {"terminal[1]"}
    assert violated(one_step.replace('"0.3"', '"0"'), at_once("2.05", "1.2")) == set()


def test_s11_a_plc_that_waits_before_it_falls_back_is_followed_with_the_last_values() -> None:
    # 1 after the step, 1.5 after another half of it; then p is 0 and x falls.
    text = small(
        {"x": {**X, "error": "0"}, "p": P}, rule("x <= 1.5", always=True), dynamics={"x": "x + p - 1"},
        backup=[{"p": 0}], terminal=["x <= 9"], horizon=2,
    )  # fmt: skip
    question = asked(x=("0", "0"), p=("2", "2"), patience_s=F("0.5"))
    assert violated(text, question) == set()
    assert violated(text.replace("1.5", "1.49"), question) == {"r"}
    assert violated(text, replace(question, patience_s=F("0.6"))) == {"r"}


# ---- a fallback that begins within the proposal's time ----

RISING = {
    # p holds x where it is; without it x rises by 1 a step
    "dynamics": {"x": "x + 1 - p"},
    "backup": [{"p": "ramp(0, 0.5)"}],
    "terminal": ["p <= 1"],
    "horizon": 1,
}


@pytest.mark.parametrize(("limit", "fails"), [("3", False), ("2.99", True)])
def test_s1_s11_a_fallback_that_begins_with_the_proposal_has_longer_to_do_harm(
    *, limit: str, fails: bool
) -> None:
    text = small({"x": {**X, "error": "0"}, "p": P}, rule(f"x <= {limit}", always=True), **RISING)
    # From the start p is 0.5, 0, 0: x is 1, 2 and, at the end of the horizon, 3. From the hold's end on 1.
    question = asked(x=("0.5", "0.5"), p=("1", "1"), hold="2", patience_s=F(0))
    assert violated(text, question) == ({"r"} if fails else set())
    assert recheck_exactly([text], question)["m/r"].says == (VIOLATED if fails else HOLDS)


@pytest.mark.parametrize(("limit", "fails"), [("2.55", False), ("2.54", True)])
def test_s1_s11_the_exact_judge_follows_moves_that_pass_an_instant(*, limit: str, fails: bool) -> None:
    text = small(
        {"x": {**X, "error": "0"}, "p": P}, rule(f"x <= {limit}", always=True), dynamics={"x": "x + p - 1"},
        backup=[{"p": "ramp(3, 0.5)"}], terminal=["p <= 3"], horizon=1,
    )  # fmt: skip
    # Until 2.7: from 0 on p is 1.5 and 2 for a step each, then 2.5. Instants are 0.7, 1 and 1.7.
    question = asked(x=("0", "0"), p=("1", "1"), hold="1", delay="0.7", patience_s=F(0))
    assert violated(text, question) == ({"r"} if fails else set())
    assert recheck_exactly([text], question)["m/r"].says == (VIOLATED if fails else HOLDS)


def test_s1_s11_a_fallback_may_begin_within_a_step() -> None:
    # Rules are about what is written: p falls by 1 at once, wherever that is.
    text = small(
        {"x": {**X, "error": "0"}, "p": P}, rule("x <= 0.5 or p >= 1", always=True), dynamics={"x": "x + p"},
        backup=[{"p": "ramp(0, 1)"}], terminal=["p <= 1"], horizon=1,
    )  # fmt: skip
    assert violated(text, at_once("0", "1")) == {"r"}
    assert violated(text.replace("x <= 0.5", "x <= 1"), at_once("0", "1")) == set()


def test_s1_s11_before_its_effect_nothing_falls_back_from_a_proposal() -> None:
    text = small(
        {"x": {**X, "error": "0"}, "p": P}, rule("x >= 0", always=True), dynamics={"x": "x + p - 1"},
        backup=[{"p": 0}], terminal=["p <= 1"], horizon=1,
    )  # fmt: skip
    # p is 1 until the effect, then 2; the backup stops it, for the rest of the hold and a step more.
    late = asked(x=("2", "2"), p=("1", "2"), hold="0.5", delay="0.5", patience_s=F(0))
    assert violated(text, late) == set()
    assert violated(text, replace(late, inputs={"X": (F("1.9"), F("1.9"))})) == {"r"}
    assert violated(text, replace(late, inputs={"X": (F("1.9"), F("1.9"))}, proposal={"P": F(1)})) == {"r"}


# A decision may come at any moment once the proposal acts, and the backup must do from there (S1).
def test_s1_the_safe_set_is_owed_from_the_effect_on_and_not_only_at_the_end() -> None:
    text = small(
        {"x": {**X, "error": "0"}, "p": P}, rule("x <= 9", always=True), dynamics={"x": "x + p - 1"},
        backup=[{"p": 0}], safe_set=["x <= 3"],
    )  # fmt: skip
    late = asked(x=("2.5", "2.5"), p=("2", "0"), delay="1")
    assert violated(text, late) == {"safe_set[1]"}  # 3.5 when it acts at last, and 2.5 a step later
    assert violated(text, asked(x=("2", "2"), p=("2", "0"), delay="1")) == set()
    assert violated(text, asked(x=("3.5", "3.5"), p=("0", "0"))) == {"safe_set[1]"}


def test_s4_what_may_be_anywhere_at_once_is_there_before_the_rest_has_moved() -> None:
    sinking = {"x": "x - 1 + 0*p"}
    text = small(
        {"x": {**X, "error": "0"}, "y": Y, "p": P}, rule("x + y <= 14.5", always=True), dynamics=sinking
    )
    question = asked(x=("5", "5"), inputs={"X": (F(5), F(5)), "Y": (F(1), F(1))})
    assert violated(text, question) == {"r"}  # 5 + 10 at first, though 4 + 10 a step later
    assert violated(text.replace("14.5", "15"), question) == set()
    slow = small(
        {"x": {**X, "error": "0"}, "y": {**Y, "max_rate": "1 1/s"}, "p": P},
        rule("x + y <= 6", always=True),
        dynamics=sinking,
    )
    assert violated(slow, question) == set()
