from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.core.errors import RegisterRangeError
from gateway.protocols.modbus.codec import NotAValue, WordFormat, decode, encode

ORDERS = st.sampled_from(["ABCD", "CDAB", "BADC", "DCBA"])
WHOLE = [
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bcd16",
    "bcd32",
]
WHOLE += ["mod10k32", "signmag16", "bool"]
PERMUTATIONS = st.permutations("ABCDEFGH").map("".join)


@given(st.data(), st.sampled_from(WHOLE), ORDERS)
def test_whatever_decodes_is_written_back_bit_for_bit(data: st.DataObject, raw_type: str, order: str) -> None:
    form = WordFormat(raw_type=raw_type, order=order)
    words = tuple(data.draw(st.lists(st.integers(0, 0xFFFF), min_size=form.count, max_size=form.count)))
    value = decode(words, form)
    assume(not isinstance(value, NotAValue))
    assume(not (raw_type == "signmag16" and value == 0))  # minus zero reads as zero
    assert not isinstance(value, NotAValue)

    assert encode(value, form, "t") == words


@given(
    st.sampled_from(["int64", "uint64", "float64"]),
    PERMUTATIONS,
    st.lists(st.integers(0, 0xFFFF), min_size=4, max_size=4),
)
def test_every_permutation_of_eight_bytes_is_undone_by_the_write(
    raw_type: str, order: str, words: list[int]
) -> None:
    form = WordFormat(raw_type=raw_type, order=order)
    value = decode(words, form)
    assume(not isinstance(value, NotAValue))
    assert not isinstance(value, NotAValue)

    assert encode(value, form, "t") == tuple(words)


@given(
    st.fractions(min_value=-(10**6), max_value=10**6, max_denominator=1000),
    st.sampled_from([Fraction("0.001"), Fraction("0.1"), Fraction(1), Fraction(7, 3), Fraction(-2)]),
    st.sampled_from([Fraction(0), Fraction(-40), Fraction("0.5")]),
    st.sampled_from(["int16", "uint16", "int32"]),
)
def test_a_written_value_is_within_half_a_count_or_refused(
    value: Fraction, scale: Fraction, offset: Fraction, raw_type: str
) -> None:
    form = WordFormat(raw_type=raw_type, scale=scale, offset=offset)
    low, high = form.bounds() or (0, 0)
    try:
        words = encode(value, form, "t")
    except RegisterRangeError:
        counts = (value - offset) / scale
        assert not low <= counts <= high
        return
    raw = decode(words, WordFormat(raw_type=raw_type))
    assert isinstance(raw, int)
    assert abs(raw * scale + offset - value) <= abs(scale) / 2


@given(ORDERS, st.sampled_from(["float16", "float32", "float64"]), st.floats(allow_nan=True))
def test_no_float_is_read_as_something_that_is_not_a_number(order: str, raw_type: str, value: float) -> None:
    form = WordFormat(raw_type=raw_type, order=order)
    try:
        words = encode(value, form, "t")
    except RegisterRangeError:
        return
    decoded = decode(words, form)
    assert isinstance(decoded, float)
    assert math.isfinite(decoded)


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=12), ORDERS)
def test_text_comes_back_as_it_was_written(text: str, order: str) -> None:
    form = WordFormat(raw_type="string", order=order, argument="utf-8", registers=30)

    assert decode(encode(text, form, "t"), form) == text.rstrip(" ")


@given(
    st.sampled_from(["int8hi", "uint8hi", "int8lo", "uint8lo"]),
    ORDERS,
    st.integers(0, 0xFFFF),
    st.integers(0, 127),
)
def test_writing_one_half_leaves_the_other_half_alone(
    raw_type: str, order: str, current: int, value: int
) -> None:
    form = WordFormat(raw_type=raw_type, order=order)
    other = WordFormat(raw_type="uint8lo" if raw_type.endswith("hi") else "uint8hi", order=order)

    (word,) = encode(value, form, "t", current=current)

    assert decode([word], form) == value
    assert decode([word], other) == decode([current], other)
