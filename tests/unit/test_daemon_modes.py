"""Modes and the kill switch: recorded before they count, disarming at once (S23, S24, S27)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from gateway.core.clock import Deadline, FakeClock
from gateway.core.decision import Mode, PointId
from gateway.core.errors import LinkBrokenError, StorageError
from gateway.core.health import PartHealth
from gateway.core.quality import StatusCode
from gateway.daemon.binding import Bindings
from gateway.daemon.modes import Modes
from gateway.daemon.reporting import Reporter
from gateway.pipeline.point import Point
from gateway.storage.audit import AuditLog
from gateway.storage.state import DurableState
from tests.fakes.pipeline import LEVEL, House

TANK = PointId("tank")


class SignedSheet:
    """A binding sheet that stands, until `void` says why it does not."""

    void = ""

    def why_not(self, _point: PointId) -> str:
        return self.void

    def digest(self, _point: PointId) -> str:
        return "sheet-1"


class Plc:
    """What the PLC says against being taken over."""

    says = ""

    async def why_not(self, _point: Point) -> str:
        return self.says


@dataclass
class Rig:
    house: House
    modes: Modes
    audit: AuditLog
    state: DurableState
    reporter: Reporter
    plc: Plc

    async def events(self) -> list[tuple[str, str]]:
        return [(event.kind, event.who) for event in await self.audit.events(20)]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    house, clock = House(), FakeClock()
    audit, state = AuditLog(tmp_path / "audit.sqlite", clock), DurableState(tmp_path / "state.json")
    changed: list[Point] = []
    plc = Plc()
    reporter = Reporter(
        clock=clock,
        definitions=house.store.definitions,
        audit=audit,
        state=state,
        publish_decision=lambda _view: None,
        publish_alarm=lambda _alarm: None,
        publish_point=changed.append,
    )
    modes = Modes(
        clock=clock,
        points={TANK: house.point},
        rules=house.rules,
        store=house.store,
        writer=house.writer,
        audit=audit,
        state=state,
        reporter=reporter,
        changed=changed.append,
        model_digest=lambda _point: "model-1",
        bindings=cast("Bindings", SignedSheet()),
        taken_over=plc.why_not,
    )
    house.point.mode = Mode.SHADOW
    await audit.start()
    yield Rig(house, modes, audit, state, reporter, plc)
    await audit.aclose()


async def test_arming_is_recorded_and_asks_for_a_first_write_of_the_value_in_force(rig: Rig) -> None:
    assert not await rig.modes.set_mode(rig.house.point, Mode.ARMED, "anna")
    assert rig.house.point.mode is Mode.ARMED
    assert rig.house.point.first_write_due
    assert ("mode", "anna") in await rig.events()
    memory = rig.state.point(TANK)
    assert memory.armed_before
    assert memory.digests == {"rule_set": "digest-1", "model": "model-1", "binding": "sheet-1"}


async def test_what_may_not_be_armed_stays_as_it_was_and_says_why(rig: Rig) -> None:
    rig.house.sample(LEVEL, 2.0, StatusCode.Bad)
    why = await rig.modes.set_mode(rig.house.point, Mode.ARMED, "anna")
    assert why == "`tank` cannot be armed: input `LT` is Bad"
    assert rig.house.point.mode is Mode.SHADOW
    assert await rig.events() == []


async def test_disarming_gives_the_plant_back_at_once(rig: Rig) -> None:
    await rig.modes.set_mode(rig.house.point, Mode.ARMED, "anna")
    await rig.modes.set_mode(rig.house.point, Mode.ADVISORY, "anna")
    assert rig.house.sink.released == 1
    assert not rig.state.point(TANK).armed_before


async def test_disarming_does_not_wait_for_a_link_that_is_gone(rig: Rig) -> None:
    async def broken(deadline: Deadline) -> None:
        del deadline
        raise LinkBrokenError("plc", "reset")

    await rig.modes.set_mode(rig.house.point, Mode.ARMED, "anna")
    rig.house.sink.release = broken  # type: ignore[method-assign]
    assert not await rig.modes.set_mode(rig.house.point, Mode.SHADOW, "anna")
    assert rig.house.point.mode is Mode.SHADOW


async def test_the_kill_switch_is_durable_and_forbids_arming_until_resumed(rig: Rig, tmp_path: Path) -> None:
    await rig.modes.set_mode(rig.house.point, Mode.ARMED, "anna")
    await rig.modes.stop_writes("otto", resume=False)
    assert rig.house.sink.released == 1
    assert DurableState(tmp_path / "state.json").writes_stopped
    assert "kill switch" in await rig.modes.set_mode(rig.house.point, Mode.ARMED, "anna")
    await rig.modes.stop_writes("otto", resume=True)
    assert not await rig.modes.set_mode(rig.house.point, Mode.ARMED, "anna")


class FullDisk:
    """An audit log that takes nothing more."""

    async def append_event(self, *_: object) -> None:
        raise StorageError("audit log cannot be appended to: database or disk is full")

    def health(self) -> PartHealth:
        return PartHealth("audit", False, "audit log cannot be appended to")  # noqa: FBT003


async def test_an_armed_point_that_may_not_write_says_what_forbids_it(rig: Rig) -> None:
    assert not await rig.modes.set_mode(rig.house.point, Mode.ARMED, "anna")
    assert not rig.modes.cannot(rig.house.point)
    await rig.modes.stop_writes("otto", resume=False)
    stopped = "writes are stopped; resume with `o3ctl stop-writes --resume`"
    assert rig.modes.cannot(rig.house.point) == stopped
    rig.modes._audit = cast("AuditLog", FullDisk())
    rig.state.latch(TANK, "a leak")
    said = rig.modes.cannot(rig.house.point)
    assert said.startswith(f"{stopped}; audit log cannot be appended to; cannot be armed: a leak")
    rig.house.point.mode = Mode.SHADOW
    assert rig.modes.cannot(rig.house.point).startswith("cannot be armed: a leak")


# A person who stops writes must learn that they are stopped, also where nothing can be recorded of it.
async def test_the_kill_switch_holds_on_a_full_disk_and_says_so(rig: Rig, tmp_path: Path) -> None:
    await rig.modes.set_mode(rig.house.point, Mode.ARMED, "anna")
    rig.modes._audit = cast("AuditLog", FullDisk())
    with pytest.raises(StorageError, match=r"^writes are stopped, but the audit log does not have it"):
        await rig.modes.stop_writes("otto", resume=False)
    assert rig.house.sink.released == 1
    assert DurableState(tmp_path / "state.json").writes_stopped


# S23: else the next start would go back to armed by itself.
async def test_disarming_on_a_full_disk_is_in_force_and_kept_over_a_restart(rig: Rig, tmp_path: Path) -> None:
    await rig.modes.set_mode(rig.house.point, Mode.ARMED, "anna")
    rig.modes._audit = cast("AuditLog", FullDisk())
    with pytest.raises(StorageError, match=r"^`tank` is shadow, but the audit log does not have it"):
        await rig.modes.set_mode(rig.house.point, Mode.SHADOW, "anna")
    assert (rig.house.point.mode, rig.house.point.blocked) == (Mode.SHADOW, "mode is shadow")
    assert not DurableState(tmp_path / "state.json").point(TANK).armed_before


# S16, S19: the gateway's own disarming neither fails nor takes its caller with it.
async def test_what_may_not_stay_armed_is_latched_on_a_full_disk_too(rig: Rig, tmp_path: Path) -> None:
    await rig.modes.set_mode(rig.house.point, Mode.ARMED, "anna")
    rig.modes._audit = cast("AuditLog", FullDisk())
    await rig.modes.disarm(rig.house.point, "`P.SP` became 70 without a request")
    assert rig.house.point.mode is Mode.ADVISORY
    rig.house.point.mode = Mode.ARMED
    await rig.modes.latch(rig.house.point, "a leak")
    kept = DurableState(tmp_path / "state.json").point(TANK)
    assert (kept.latched, kept.armed_before) == ("a leak", False)


# S19
async def test_outputs_changed_while_we_were_away_end_rearming_on_a_full_disk_too(rig: Rig) -> None:
    await rig.modes.set_mode(rig.house.point, Mode.ARMED, "anna")
    rig.modes._audit = cast("AuditLog", FullDisk())
    await rig.modes.unrequested(rig.house.point, "`P.SP` became 70")
    assert rig.house.point.mode is Mode.SHADOW
    assert "unrequested: `P.SP` became 70" in rig.reporter.alarms["point:tank"].cause


async def test_a_state_that_cannot_be_written_is_told_beside_the_log(rig: Rig) -> None:
    async def full() -> None:
        raise StorageError("state file cannot be written: full")

    rig.modes._state.flush = full  # type: ignore[method-assign]
    with pytest.raises(StorageError, match=r"a restart would not know it .state file cannot be written"):
        await rig.modes.stop_writes("otto", resume=False)


async def test_s19_an_unrequested_change_ends_in_advisory_with_an_alarm(rig: Rig) -> None:
    await rig.modes.set_mode(rig.house.point, Mode.ARMED, "anna")
    await rig.modes.disarm(rig.house.point, "`P.SP` became 70 without a request")
    assert rig.house.point.mode is Mode.ADVISORY
    assert "without a request" in rig.reporter.alarms["point:tank"].cause
    assert not await rig.modes.acknowledge("point:tank", "otto")
    assert rig.reporter.alarms["point:tank"].acknowledged


async def test_acknowledging_nothing_names_what_stands(rig: Rig) -> None:
    assert await rig.modes.acknowledge("point:tank", "otto") == (
        "no alarm stands for `point:tank`; standing: none"
    )


async def test_stopping_releases_first_and_forgets_no_mode(rig: Rig) -> None:
    await rig.modes.set_mode(rig.house.point, Mode.ARMED, "anna")
    async with asyncio.timeout(60):
        await rig.modes.release_all()
    assert rig.house.sink.released == 1
    assert rig.state.point(TANK).armed_before  # so that the next start may arm again (S23)


async def test_s26_no_point_is_armed_without_a_binding_sheet_that_stands(rig: Rig) -> None:
    rig.modes._bindings.void = "no binding sheet is signed"  # type: ignore[attr-defined]  # the fake
    why = await rig.modes.set_mode(rig.house.point, Mode.ARMED, "anna")
    assert why == "`tank` cannot be armed: no binding sheet is signed"
    assert rig.house.point.mode is Mode.SHADOW
    assert not await rig.modes.set_mode(rig.house.point, Mode.ADVISORY, "anna")  # any other mode may be had


async def test_what_is_latched_stays_unarmed_over_a_restart_until_it_is_acknowledged(
    rig: Rig, tmp_path: Path
) -> None:
    await rig.modes.set_mode(rig.house.point, Mode.ARMED, "anna")
    await rig.modes.latch(rig.house.point, "the two checkers differ")
    assert rig.house.point.mode is Mode.ADVISORY
    assert rig.house.sink.released == 1
    remembered = DurableState(tmp_path / "state.json").point(TANK)
    assert (remembered.latched, remembered.armed_before) == ("the two checkers differ", False)
    why = await rig.modes.set_mode(rig.house.point, Mode.ARMED, "anna")
    assert "then an engineer acknowledges it with `o3ctl ack point:tank`" in why
    rig.reporter.alarms.clear()  # as after a restart
    rig.modes.recall()
    assert rig.reporter.alarms["point:tank"].active
    assert "before an engineer acknowledges this" in rig.reporter.alarms["point:tank"].consequence
    assert not await rig.modes.acknowledge("point:tank", "otto")
    assert not await rig.modes.set_mode(rig.house.point, Mode.ARMED, "anna")


async def test_s22_the_plc_is_asked_before_a_point_is_armed_and_its_no_counts(rig: Rig) -> None:
    rig.plc.says = "the PLC obeys owner 2 in epoch 1"
    why = await rig.modes.set_mode(rig.house.point, Mode.ARMED, "anna")
    assert why == "`tank` cannot be armed: the PLC obeys owner 2 in epoch 1"
    assert rig.house.point.mode is Mode.SHADOW


async def test_s19_what_was_changed_while_we_were_away_is_told_audited_and_ends_rearming(rig: Rig) -> None:
    rig.state.set_mode(TANK, Mode.ARMED)
    await rig.modes.unrequested(rig.house.point, "`P.SP` is at 700 counts")
    assert rig.reporter.alarms["point:tank"].cause == "unrequested: `P.SP` is at 700 counts"
    assert ("unrequested", "gateway") in await rig.events()
    assert not rig.state.point(TANK).armed_before
    assert rig.house.point.mode is Mode.SHADOW


async def test_s12_too_many_repairs_are_an_alarm_and_advisory_until_a_person_arms_again(rig: Rig) -> None:
    point = rig.house.point

    def mode() -> Mode:
        return point.mode

    assert not await rig.modes.set_mode(point, Mode.ARMED, "anna")
    await rig.modes.limit_repairs()
    assert mode() is Mode.ARMED
    point.repairs.too_many = "61 repairs of proposals within 300 s, and at most 60 are allowed"
    await rig.modes.limit_repairs()
    assert mode() is Mode.ADVISORY
    assert rig.house.sink.released == 1
    assert rig.reporter.alarms["point:tank"].cause == point.repairs.too_many
    assert (await rig.events()).count(("mode", "gateway")) == 1
    assert not rig.state.point(TANK).armed_before, "nor does it come back by itself after a start"
    await rig.modes.limit_repairs()
    assert (await rig.events()).count(("mode", "gateway")) == 1
    assert not await rig.modes.set_mode(point, Mode.ARMED, "anna")
    assert not point.repairs.too_many
    await rig.modes.limit_repairs()
    assert mode() is Mode.ARMED


async def test_s16_a_latch_can_be_released_though_the_alarm_of_before_was_acknowledged(rig: Rig) -> None:
    point = rig.house.point
    await rig.modes.set_mode(point, Mode.ARMED, "anna")
    point.alarm.trip("decisions are undetermined", 0.0)
    rig.reporter.alarm_changed(point)
    assert not await rig.modes.acknowledge("point:tank", "otto")
    await rig.modes.latch(point, "broken assumption (S16): whatever")
    alarm = rig.reporter.alarms["point:tank"]
    assert (alarm.cause, alarm.acknowledged) == ("broken assumption (S16): whatever", False)
    point.alarm.judge("", 1e9, suppressed=True)  # it is over: it stands all the same
    rig.reporter.alarm_changed(point)
    assert rig.modes.holds("point:tank") == "broken assumption (S16): whatever"
    assert not await rig.modes.acknowledge("point:tank", "anna")
    assert rig.modes.holds("point:tank") == ""
