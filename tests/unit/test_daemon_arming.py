"""While arming is being recorded the world moves: any path may disarm, and disarming wins (S23, S27)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gateway.core.decision import Mode
from gateway.core.errors import StorageError
from gateway.core.quality import StatusCode
from tests.fakes.pipeline import LEVEL
from tests.unit.rearming_rig import DIGESTS, TANK, Rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A point in shadow that no start would arm."""
    made = Rig(tmp_path)
    made.state.set_mode(TANK, Mode.SHADOW)
    yield made
    await asyncio.gather(*made.others)


def _disarmed(rig: Rig) -> None:
    rig.others.append(asyncio.create_task(rig.modes.set_mode(rig.point, Mode.ADVISORY, "otto")))


def _latched(rig: Rig) -> None:
    rig.others.append(asyncio.create_task(rig.modes.latch(rig.point, "the checkers differ")))


def _stopped(rig: Rig) -> None:
    rig.others.append(asyncio.create_task(rig.modes.stop_writes("otto", resume=False)))


def _bad(rig: Rig) -> None:
    rig.house.sample(LEVEL, 2.0, StatusCode.Bad)


HAPPENS = pytest.mark.parametrize(
    ("happens", "words"),
    [
        (_disarmed, "it was set to advisory meanwhile"),
        (_latched, "the checkers differ; find the cause"),
        (_stopped, "writes are stopped by the kill switch"),
        (_bad, "input `LT` is Bad"),
    ],
    ids=["disarmed", "latched", "stopped", "input"],
)


async def armed(rig: Rig) -> str:
    async with asyncio.timeout(60):
        return await rig.modes.set_mode(rig.point, Mode.ARMED, "anna")


def arrange(rig: Rig, part: str, happens: Callable[[Rig], None]) -> None:
    """Let it happen once, while that part of the gateway is waited for."""
    place = getattr(rig, part)

    def once() -> None:
        place.meanwhile = lambda: None
        happens(rig)

    place.meanwhile = once


@HAPPENS
@pytest.mark.parametrize("part", ["plc", "audit", "state"])
async def test_s23_what_forbids_arming_meanwhile_is_obeyed_and_no_start_arms_it(
    rig: Rig, happens: Callable[[Rig], None], words: str, part: str
) -> None:
    arrange(rig, part, happens)
    why = await armed(rig)
    await asyncio.gather(*rig.others)
    assert why.startswith(f"`tank` cannot be armed: {words}")
    assert rig.point.mode is not Mode.ARMED
    assert Mode.ARMED not in rig.published
    memory = rig.state.point(TANK)
    assert (memory.mode, memory.armed_before) == (rig.point.mode, False)
    assert TANK not in rig.state.durable.points or rig.state.durable.points[TANK] == memory


@pytest.mark.parametrize("part", ["audit", "state"])
async def test_s23_the_audit_log_says_that_it_was_not_armed_after_all(rig: Rig, part: str) -> None:
    arrange(rig, part, _bad)
    await armed(rig)
    assert rig.audit.acts == [
        ("mode", "anna", {"point": TANK, "from": "shadow", "to": "armed"}),
        ("mode", "gateway", {"point": TANK, "to": "shadow", "why": "input `LT` is Bad"}),
    ]


async def test_s23_arming_that_could_not_be_kept_is_not_remembered_by_the_next_flush(rig: Rig) -> None:
    rig.state.problem_now = "disk full"
    with pytest.raises(StorageError, match="disk full"):
        await armed(rig)
    assert (rig.point.mode, rig.published) == (Mode.SHADOW, [])
    assert (rig.state.point(TANK).mode, rig.state.point(TANK).armed_before) == (Mode.SHADOW, False)


async def test_s23_arming_that_was_given_up_is_not_remembered(rig: Rig) -> None:
    waiting, never = asyncio.Event(), asyncio.Event()

    async def stuck() -> None:
        waiting.set()
        await never.wait()

    rig.state.flush = stuck  # type: ignore[method-assign]
    arming = asyncio.create_task(rig.modes.set_mode(rig.point, Mode.ARMED, "anna"))
    async with asyncio.timeout(60):
        await waiting.wait()
    arming.cancel()
    await asyncio.gather(arming, return_exceptions=True)
    assert not rig.state.point(TANK).armed_before


