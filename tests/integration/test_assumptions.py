"""S16 with everything running: an undeclared leak takes the point out of armed, and keeps it out."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx
import pytest
from asyncua import Client

from gateway.core.clock import SystemClock
from gateway.link.messages import Alarm
from gateway.plantsim.plc import Panel
from gateway.storage.audit import AuditLog
from tests.integration.house import ANSWER_S, POINT, House, tell
from tests.integration.kills import given_up, recovered
from tests.integration.picture import Picture

pytestmark = pytest.mark.integration

LEVEL = "TK1.LT101"
LEAK = 40  # 4 mm/s; the module allows 0.51
SOURCE = f"point:{POINT}"


@pytest.mark.timeout(900)
async def test_s16_an_undeclared_leak_takes_the_point_out_of_armed_until_an_engineer_acknowledges(
    tmp_path: Path,
) -> None:
    async with House(tmp_path, level_m=2.6) as house:
        await house.arm()
        took = await house.until(lambda p: {1, 10} <= windows(p), 30, "windows of 1 and 10 steps")
        tell(f"armed and watched over 10 steps after {took:.1f} s")
        assert not house.picture.seen_alarm_with("assumption")
        await house.panel.set(Panel.LEAK, LEAK)
        leaked_at = time.monotonic()
        took = await house.until(lambda p: p.points[POINT].mode == "advisory", 60, "left armed")
        tell(f"a leak of 4 mm/s: out of armed after {took:.1f} s")
        await house.panel.until(given_up, 5.0)
        alarm = await alarm_of(house)
        assert alarm.cause.startswith(f"broken assumption: `{LEVEL}` lies ")
        assert "the PLC keeps or takes control" in alarm.consequence
        assert "the point cannot be armed before an engineer acknowledges this" in alarm.consequence
        assert f"o3ctl ack {SOURCE}" in alarm.action
        assert list(house.picture.alarms) == [SOURCE]  # one alarm (S28)
        await latched(house)
        await told_everywhere(house)
        await house.panel.set(Panel.LEAK, 0)
        tell(f"the leak ran for {time.monotonic() - leaked_at:.1f} s")
        await latched(house)  # that it is over changes nothing
        await house.stop_daemon()
        restarted_at = time.monotonic()
        await house.start_daemon()
        await house.until(lambda p: bool(p.since(restarted_at)), 60, "decisions after a restart")
        await latched(house)  # nor does a restart
        await house.asked("ack", {"source": SOURCE})
        tell(f"acknowledged; armed again after {await house.arm():.1f} s")
        await house.close()
        assert house.violations() == []
    assert await kinds(house) >= {"assumption", "acknowledge"}


@pytest.mark.timeout(900)
async def test_s16_a_level_that_changed_while_the_link_was_broken_latches_nothing(tmp_path: Path) -> None:
    async with House(tmp_path, level_m=2.6) as house:
        await house.arm()
        await house.until(lambda p: {1, 10} <= windows(p), 30, "windows of 1 and 10 steps")
        house.proxy.black_hole()
        await house.panel.until(given_up, 6.0)
        await house.panel.set(Panel.PRESET_LEVEL_MM, 2000)  # whatever happened meanwhile
        await house.until(lambda p: bool(p.last and p.last.outcome == "undetermined"), 10, "nobody knows")
        house.proxy.resume()
        tell(f"written again {await recovered(house, 30.0):.1f} s after the link came back")
        assert house.picture.mode == "armed"
        await house.until(lambda p: {1, 10} <= windows(p), 30, "the windows filled anew")
        assert counted(house.picture, "trips") == 0
        assert counted(house.picture, "restarts") >= 1
        assert house.picture.mode == "armed"
        assert not house.picture.seen_alarm_with("S16")


def windows(picture: Picture) -> set[int]:
    """Windows in which the level is watched."""
    return {r.window for r in picture.points[POINT].residuals if r.tag == LEVEL}


def counted(picture: Picture, name: str) -> int:
    """A counter of the monitor."""
    return picture.gateway.counters[f"assumptions_{name}"] if picture.gateway is not None else 0


async def latched(house: House) -> None:
    """Nobody can arm the point, and it says why and what to do."""
    answer = await house.ask("mode", {"point": POINT, "mode": "armed"})
    assert not answer.ok
    assert f"cannot be armed: broken assumption: `{LEVEL}` lies " in answer.error
    assert f"then an engineer acknowledges it with `o3ctl ack {SOURCE}`" in answer.error
    assert house.picture.points[POINT].mode != "armed"


async def alarm_of(house: House) -> Alarm:
    await house.until(lambda p: p.seen_alarm_with("broken assumption"), 5, "its alarm")
    return house.picture.alarms[SOURCE]


async def told_everywhere(house: House) -> None:
    """Nodes and metrics tell by how much the band is missed."""
    await house.until(lambda p: counted(p, "trips") == 1, 5, "one trip counted")
    assert counted(house.picture, "lost") == 0
    async with (
        asyncio.timeout(ANSWER_S),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{house.web_port}", timeout=ANSWER_S) as web,
    ):
        while not share_in((await web.get("/metrics")).text):  # noqa: ASYNC110  told within a second
            await asyncio.sleep(0.05)
    async with Client(f"opc.tcp://127.0.0.1:{house.opcua_port}/o3", timeout=ANSWER_S) as client:
        node = client.get_node(f"ns=1;s=DecisionPoints/{POINT}/Assumptions/{LEVEL}/Window10/UsedShare")
        share = await node.read_value()
    tell(f"used share of the band over ten steps, by OPC UA: {share:.2f}")
    assert share > 0


def share_in(metrics: str) -> bool:
    """Whether some of the level's band is said to be used."""
    shown = [line for line in metrics.splitlines() if line.startswith("o3_assumption_used_share{")]
    return any(LEVEL in line and float(line.rsplit(" ", 1)[1]) > 0 for line in shown)


async def kinds(house: House) -> set[str]:
    """Kinds of events in the audit log; the daemon has ended."""
    audit = AuditLog(house.state / "audit.sqlite", SystemClock())
    await audit.start()
    try:
        return {event.kind for event in await audit.events(200)}
    finally:
        await audit.aclose()
