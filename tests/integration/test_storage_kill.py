"""kill -9 at any moment loses no acknowledged record: the child prints an id after `append` returned."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from gateway.core.clock import SystemClock
from gateway.storage.audit import AuditLog

pytestmark = pytest.mark.integration

_CHILD = """
import asyncio, sys
from pathlib import Path
from dataclasses import replace
from gateway.core.clock import SystemClock
from gateway.core.decision import DecisionId, DecisionRecord, Mode, PointId, Rejected
from gateway.storage.audit import AuditLog

async def main() -> None:
    audit = AuditLog(Path(sys.argv[1]), SystemClock())
    await audit.start()
    record = DecisionRecord(
        id=DecisionId(""), point=PointId("p"), mode=Mode.ARMED, requested_by="t", received_utc_ns=1,
        outcome=Rejected("full"), proposal=None, written=(), written_by="", findings=(), inputs={},
        generation=1, rule_set_digest="", model_digest="", timings_ms={},
    )
    async def forever(stream: int) -> None:
        number = 0
        while True:
            number += 1
            name = f"{sys.argv[2]}-{stream}-{number}"
            await audit.append(replace(record, id=DecisionId(name)))
            print(name, flush=True)
    await asyncio.gather(*(forever(n) for n in range(8)))

asyncio.run(main())
"""


async def test_every_acknowledged_record_survives_kill_minus_nine(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    acknowledged: list[str] = []
    for life, lines_before_the_kill in enumerate((1, 57, 400)):
        acknowledged += await _append_until_killed(path, life, lines_before_the_kill)

    audit = AuditLog(path, SystemClock())
    await audit.start()
    try:
        report = await audit.verify_chain()
        held = {a.record.id for a in await audit.recent(10_000)}
    finally:
        await audit.aclose()

    assert len(acknowledged) > 400
    assert set(acknowledged) <= held
    assert report.intact
    assert report.rows == len(held)


async def _append_until_killed(path: Path, life: int, lines: int) -> list[str]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CHILD, str(path), str(life), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    seen: list[str] = []
    try:
        async with asyncio.timeout(180):
            while len(seen) < lines:
                line = await child.stdout.readline()
                assert line, "the child ended by itself"
                seen.append(line.decode().strip())
    finally:
        child.send_signal(signal.SIGKILL)
    rest = await child.stdout.read()
    await child.wait()
    # The last line may have been cut by the kill: then nobody was told.
    return seen + [line.decode() for line in rest.split(b"\n")[:-1]]
