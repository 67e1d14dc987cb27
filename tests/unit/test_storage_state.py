from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.core.decision import Mode, PointId
from gateway.core.errors import StorageError
from gateway.core.tag import TagId
from gateway.storage.state import DurableState, PointMemory

TANK = PointId("buffer-tank")
PUMP = TagId("TK1.P101.SP")


async def test_what_was_flushed_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    state = DurableState(path)
    state.set_mode(TANK, Mode.ARMED, {"rule_set": "sha256:aa"})
    state.confirm(TANK, {PUMP: 125}, at_utc_ns=7)
    state.record_start(5)
    state.stop_writes()
    state.acknowledge("point:buffer-tank")
    await state.flush()

    again = DurableState(path)

    assert again.point(TANK) == PointMemory(
        mode=Mode.ARMED,
        armed_before=True,
        digests={"rule_set": "sha256:aa"},
        last_confirmed={PUMP: 125},
        confirmed_at_utc=7,
    )
    assert again.writes_stopped
    assert again.memory == state.memory
    assert again.problem == ""


def test_an_unknown_point_was_never_armed_and_is_in_shadow(tmp_path: Path) -> None:
    memory = DurableState(tmp_path / "state.json").point(TANK)

    assert memory.mode is Mode.SHADOW
    assert not memory.armed_before


def test_confirming_one_output_keeps_the_others(tmp_path: Path) -> None:
    state = DurableState(tmp_path / "state.json")
    state.confirm(TANK, {PUMP: 125, TagId("H"): 1}, at_utc_ns=1)
    state.confirm(TANK, {PUMP: 130}, at_utc_ns=2)

    assert state.point(TANK).last_confirmed == {PUMP: 130, "H": 1}


def test_leaving_armed_by_a_persons_choice_forgets_that_it_was_armed(tmp_path: Path) -> None:
    state = DurableState(tmp_path / "state.json")
    state.set_mode(TANK, Mode.ARMED, {"rule_set": "a"})
    state.set_mode(TANK, Mode.SHADOW)

    assert not state.point(TANK).armed_before


# S23: unknown history is the worst history. A torn file could have held the kill switch.
@pytest.mark.parametrize("content", [b"", b"{", b'{"starts": "x"}', b'{"format": 99}', b"\xff\xfe"])
async def test_an_unreadable_file_stops_writes_and_is_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(content)

    state = DurableState(path)

    assert state.writes_stopped
    assert "unreadable" in state.problem
    assert (tmp_path / "state.json.unreadable").read_bytes() == content
    assert DurableState(path).writes_stopped  # killed before the first flush
    await state.flush()
    assert DurableState(path).writes_stopped
    assert DurableState(path).problem == ""


def test_starts_are_counted_in_a_window_and_a_stepped_clock_hides_none(tmp_path: Path) -> None:
    state = DurableState(tmp_path / "state.json")
    hour = 3600 * 10**9
    for at in (0, 2 * hour, 2 * hour + 1, 9 * hour):
        state.record_start(at)

    assert state.starts_within(3600, now_utc_ns=3 * hour) == 3
    for at in range(500):
        state.record_start(at)
    assert len(state.memory.starts) == 64


async def test_a_failed_flush_is_a_storage_error_and_leaves_the_old_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    state = DurableState(path)
    state.stop_writes()
    await state.flush()
    (tmp_path / ".state.json.tmp").mkdir()
    state.resume_writes()

    with pytest.raises(StorageError, match="cannot be written"):
        await state.flush()

    assert DurableState(path).writes_stopped
    (tmp_path / ".state.json.tmp").rmdir()
    await state.flush()
    assert not DurableState(path).writes_stopped


async def test_concurrent_flushes_share_one_write_and_all_are_durable(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    state = DurableState(path)

    async def confirm(number: int) -> None:
        state.confirm(TANK, {TagId(f"T{number}"): number}, at_utc_ns=number)
        await state.flush()

    await asyncio.gather(*(confirm(n) for n in range(20)))

    assert len(DurableState(path).point(TANK).last_confirmed) == 20
    assert not (tmp_path / ".state.json.tmp").exists()


def test_an_acknowledgement_ends_with_its_alarm(tmp_path: Path) -> None:
    state = DurableState(tmp_path / "state.json")
    state.acknowledge("audit")
    state.acknowledge("audit")
    assert state.memory.acknowledged == ["audit"]
    state.forget_acknowledgement("audit")
    assert state.memory.acknowledged == []
