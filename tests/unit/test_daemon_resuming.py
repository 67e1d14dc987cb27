"""While writes are resumed or an alarm is acknowledged the world moves: what is worse wins (S16, S27)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.core.decision import Mode
from gateway.core.errors import StorageError
from tests.unit.rearming_rig import TANK, Rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A point in shadow, latched, with writes stopped by a person."""
    made = Rig(tmp_path)
    made.state.set_mode(TANK, Mode.SHADOW)
    assert not await made.modes.stop_writes("otto", resume=False)
    await made.modes.latch(made.point, "a leak")
    yield made
    await asyncio.gather(*made.others)


def meanwhile(rig: Rig, part: str, act: object) -> None:
    """Let somebody do something once, while that part of the gateway is waited for."""
    place = getattr(rig, part)

    def once() -> None:
        place.meanwhile = lambda: None
        rig.others.append(asyncio.create_task(act()))  # type: ignore[operator]

    place.meanwhile = once


@pytest.mark.parametrize("part", ["audit", "state"])
async def test_writes_that_are_stopped_while_they_are_resumed_stay_stopped(rig: Rig, part: str) -> None:
    meanwhile(rig, part, lambda: rig.modes.stop_writes("anna", resume=False))
    async with asyncio.timeout(60):
        why = await rig.modes.stop_writes("otto", resume=True)
        await asyncio.gather(*rig.others)
    assert "stopped meanwhile" in why
    assert rig.state.writes_stopped
    assert rig.state.durable.writes_stopped
    assert rig.audit.acts[-1] == ("stop-writes", "anna", {"resume": "false"})


async def test_writes_whose_resuming_cannot_be_kept_stay_stopped_and_so_does_what_was_wrong(rig: Rig) -> None:
    rig.state.problem_now, rig.state.problem = "disk full", "state file was unreadable"
    with pytest.raises(StorageError, match="disk full"):
        await rig.modes.stop_writes("otto", resume=True)
    assert rig.state.writes_stopped
    assert rig.state.problem == "state file was unreadable"
    rig.state.problem_now = ""
    assert not await rig.modes.stop_writes("otto", resume=True)
    assert not rig.state.writes_stopped
    assert not rig.state.durable.writes_stopped


async def test_s16_what_latches_while_an_older_one_is_acknowledged_stays_latched(rig: Rig) -> None:
    meanwhile(rig, "audit", lambda: rig.modes.latch(rig.point, "the checkers differ"))
    async with asyncio.timeout(60):
        why = await rig.modes.acknowledge("point:tank", "otto")
        await asyncio.gather(*rig.others)
    assert "the checkers differ" in why
    assert rig.modes.latched(rig.point) == "the checkers differ"
    assert not rig.reporter.alarms["point:tank"].acknowledged
    assert not await rig.modes.acknowledge("point:tank", "otto")
    assert rig.modes.latched(rig.point) == ""


async def test_s16_an_acknowledgement_that_cannot_be_kept_lets_nothing_go(rig: Rig) -> None:
    rig.state.problem_now = "disk full"
    with pytest.raises(StorageError, match="disk full"):
        await rig.modes.acknowledge("point:tank", "otto")
    assert rig.modes.latched(rig.point) == "a leak"
    assert not rig.reporter.alarms["point:tank"].acknowledged
