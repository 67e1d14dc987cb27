"""Faults of the running demo: each ends in no unsafe working value, the PLC's own fallback and recovery."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.link.messages import DecisionView
from gateway.plantsim.plc import Force, Panel
from gateway.plantsim.scan_log import read_scans
from tests.integration.house import POINT, House, tell
from tests.integration.kills import LEASE_S, given_up, kill_daemon, kill_workers, recovered
from tests.integration.prober import Prober
from tests.integration.recorded import CONTROL_VALID, HEATER, MIXER, blocks

pytestmark = pytest.mark.integration

ROUNDS = 3  # `python -m tests.bench faults` has 20, and the daemon's too
WORKER_BAR_S = 0.83
DAEMON_BAR_S = 5.0
WRITE = bytes((1, 16, 0, 100))  # unit, function and address of a hand-over write


@pytest.mark.timeout(900)
async def test_killed_processes_are_replaced_and_the_plant_stays_safe(tmp_path: Path) -> None:
    async with House(tmp_path) as house:
        await house.arm()
        prober = Prober(house.state / "run" / "o3.sock", POINT)
        async with prober.probing():
            await prober.next_correct(time.monotonic(), 10.0)
            for part in ("solver", "engine"):
                tell((await kill_workers(house, prober, part, ROUNDS, tell)).summary(WORKER_BAR_S))
                tell(f"all as before after {await recovered(house):.2f} s")
            tell((await kill_daemon(house, prober, 1, tell)).summary(DAEMON_BAR_S))
        await house.close()
        judged(house)


@pytest.mark.timeout(900)
async def test_faults_of_the_link_and_of_the_plc_end_in_its_fallback_and_heal(tmp_path: Path) -> None:
    async with House(tmp_path) as house:
        await house.arm()
        for fault in (cut_link, black_holed, frozen_plc, forced_sensor, switched_to_local):
            started = time.monotonic()
            await fault(house)
            tell(f"{fault.__name__}: {time.monotonic() - started:.1f} s")
        await house.close()
        judged(house)


async def cut_link(house: House) -> None:
    """The link is cut at some bytes of a hand-over write; all of them: tests of the Modbus client."""
    took: list[float] = []
    for count in (1, 8, 19, 30, 31):
        house.proxy.cut_after(count, trigger=WRITE)
        async with asyncio.timeout(15):
            await house.proxy.cut.wait()
        house.proxy.resume()
        took.append(await recovered(house, 20.0))
    tell(f"link cut inside a write: next confirmed write after {', '.join(f'{s:.2f} s' for s in took)}")


async def black_holed(house: House) -> None:
    """Everything is swallowed both ways, connections stay open."""
    house.proxy.black_hole()
    fell_back = await house.panel.until(given_up, LEASE_S + 2.0)
    await house.until(lambda p: bool(p.last and p.last.outcome == "undetermined"), 10, "nobody knows")
    house.proxy.resume()
    took = await recovered(house)
    tell(f"black hole: PLC's own control after {fell_back:.2f} s, recovered {took:.2f} s after its end")


async def frozen_plc(house: House) -> None:
    """S14: registers answer and the liveness counter stands; the control logic behind them goes on."""
    await house.panel.set(Panel.FREEZE, 1)
    at = time.monotonic()
    await house.until(lambda p: any(stale(view) for view in p.since(at)), 10, "stale inputs are not used")
    stale_at = time.monotonic()
    await house.until(lambda p: len(p.since(stale_at)) >= 5, 10, "five decisions")
    await house.until(lambda _p: not _works_for_us(house), 10, "the PLC's own control, by its own record")
    assert not any(view.setpoints for view in house.picture.since(stale_at))
    await house.until(lambda p: any(alarm.active for alarm in p.alarms.values()), 5, "an alarm (S28)")
    await house.panel.set(Panel.FREEZE, 0)
    tell(f"frozen PLC: recovered {await recovered(house):.2f} s after its end")


def _works_for_us(house: House) -> bool:
    """What the PLC recorded last, a second ago at most: its registers stand."""
    return list(read_scans(house.scan_log))[-1].in_control


def stale(view: DecisionView) -> bool:
    return view.outcome == "undetermined" and "Uncertain" in view.reason


async def forced_sensor(house: House) -> None:
    """S15: a forced level is no plain Good; control-valid is cleared at once, not only by the lease."""
    at, count = time.monotonic(), len(written(house))
    await house.panel.set(Panel.FORCE, Force.LEVEL.value)
    fell_back = await house.panel.until(given_up, LEASE_S)
    await house.until(lambda _p: any(not b[CONTROL_VALID] for b in written(house)[count:]), 5, "given back")
    await house.until(lambda p: any(forced(view) for view in p.since(at)), 5, "undetermined because of it")
    await house.panel.set(Panel.FORCE, 0)
    took = await recovered(house)
    tell(f"forced level: PLC's own control after {fell_back:.2f} s, recovered {took:.2f} s after its end")


def forced(view: DecisionView) -> bool:
    return view.outcome == "undetermined" and "`TK1.LT101` is Uncertain" in view.reason


async def switched_to_local(house: House) -> None:
    """S17: an operator takes the plant; the gate closes; nothing fights the operator's switch."""
    await house.panel.set(Panel.REMOTE, 0)
    await house.panel.until(given_up, 1.0)
    await house.until(lambda p: not p.in_control, 5, "local seen")
    at, count = time.monotonic(), len(written(house))
    await house.until(lambda p: len(p.since(at)) >= 2, 5, "two decisions")
    assert [block for block in written(house)[count:] if block[CONTROL_VALID]] == []
    await house.panel.set(Panel.REMOTE, 1)
    tell(f"local: recovered {await recovered(house):.2f} s after remote")