async def test_a_point_that_stays_armed_keeps_under_what_it_was_armed(rig: Rig) -> None:
    assert not await armed(rig)
    rig.state.problem_now = "disk full"
    with pytest.raises(StorageError):
        await armed(rig)
    assert rig.point.mode is Mode.ARMED
    memory = rig.state.point(TANK)
    assert (memory.armed_before, memory.digests) == (True, DIGESTS)


async def test_a_mode_that_was_left_before_forbids_no_arming(rig: Rig) -> None:
    assert not await rig.modes.set_mode(rig.point, Mode.ADVISORY, "otto")
    assert not await armed(rig)
    assert rig.point.mode is Mode.ARMED


async def test_peoples_acts_are_in_the_audit_log_word_for_word(rig: Rig) -> None:
    assert not await armed(rig)
    assert rig.point.blocked == ""
    assert not await rig.modes.set_mode(rig.point, Mode.ADVISORY, "otto")
    assert not await rig.modes.stop_writes("anna", resume=False)
    assert not await rig.modes.stop_writes("anna", resume=True)
    await rig.modes.unrequested(rig.point, "`P.SP` became 70")
    assert not await rig.modes.acknowledge("point:tank", "otto")
    assert rig.audit.acts == [
        ("mode", "anna", {"point": TANK, "from": "shadow", "to": "armed"}),
        ("mode", "otto", {"point": TANK, "from": "armed", "to": "advisory"}),
        ("stop-writes", "anna", {"resume": "false"}),
        ("stop-writes", "anna", {"resume": "true"}),
        ("unrequested", "gateway", {"point": TANK, "why": "`P.SP` became 70"}),
        ("mode", "gateway", {"point": TANK, "from": "advisory", "to": "shadow"}),
        ("acknowledge", "otto", {"source": "point:tank", "cause": "unrequested: `P.SP` became 70"}),
    ]


async def test_an_alarm_of_no_point_is_acknowledged_as_it_stands(rig: Rig) -> None:
    told = {"cause": "away", "consequence": "nothing new", "action": "mount it"}
    rig.reporter.raise_alarm("folder:constraints", active=True, acknowledged=False, **told)
    assert rig.modes.holds("folder:constraints") == ""
    assert not await rig.modes.acknowledge("folder:constraints", "otto")
    alarm = rig.reporter.alarms["folder:constraints"]
    assert (alarm.active, alarm.acknowledged) == (True, True)
    assert {name: getattr(alarm, name) for name in told} == told


async def test_who_acknowledges_nothing_is_told_all_that_stands(rig: Rig) -> None:
    for source in ("folder:constraints", "audit"):
        rig.reporter.raise_alarm(
            source, active=True, acknowledged=False, cause="it", consequence="so", action="mend it"
        )
    said = "no alarm stands for `point:tank`; standing: `audit`, `folder:constraints`"
    assert await rig.modes.acknowledge("point:tank", "otto") == said


# S27: an engineer agreed that another model goes on; what was armed counts with that one after a start.
@pytest.mark.parametrize("mode", [Mode.ARMED, Mode.SHADOW])
async def test_s23_agreeing_to_another_model_counts_only_for_an_armed_point(rig: Rig, mode: Mode) -> None:
    rig.point.mode = mode
    await rig.modes.armed_under(rig.point)
    assert rig.state.point(TANK).armed_before is (mode is Mode.ARMED)


async def test_what_was_armed_again_by_itself_has_nothing_against_it(rig: Rig) -> None:
    assert await rig.modes.rearm(rig.point, lambda: "") == ""
    assert rig.point.mode is Mode.ARMED


async def test_s16_what_is_latched_names_who_must_do_what(rig: Rig) -> None:
    rig.state.latch(TANK, "the checkers differ")
    assert rig.modes.unarmable(rig.point) == (
        "the checkers differ; find the cause, then an engineer acknowledges it with `o3ctl ack point:tank`"
    )


async def test_what_can_be_recorded_nowhere_is_in_force_and_says_so(rig: Rig) -> None:
    rig.audit.problem, rig.state.problem_now = "full", "full, too"
    said = (
        r"^writes are stopped, but the audit log does not have it \(full\) and a restart would not know it "
    )
    with pytest.raises(StorageError, match=said + r"\(full, too\)$"):
        await rig.modes.stop_writes("otto", resume=False)
    assert rig.state.writes_stopped
