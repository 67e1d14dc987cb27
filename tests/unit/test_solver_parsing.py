"""Where the parser's limits lie, which words are its own, and what it says of what is wrong, and where."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gateway.solver.language.parse import KEYWORDS, ExpressionError, parse
from gateway.solver.language.syntax import Connective, For, Member, Number, Ref, Truth


def refused(text: str) -> tuple[int, str]:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    return caught.value.at, caught.value.problem


@pytest.mark.parametrize("word", sorted(KEYWORDS - {"true", "false"}))
def test_a_word_of_the_language_names_no_variable_and_no_label(word: str) -> None:
    hint = "; put `if ... then ... else ...` into parentheses here" if word == "if" else ""
    assert refused(f"1 < {word}") == (4, f"expected a value, found `{word}`{hint}")
    assert refused(f"k in ({word})") == (6, f"expected a number or a label, found `{word}`")


@pytest.mark.parametrize("word", ["true", "false"])
def test_a_truth_is_no_label(word: str) -> None:
    assert refused(f"k in ({word})") == (6, f"expected a number or a label, found `{word}`")


@pytest.mark.parametrize(
    ("opening", "closing"), [("(", ")"), ("-", ""), ("not ", ""), ("abs(", ")"), ("if a then 1 else ", "")]
)
def test_forty_levels_may_be_nested_and_one_more_may_not(opening: str, closing: str) -> None:
    inner = "b" if opening == "not " else "1"
    if opening.startswith("if"):  # nests to the right inside the condition as well
        parse("if " * 40 + "a" + " then b else b" * 40)
        at, problem = refused("if " * 41 + "a" + " then b else b" * 41)
    else:
        parse(opening * 40 + inner + closing * 40)
        at, problem = refused(opening * 41 + inner + closing * 41)
    assert problem == "the expression is nested deeper than 40 levels"
    assert at > 0


def test_levels_that_are_closed_again_do_not_add_up() -> None:
    one_after_the_other = ("(a)", "-a", "abs(a)", "(if b then 1 else 2)")
    parse(" + ".join(one_after_the_other * 30))
    parse(" and ".join(["not b"] * 100))
    parse("min(" + ", ".join("if b then 1 else 2" for _ in range(60)) + ")")


@pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False)])
def test_a_truth_is_what_it_says(text: str, *, value: bool) -> None:
    assert parse(text) == Truth(0, value=value)
    assert parse(f"{text} and b") == Connective(
        len(text) + 1, "and", Truth(0, value=value), Ref(len(text) + 5, "b")
    )


def test_what_is_no_function_is_told_all_there_are() -> None:
    at, problem = refused("1 < sine(a)")
    assert at == 4
    assert problem == (
        "`sine` is not a function; there are `abs`, `age`, `at_most`, `count`, `exactly`, `good`, `max`, "
        "`min`, `prev`, `rate`, `sum`, `vote`"
    )


# Nor do they make room: what follows may be as deep as if it stood alone.
@pytest.mark.parametrize(
    "closed", ["(a)", "-a", "abs(a)", "(if b then 1 else 2)", "count(not b)", "vote(max, a, b)"]
)
def test_levels_that_are_closed_again_leave_no_more_room_than_before(closed: str) -> None:
    before = " + ".join([closed] * 12)
    parse(f"{before} + {'(' * 40}a{')' * 40}")
    at, problem = refused(f"{before} + {'(' * 41}a{')' * 41}")
    assert (at, problem) == (len(before) + 43, "the expression is nested deeper than 40 levels")


@pytest.mark.parametrize("text", ["a > 1 for", "a > 1 for 10", "a > 1 for s", "a > 1 for 10 days"])
def test_a_duration_is_a_number_and_a_unit(text: str) -> None:
    assert refused(text) == (
        9 if text.endswith("for") else 10,
        "expected a duration such as `10 s` after `for`",
    )


def test_four_thousand_characters_are_read_and_one_more_is_not() -> None:
    text = "a < 1"
    parse(text.ljust(4_000))
    assert refused(text.ljust(4_001)) == (0, "the expression is longer than 4000 characters")


def test_a_hundred_and_fifty_operations_may_follow_each_other_and_one_more_may_not() -> None:
    parse("1" + "+1" * 149)
    assert "more than 150 operations in a row" in refused("1" + "+1" * 150)[1]


@pytest.mark.parametrize(
    ("duration", "seconds"), [("20 ms", Fraction(1, 50)), ("3 s", 3), ("2 min", 120), ("1.5 h", 5_400)]
)
def test_a_duration_has_one_of_four_units(duration: str, seconds: Fraction | int) -> None:
    found = parse(f"a > 1 for {duration}")
    assert isinstance(found, For)
    assert (found.seconds, found.row) == (seconds, "a > 1")


def test_a_list_holds_whole_numbers_with_their_sign_and_labels() -> None:
    found = parse("k in (-2, 3, open)")
    assert isinstance(found, Member)
    assert found.values == (
        Number(7, Fraction(-2)),
        Number(10, Fraction(3)),
        Ref(13, "open"),
    )


@pytest.mark.parametrize(
    ("text", "at", "problem"),
    [
        ("a ? 1", 2, "`?` is not part of the language"),
        ("a < 1 b", 6, "`b` is not expected here"),
        ("(a < 1", 6, "expected `)`, found `end of text`"),
        ("if a then b", 11, "expected `else`, found `end of text`"),
        ("if a else b", 5, "expected `then`, found `else`"),
        ("a <", 3, "expected a value, found `end of text`"),
        ("a in 3", 5, "expected `(`, found `3`"),
        ("a in (1", 7, "expected `)`, found `end of text`"),
        ("a in (- b)", 8, "expected a number or a label, found `b`"),
        ("a for s", 6, "expected a duration such as `10 s` after `for`"),
        ("a for 10 d", 6, "expected a duration such as `10 s` after `for`"),
        ("prev(3) < 1", 5, "`prev` takes the name of a variable"),
        ("rate(a", 6, "expected `)`, found `end of text`"),
        ("abs(a, b) < 1", 0, "`abs` takes one value"),
        ("1 < vote(median, a, b)", 4, "`vote(median, ...)` takes an odd number of values"),
        ("vote(mean, a) < 1", 5, "`vote` begins with `median`, `max` or `min`, then the values"),
        ("vote(max a) < 1", 9, "expected `,`, found `a`"),
        ("max(a", 5, "expected `)`, found `end of text`"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, at: int, problem: str) -> None:
    assert refused(text) == (at, problem)


def test_a_function_that_is_none_is_told_with_the_nearest_and_all_there_are() -> None:
    at, problem = refused("1 < abss(a)")
    assert at == 4
    assert problem.startswith("`abss` is not a function; did you mean `abs`?")
    for name in ("`age`", "`at_most`", "`count`", "`exactly`", "`good`", "`prev`", "`rate`", "`vote`"):
        assert name in problem
