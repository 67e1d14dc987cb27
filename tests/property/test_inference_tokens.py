from fractions import Fraction
from typing import Literal

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.spans import holds, join
from gateway.inference.bundle.manifest import OutputSpec
from gateway.inference.bundle.tokenizer import TagCodec
from gateway.inference.decoding.decode import OutputMask, OutputRange

PUMP = OutputSpec(
    tag="P",
    unit="%",
    knots=("0", "2.5", "5", "10", "50", "100"),
    first_token=7,
    trained=("0", "100"),
    decoding="expectation",
)
LIMITS = OutputRange(Fraction(1, 10), Fraction(0), 0, 1000)


@given(st.floats(0, 100))
def test_a_value_inside_the_bins_survives_encoding(value: float) -> None:
    codec = TagCodec(PUMP)

    token = codec.encode(value)

    assert token.id in codec.tokens
    assert 0.0 <= token.fraction < 1.0
    assert abs(codec.decode(token) - value) < 1e-9


@given(st.floats(allow_nan=False, allow_infinity=True))
def test_any_number_has_a_token_of_its_own_tag(value: float) -> None:
    codec = TagCodec(PUMP)

    assert codec.encode(value).id in codec.tokens


@given(
    st.lists(st.floats(-30, 30), min_size=20, max_size=20),
    st.integers(0, 1000),
    st.integers(0, 1000),
)
def test_an_answer_is_always_a_register_value_inside_the_range(
    logits: list[float], one: int, other: int
) -> None:
    low, high = sorted((one, other))
    mask = OutputMask(TagCodec(PUMP), OutputRange(Fraction(1, 10), Fraction(0), low, high), "expectation")

    decoded = mask.decode(np.array(logits, dtype=np.float32))

    assert low <= decoded.raw <= high
    assert decoded.value == Fraction(decoded.raw, 10)
    assert 0.0 <= decoded.masked_out <= 1.0
    assert 0.0 <= decoded.concentration <= 1.0 + 1e-9


@given(st.integers(0, 1000))
def test_probability_shared_between_two_knots_decodes_to_the_value_between_them(raw: int) -> None:
    codec = TagCodec(PUMP)
    token = codec.encode(raw / 10)
    logits = np.full(20, -60.0, dtype=np.float32)
    logits[token.id] = np.log(max(1.0 - token.fraction, 1e-20))
    if token.fraction:
        logits[token.id + 1] = np.log(token.fraction)

    assert OutputMask(codec, LIMITS, "expectation").decode(logits).raw == raw


@given(
    st.lists(st.floats(-30, 30), min_size=20, max_size=20),
    st.lists(st.tuples(st.integers(-50, 1050), st.integers(0, 200)), min_size=1, max_size=4),
    st.sampled_from(["expectation", "most_probable"]),
)
def test_with_permitted_counts_no_other_count_is_answered(
    logits: list[float], starts: list[tuple[int, int]], decoding: Literal["expectation", "most_probable"]
) -> None:
    mask = OutputMask(TagCodec(PUMP), LIMITS, decoding)
    row = np.array(logits, dtype=np.float32)
    permitted = LIMITS.within(join((low, low + length) for low, length in starts))
    if not permitted:
        return
    decoded, free = mask.decode(row, permitted), mask.decode(row)

    assert holds(permitted, decoded.raw)
    assert decoded == mask.decode(row, permitted)
    assert decoded.masked_out >= free.masked_out - 1e-9
    everything = mask.decode(row, ((LIMITS.low, LIMITS.high),))
    assert (everything.raw, everything.masked_out) == (free.raw, free.masked_out)


SCALES = st.sampled_from([Fraction(1, 10), Fraction(-1, 4), Fraction(1), Fraction(25, 16384), Fraction(1, 3)])


@given(SCALES, st.fractions(-200, 200, max_denominator=1000), st.integers(-70_000, 70_000), st.floats(-2, 2))
def test_the_nearest_count_is_the_exact_one_also_where_two_are_all_but_equally_near(
    scale: Fraction, offset: Fraction, raw: int, off: float
) -> None:
    limits = OutputRange(scale, offset, -(2**40), 2**40)
    for value in (
        float(limits.value(raw) + scale * Fraction(off)),
        float(limits.value(raw) + scale / 2),
        float(limits.value(raw) + scale / 2) * (1 + 2e-16),
    ):
        exact = abs((Fraction(value) - offset) / scale)
        nearest = int(exact + Fraction(1, 2))

        assert abs(limits.nearest(value)) == nearest


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_far_from_zero_the_nearest_count_is_still_exact(value: float) -> None:
    limits = OutputRange(Fraction(-1, 7), Fraction(1, 3), -(10**330), 10**330)

    assert abs(limits.counts(value) - limits.nearest(value)) <= Fraction(1, 2)
