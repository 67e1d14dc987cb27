"""The hand-over block: what its words mean, and what the PLC's answer to one says. Pure.

In registers, from `block_address`: sequence, owner, epoch, lease, control valid, the outputs, checksum.
The PLC copies all outputs in one scan when the checksum is right and the sequence is a later one (S18, S20).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from gateway.core.decision import RegisterValue
from gateway.core.tag import TagDefinition, TagId

_HEAD = 5  # words before the outputs
_SIGN = 0x8000

REJECTIONS = {
    1: "the checksum was wrong",
    2: "this gateway is not the owner granted",
    3: "the epoch is not the one granted",
    4: "the PLC is in local",
    5: "a value is out of the PLC's range",
    6: "control valid was clear",
    7: "the lease word has not moved since the lease ran out",
    8: "its sequence is not later than the one accepted last",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOverOutput:
    """One output of the block: its tag, and the register with the PLC's working value (S22)."""

    definition: TagDefinition
    working_address: int
    signed: bool = False

    def word(self, raw: int) -> int:
        """The register that carries a count; raises ValueError where it would wrap."""
        low, high = (-_SIGN, _SIGN - 1) if self.signed else (0, 0xFFFF)
        if not low <= raw <= high:
            raise ValueError(f"`{self.definition.id}`: {raw} does not fit its register ({low} to {high})")
        return raw & 0xFFFF

    def value(self, word: int) -> RegisterValue:
        """The count a register carries, with its exact engineering value."""
        raw = word - 0x10000 if self.signed and word & _SIGN else word
        return RegisterValue(self.definition.id, raw, Fraction(self.definition.engineering(raw)))


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOverLayout:
    """Where a PLC's hand-over block and its answers lie; addresses count from 0.

    The block is in holding registers; answers and working values in `answer_table`, read in one request.
    `liveness_address` is a counter of the PLC's scans: with it we know when a block has been looked at,
    without it we wait `settle_s`.
    """

    unit_id: int
    outputs: tuple[HandOverOutput, ...]
    block_address: int
    status_address: int
    accepted_address: int
    reject_address: int
    owner_address: int
    epoch_address: int
    liveness_address: int | None = None
    answer_table: Literal["input", "holding"] = "input"
    remote_bit: int = 0
    in_control_bit: int = 1
    fallback_bit: int | None = 2
    settle_s: float = 0.06

    @property
    def block_count(self) -> int:
        """Words of the block."""
        return _HEAD + len(self.outputs) + 1

    def answer_span(self) -> tuple[int, int]:
        """First register and number of registers of the PLC's answer."""
        addresses = [self.status_address, self.accepted_address, self.reject_address]
        addresses += [self.owner_address, self.epoch_address]
        addresses += [output.working_address for output in self.outputs]
        if self.liveness_address is not None:
            addresses.append(self.liveness_address)
        return min(addresses), max(addresses) - min(addresses) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockHead:
    """The words of a block before its outputs."""

    sequence: int
    owner: int
    epoch: int
    lease: int
    control_valid: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlcAnswer:
    """What the PLC reports of itself, read in one request."""

    scans: int | None
    remote: bool
    in_control: bool
    fallback: bool
    accepted: int
    reject: int
    owner: int
    epoch: int
    working: dict[TagId, RegisterValue]


def crc16(data: bytes) -> int:
    """CRC-16/Modbus (polynomial 0x8005 reflected, start 0xFFFF); 0x4B37 for `123456789`."""
    crc = 0xFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xA001 if crc & 1 else 0)
    return crc


def successor(word: int) -> int:
    """The next sequence or lease word; 0 is left out, a PLC starts with it."""
    return word % 0xFFFF + 1


def is_later(sequence: int, than: int) -> bool:
    """Whether a PLC takes it for a later one: ahead by less than half of the circle, so it may wrap."""
    return 0 < (sequence - than) & 0xFFFF < _SIGN


def compose(head: BlockHead, outputs: Sequence[int]) -> tuple[int, ...]:
    """All words of a block, the checksum over the others' big-endian bytes last."""
    words = (head.sequence, head.owner, head.epoch, head.lease, int(head.control_valid), *outputs)
    return (*words, crc16(struct.pack(f">{len(words)}H", *words)))


def parse_head(words: Sequence[int]) -> BlockHead:
    """The head of a block as it lies in the PLC, right or not."""
    sequence, owner, epoch, lease, valid = words[:_HEAD]
    return BlockHead(sequence=sequence, owner=owner, epoch=epoch, lease=lease, control_valid=valid == 1)


def outputs_of(words: Sequence[int]) -> tuple[int, ...]:
    """The output words of a block."""
    return tuple(words[_HEAD:-1])


def parse_answer(layout: HandOverLayout, words: Sequence[int]) -> PlcAnswer:
    """The PLC's answer out of the registers of `answer_span`."""
    first, _ = layout.answer_span()
    status = words[layout.status_address - first]
    scans = None if layout.liveness_address is None else words[layout.liveness_address - first]
    return PlcAnswer(
        scans=scans,
        remote=bool(status >> layout.remote_bit & 1),
        in_control=bool(status >> layout.in_control_bit & 1),
        fallback=layout.fallback_bit is not None and bool(status >> layout.fallback_bit & 1),
        accepted=words[layout.accepted_address - first],
        reject=words[layout.reject_address - first],
        owner=words[layout.owner_address - first],
        epoch=words[layout.epoch_address - first],
        working={o.definition.id: o.value(words[o.working_address - first]) for o in layout.outputs},
    )


def difference(answer: PlcAnswer, head: BlockHead, wanted: Sequence[RegisterValue]) -> str:
    """Why the PLC does not work with the block of this head, in words; empty when it does."""
    if answer.accepted != head.sequence:
        if not answer.reject:
            return f"the PLC has accepted block {answer.accepted}, not {head.sequence}"
        reason = REJECTIONS.get(answer.reject, "for a reason unknown here")
        return f"the PLC rejected block {head.sequence}: {reason} (code {answer.reject})"
    if not (answer.remote and answer.in_control) or answer.fallback:
        where = "its own fallback is in control" if answer.remote else "it is in local now"
        return f"the PLC took the block, but {where}"
    if (answer.owner, answer.epoch) != (head.owner, head.epoch):
        return f"the PLC took the block, but obeys owner {answer.owner} in epoch {answer.epoch}"
    for value in wanted:
        if (found := answer.working[value.tag]).raw != value.raw:
            return f"`{value.tag}`: the PLC works with {found.raw} counts, not {value.raw}"
    return ""
