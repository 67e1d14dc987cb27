"""Hand-over blocks out of recorded Modbus TCP bytes: what really went to the PLC."""

from __future__ import annotations

import struct

SEQUENCE, LEASE, CONTROL_VALID, PUMP, HEATER, MIXER = 0, 3, 4, 5, 6, 7
_BLOCK_ADDRESS, _BLOCK_WORDS = 100, 9
_WRITE_REGISTERS = 16


def blocks(sent: bytes) -> list[tuple[int, ...]]:
    """Every whole write of the hand-over block in a stream of requests, in order.

    After a cut request the stream goes on somewhere behind it: reading resumes at the next plausible header.
    """
    found: list[tuple[int, ...]] = []
    at = 0
    while at + 8 <= len(sent):
        _, protocol, length, unit, function = struct.unpack_from(">HHHBB", sent, at)
        if (
            protocol != 0
            or not 2 <= length <= 256
            or unit not in {0, 1, 255}
            or function not in {3, 4, 6, 16}
        ):
            at += 1
            continue
        body = sent[at + 8 : at + 6 + length]
        if function == _WRITE_REGISTERS and len(body) >= 5 + 2 * _BLOCK_WORDS:
            address, count = struct.unpack_from(">HH", body)
            if (address, count) == (_BLOCK_ADDRESS, _BLOCK_WORDS):
                found.append(struct.unpack_from(f">{_BLOCK_WORDS}H", body, 5))
        at += 6 + length
    return found
