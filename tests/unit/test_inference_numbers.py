"""Numbers that travel as text reach the model as the nearest floats, or not at all."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gateway.core.errors import InferenceError
from gateway.inference.serving.numbers import numbers

TEXTS = (
    "12.5",
    "-0.1",
    "1/3",
    "0",
    "1e-7",
    "179.99999999999997",
    "9007199254740993",
    "2.2250738585072011e-308",
)


def test_a_text_is_the_float_nearest_to_what_it_says() -> None:
    assert numbers(TEXTS) == tuple(float(Fraction(text)) for text in TEXTS)
    assert numbers(TEXTS[:2]) == (12.5, -0.1)  # without a fraction among them


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity", "1e400", "1/0", "", "one"])
def test_what_is_no_number_is_refused_with_the_words_it_came_in(text: str) -> None:
    with pytest.raises(InferenceError, match=r"a value of .* is not a number"):
        numbers(("1.5", text))