@pytest.mark.timeout(900)
async def test_s9_a_level_above_the_limit_at_start_is_brought_down_by_the_backup_alone(
    tmp_path: Path,
) -> None:
    async with House(tmp_path, level_m=3.74) as house:
        await house.until(
            lambda p: any(v.outcome == "refused" for v in p.decisions.values()), 20, "a refusal in shadow"
        )
        refused = next(v for v in house.picture.decisions.values() if v.outcome == "refused")
        assert "buffer-tank/no-overflow" in refused.violated
        await house.allowed_to_arm()
        at = time.monotonic()
        took = await house.until(
            lambda p: any(good(view) for view in p.since(at)), 90, "permitted again below the limit"
        )
        tell(f"level above the limit at start: permitted again after {took:.1f} s")
        views = house.picture.since(at)
        tell(f"meanwhile: {sorted({(v.outcome, v.written_by, v.write_outcome) for v in views})}")
        assert {v.written_by for v in views if v.outcome == "refused"} <= {"recovery", "backup", ""}
        assert any(v.written_by == "recovery" and v.write_outcome == "confirmed" for v in views)
        await jumped_level(house)
        await house.close()
        assert {v.constraint for v in house.violations()} <= {"no-overflow"}  # it began with that
        assert list(unsafe(written(house))) == []


async def jumped_level(house: House) -> None:
    """S2, S16: a level that cannot follow from the one before: no write on it, and a person must look."""
    at = time.monotonic()
    await house.panel.set(Panel.PRESET_LEVEL_MM, 2500)
    await house.panel.until(given_up, 5.0)
    took = await house.until(lambda p: p.mode == "advisory", 15, "left armed (S16)")
    refused = await house.ask("mode", {"point": POINT, "mode": "armed"})
    assert "broken assumption: `TK1.LT101` lies " in refused.error
    broken = [view for view in house.picture.since(at) if "broken assumption" in view.reason]
    assert broken
    assert all(view.outcome == "undetermined" and not view.setpoints for view in broken)
    await house.asked("ack", {"source": f"point:{POINT}"})
    acknowledged_at = time.monotonic()
    again = await house.arm()
    await house.until(lambda p: any(good(view) for view in p.since(acknowledged_at)), 10, "permitted again")
    tell(f"level jumped: out of armed after {took:.1f} s, written {again:.1f} s after acknowledgement")


def good(view: DecisionView) -> bool:
    return view.outcome in {"permitted", "repaired"} and view.write_outcome == "confirmed"


def judged(house: House) -> None:
    """No violating value ever was a working value, by the plant's own record and by what passed the proxy."""
    assert house.violations() == []
    assert list(unsafe(written(house))) == []


def written(house: House) -> list[tuple[int, ...]]:
    return blocks(house.proxy.sent())


def unsafe(sent: list[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    for block in sent:
        if block[CONTROL_VALID] and block[HEATER] and not block[MIXER]:
            yield block
