from __future__ import annotations

import csv
import math
from ast import literal_eval
from fractions import Fraction
from pathlib import Path

import pytest

from gateway.core.errors import RegisterRangeError
from gateway.core.quality import StatusCode
from gateway.protocols.modbus.codec import NotAValue, WordFormat, decode, encode

VECTORS = Path(__file__).parent.parent / "data" / "modbus_vectors.csv"


def vectors() -> list[dict[str, str]]:
    with VECTORS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def words_of(row: dict[str, str]) -> tuple[int, ...]:
    return tuple(int(word, 16) for word in row["registers_hex"].split())


def format_of(row: dict[str, str]) -> WordFormat:
    return WordFormat(
        raw_type=row["type"],
        order=row["order"],
        argument=row["arg"],
        scale=Fraction(row["scale"]),
        offset=Fraction(row["offset"]),
        invalid_raw=int(row["invalid_raw_hex"], 16) if row["invalid_raw_hex"] else None,
        registers=len(words_of(row)) if row["type"] == "string" else 0,
    )


def test_every_vector_is_there() -> None:
    assert len(vectors()) == 69


@pytest.mark.parametrize(
    "row", vectors(), ids=lambda r: f"{r['registers_hex']}-{r['type']}-{r['order']}-{r['arg']}"
)
def test_vector_decodes_to_its_value(row: dict[str, str]) -> None:
    decoded = decode(words_of(row), format_of(row))

    if row["value"] in {"BAD", "nan", "inf", "-inf"}:
        assert isinstance(decoded, NotAValue)
        assert decoded.status >= StatusCode.Bad
    else:
        value = literal_eval(row["value"])
        assert decoded == value
        assert isinstance(decoded, type(value))
        if isinstance(value, float) and isinstance(decoded, float):
            assert math.copysign(1, decoded) == math.copysign(1, value)


@pytest.mark.parametrize(
    "row", vectors(), ids=lambda r: f"{r['registers_hex']}-{r['type']}-{r['order']}-{r['arg']}"
)
def test_vector_value_is_written_back_as_the_same_registers(row: dict[str, str]) -> None:
    words, form = words_of(row), format_of(row)
    decoded = decode(words, form)
    if isinstance(decoded, NotAValue):
        return
    if row["note"] in {"space padded", "garbage after NUL dropped"}:
        words = (*words[:1], 0)  # what follows the text is not part of the value

    assert encode(decoded, form, "t", current=words[0]) == words


@pytest.mark.parametrize(
    ("raw_type", "value"),
    [
        ("int16", 32768),
        ("int16", -32769),
        ("uint16", -1),
        ("uint16", 65536),
        ("uint16", Fraction(131071, 2)),
        ("int32", 2**31),
        ("uint32", -1),
        ("int64", 2**63),
        ("uint64", 2**64),
        ("bcd16", 10000),
        ("bcd16", -1),
        ("bcd32", 10**8),
        ("mod10k32", 10**8),
        ("signmag16", 32768),
        ("float16", 65520.0),
        ("float32", 3.5e38),
        ("float32", math.inf),
        ("float64", math.nan),
        ("bool", 2),
        ("int16", math.nan),
    ],
)
def test_value_that_does_not_fit_is_never_wrapped(raw_type: str, value: float) -> None:
    with pytest.raises(RegisterRangeError) as caught:
        encode(value, WordFormat(raw_type=raw_type), "TK1.P101.SP")

    assert caught.value.tag == "TK1.P101.SP"


# D12: a negative number is sixteen bits of two's complement on the wire.
def test_negative_int16_is_written_as_twos_complement() -> None:
    assert encode(-12, WordFormat(raw_type="int16"), "t") == (0xFFF4,)


# D10, D1
def test_scaled_int16_keeps_its_decimals_and_float_words_their_order() -> None:
    assert decode([68], WordFormat(raw_type="int16", scale=Fraction("0.1"))) == 6.8
    form = WordFormat(raw_type="float32", order="CDAB")
    assert decode(encode(229.01, form, "t"), form) == pytest.approx(229.01, rel=1e-7)


def test_setpoint_rounds_to_the_nearest_count_with_halves_away_from_zero() -> None:
    form = WordFormat(raw_type="int16", scale=Fraction("0.1"))

    assert encode(0.15, form, "t") == (2,)
    assert encode(-0.15, form, "t") == (0xFFFE,)
    assert encode(Fraction("0.1499"), form, "t") == (1,)


# Written, it would read as "no value".
def test_a_value_that_is_the_devices_marker_is_not_written() -> None:
    with pytest.raises(RegisterRangeError):
        encode(-32768, WordFormat(raw_type="int16", invalid_raw=0x8000), "t")


# D15: eight letters name the wire order of all eight bytes.
def test_explicit_permutation_of_eight_bytes_reads_and_writes() -> None:
    form = WordFormat(raw_type="uint64", order="GHEFCDAB")

    assert decode([0xCDEF, 0x89AB, 0x4567, 0x0123], form) == 0x0123456789ABCDEF
    odd = WordFormat(raw_type="uint64", order="BAHGDCFE")
    assert decode(encode(0x0123456789ABCDEF, odd, "t"), odd) == 0x0123456789ABCDEF
    assert encode(0x0123456789ABCDEF, odd, "t")[0] == 0x2301


# D3: a device whose numbers have swapped words still has its text in order.
def test_text_is_not_reversed_where_numbers_have_swapped_words() -> None:
    form = WordFormat(raw_type="string", order="CDAB", registers=4)

    assert encode("ABCD0123", form, "t") == (0x4142, 0x4344, 0x3031, 0x3233)
    with pytest.raises(RegisterRangeError):
        encode("ABCD01234", form, "t")


def test_partial_write_keeps_the_other_bits_and_needs_to_know_them() -> None:
    form = WordFormat(raw_type="bits", argument="4:4")

    assert encode(5, form, "t", current=0xFFFF) == (0xFF5F,)
    with pytest.raises(ValueError, match="shares its register"):
        encode(5, form, "t")
    with pytest.raises(RegisterRangeError):
        encode(16, form, "t", current=0)


def test_a_register_that_is_neither_0_nor_1_is_no_boolean() -> None:
    assert isinstance(decode([2], WordFormat(raw_type="bool")), NotAValue)


@pytest.mark.parametrize(
    "wrong",
    [
        {"raw_type": "uint24"},
        {"order": "ABDC"},
        {"raw_type": "uint32", "order": "ABCDEFGH"},
        {"raw_type": "bit", "argument": "16"},
        {"raw_type": "bits", "argument": "12:8"},
        {"raw_type": "string"},
        {"scale": Fraction(0)},
        {"raw_type": "bool", "scale": Fraction(2)},
        {"raw_type": "uint32", "registers": 1},
    ],
)
def test_a_format_that_cannot_be_read_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        WordFormat(**wrong)  # type: ignore[arg-type]  # wrong on purpose
