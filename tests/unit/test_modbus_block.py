from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from gateway.core.tag import TagDefinition, TagId, TagKind
from gateway.protocols.modbus.block import (
    BlockHead,
    HandOverLayout,
    HandOverOutput,
    compose,
    crc16,
    difference,
    outputs_of,
    parse_answer,
    parse_head,
    successor,
)

PUMP = HandOverOutput(
    definition=TagDefinition(id=TagId("P"), kind=TagKind.REAL, scale=Fraction("0.1")), working_address=4
)
TILT = HandOverOutput(
    definition=TagDefinition(id=TagId("T"), kind=TagKind.INTEGER), working_address=5, signed=True
)
LAYOUT = HandOverLayout(
    unit_id=1,
    outputs=(PUMP, TILT),
    block_address=100,
    status_address=1,
    accepted_address=2,
    reject_address=3,
    owner_address=11,
    epoch_address=12,
)
HEAD = BlockHead(sequence=7, owner=1, epoch=3, lease=9, control_valid=True)
WANTED = (PUMP.value(425), TILT.value(0xFFFE))
OBEYS = [0b011, 7, 0, 425, 0xFFFE, 0, 0, 0, 0, 0, 1, 3]  # registers 1 to 12


# The check value of CRC-16/MODBUS in the catalogue of parametrised CRC algorithms.
def test_checksum_is_crc16_modbus() -> None:
    assert crc16(b"123456789") == 0x4B37


def test_block_carries_its_words_in_the_plcs_order_and_reads_back_the_same() -> None:
    words = compose(HEAD, (425, 0xFFFE))

    assert words[:7] == (7, 1, 3, 9, 1, 425, 0xFFFE)
    assert words[7] == crc16(bytes.fromhex("0007000100030009000101A9FFFE"))
    assert parse_head(words) == HEAD
    assert outputs_of(words) == (425, 0xFFFE)
    assert len(words) == LAYOUT.block_count


def test_sequence_and_lease_leave_out_zero() -> None:
    assert [successor(word) for word in (0, 1, 65534, 65535)] == [1, 2, 65535, 1]


def test_signed_outputs_are_twos_complement_and_nothing_wraps() -> None:
    assert TILT.word(-2) == 0xFFFE
    assert TILT.value(0xFFFE).raw == -2
    for output, raw in ((PUMP, -1), (PUMP, 65536), (TILT, 32768), (TILT, -32769)):
        with pytest.raises(ValueError, match="does not fit"):
            output.word(raw)


def test_the_answer_is_read_in_one_request() -> None:
    assert LAYOUT.answer_span() == (1, 12)
    assert replace(LAYOUT, liveness_address=0).answer_span() == (0, 13)
    assert parse_answer(replace(LAYOUT, liveness_address=0), [42, *OBEYS]).scans == 42


def test_a_plc_that_obeys_differs_in_nothing() -> None:
    assert difference(parse_answer(LAYOUT, OBEYS), HEAD, WANTED) == ""


@pytest.mark.parametrize(
    ("register", "word", "says"),
    [
        (1, 0b010, "local"),
        (1, 0b001, "fallback"),
        (1, 0b111, "fallback"),
        (2, 6, "accepted block 6"),
        (4, 424, "424 counts"),
        (5, 2, "2 counts"),
        (11, 2, "owner 2"),
        (12, 4, "epoch 4"),
    ],
)
def test_every_way_not_to_obey_is_told_apart(register: int, word: int, says: str) -> None:
    registers = list(OBEYS)
    registers[register - 1] = word

    assert says in difference(parse_answer(LAYOUT, registers), HEAD, WANTED)


def test_a_rejection_names_its_reason() -> None:
    registers = [0b001, 6, 4, *OBEYS[3:]]

    assert "in local (code 4)" in difference(parse_answer(LAYOUT, registers), HEAD, WANTED)
