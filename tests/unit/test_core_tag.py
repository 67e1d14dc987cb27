from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.tag import decimal_text, exact, number_of, number_text


@given(st.integers(), st.integers(0, 40), st.integers(0, 40))
def test_a_terminating_decimal_is_written_exactly_and_with_no_digit_too_many(
    numerator: int, twos: int, fives: int
) -> None:
    value = Fraction(numerator, 2**twos * 5**fives)

    text = decimal_text(value)

    assert Fraction(text) == value
    assert "/" not in text
    assert "." not in text or text[-1] != "0"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("0", "0"),
        ("-12.50", "-12.5"),
        ("0.001", "0.001"),
        ("-1/8", "-0.125"),
        ("1/3", "1/3"),
        ("-5/12", "-5/12"),
    ],
)
def test_other_numbers_are_quotients(value: str, text: str) -> None:
    assert decimal_text(Fraction(value)) == text


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.booleans())
@example(-0.0)
@example(1e16)
@example(5e-324)
def test_a_number_has_the_text_of_its_shortest_decimal(value: float) -> None:
    assert number_text(value) == decimal_text(exact(value))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_has_no_text(value: float) -> None:
    with pytest.raises((ValueError, OverflowError)):
        number_text(value)


@given(st.fractions())
def test_a_number_comes_back_from_its_text(value: Fraction) -> None:
    assert number_of(decimal_text(value)) == value


# An exponent of nine digits takes hours to write out; a record of one would hold up whoever reads it.
@pytest.mark.parametrize(
    "text", ["1e999999999", "1e3", "1/0", "1/00", "+1", " 1", "1_0", "1.", ".5", "\u0661", "nan", "", "1\n"]
)
def test_a_text_that_records_never_hold_is_no_number(text: str) -> None:
    with pytest.raises(ValueError, match="is no number as records spell them"):
        number_of(text)


def test_a_decimal_of_thousands_of_places_is_told_as_a_ratio() -> None:
    assert decimal_text(Fraction(1, 2**2_000)).endswith("5")
    assert decimal_text(Fraction(1, 2**14_000)) == f"1/{2**14_000}"
