"""Modbus requests answered as the specification says, by every function code the plant serves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.plantsim.modbus_pdu import respond
from gateway.plantsim.plc import SoftPlc
from gateway.plantsim.units import IDENTITY, units_of


def plc_answer(request: str, plc: SoftPlc | None = None, unit: int = 1) -> str:
    units = units_of(SoftPlc(seed=1) if plc is None else plc)
    return respond(units.get(unit), bytes.fromhex(request), IDENTITY).hex(" ")


@pytest.mark.parametrize(
    ("request_hex", "unit", "answer"),
    [
        ("03 0069 0003", 1, "03 06 01 90 00 00 00 01"),
        ("06 0064 1234", 1, "06 00 64 12 34"),
        ("10 0064 0002 04 0001 0002", 1, "10 00 64 00 02"),
        ("16 0069 00f2 0025", 1, "16 00 69 00 f2 00 25"),
        ("17 0064 0002 0064 0001 02 00ff", 1, "17 04 00 ff 00 00"),
        ("01 0000 0002", 2, "01 01 01"),
        ("05 0001 ff00", 2, "05 00 01 ff 00"),
        ("0f 0000 0002 01 03", 2, "0f 00 00 00 02"),
        ("02 0000 0004", 1, "02 01 05"),
        ("2b 0e 01 00", 1, None),
        # exceptions
        ("07", 1, "87 01"),
        ("2b 0d 01 00", 1, "ab 01"),
        ("63 00", 1, "e3 01"),
        ("03 0063 0001", 1, "83 02"),
        ("03 0069 0005", 1, "83 02"),
        ("04 000d 0001", 1, "84 02"),
        ("04 ffff 0002", 1, "84 02"),
        ("01 0000 0001", 1, "81 02"),
        ("06 0063 0001", 1, "86 02"),
        ("10 006c 0002 04 0001 0002", 1, "90 02"),
        ("2b 0e 04 09", 1, "ab 02"),
        ("03 0064 0000", 1, "83 03"),
        ("03 0064 007e", 1, "83 03"),
        ("03 0064", 1, "83 03"),
        ("10 0064 0002 03 0001 00", 1, "90 03"),
        ("10 0064 0000 00", 1, "90 03"),
        ("10 0064 0002 04 0001", 1, "90 03"),
        ("0f 0000 0009 01 03", 2, "8f 03"),
        ("05 0000 0001", 2, "85 03"),
        ("2b 0e 05 00", 1, "ab 03"),
        ("03 0064 0001", 9, "83 0b"),
    ],
)
def test_each_request_has_the_specified_answer(request_hex: str, unit: int, answer: str | None) -> None:
    given_answer = plc_answer(request_hex, unit=unit)
    if answer is None:
        assert bytes.fromhex(given_answer).endswith(b"\x02\x031.0")
    else:
        assert given_answer == answer


def test_mask_write_follows_the_specifications_example() -> None:
    plc = SoftPlc(seed=1)
    plc.block[5] = 0x12
    plc_answer("16 0069 00f2 0025", plc)
    assert plc.block[5] == 0x17


def test_a_refused_write_changes_no_word_of_the_block() -> None:
    plc = SoftPlc(seed=1)
    before = list(plc.block)
    assert plc_answer("10 006b 0003 06 0001 0002 0003", plc) == "90 02"
    assert plc_answer("17 006c 0002 0064 0001 02 00ff", plc) == "97 02"
    assert plc.block == before


def test_coils_of_the_panel_are_its_first_two_words() -> None:
    plc = SoftPlc(seed=1)
    plc_answer("0f 0000 0002 01 02", plc, unit=2)
    assert plc.panel[:2] == [0, 1]
    assert plc_answer("05 0002 ff00", plc, unit=2) == "85 02"


@given(pdu=st.binary(min_size=1, max_size=253), unit=st.sampled_from([1, 2]))
def test_no_request_breaks_the_server(pdu: bytes, unit: int) -> None:
    answer = respond(units_of(SoftPlc(seed=1))[unit], pdu, IDENTITY)
    assert answer[0] & 0x7F == pdu[0] & 0x7F
    assert 2 <= len(answer) <= 253
