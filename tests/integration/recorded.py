"""What is on record: hand-over blocks out of Modbus TCP bytes, decisions and acts out of the audit log."""

from __future__ import annotations

import struct
from pathlib import Path

from gateway.core.clock import SystemClock
from gateway.core.decision import DecisionRecord
from gateway.storage.audit import AuditLog
from gateway.storage.offline import verify_file
from gateway.storage.reading import AuditEvent

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


async def audited(state_dir: Path) -> tuple[list[DecisionRecord], list[AuditEvent]]:
    """Every decision and every act on record, the oldest first; of a gateway that has ended."""
    path = state_dir / "audit.sqlite"
    report = verify_file(path, lambda _seen, _total: None)
    assert report.intact, report
    log = AuditLog(path, SystemClock())
    await log.start()
    try:
        records, acts = await log.recent(10_000), await log.events(10_000)
    finally:
        await log.aclose()
    return [audited.record for audited in reversed(records)], list(reversed(acts))
