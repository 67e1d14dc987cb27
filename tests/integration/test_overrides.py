"""An override on the running, armed demo: two accounts, verdicts that say so, certificate, its end (S25)."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.certificate.checks import Wanted, verify
from gateway.cli.certificate.export import export
from gateway.link.messages import DecisionView
from tests.integration.house import ROOT, USER, House, tell
from tests.integration.picture import Picture

pytestmark = pytest.mark.integration

RAMP = "buffer-tank/pump-ramp"


@pytest.mark.timeout(1200)
async def test_an_override_of_the_armed_demo_from_request_to_end(tmp_path: Path) -> None:
    async with House(tmp_path) as house:
        await house.arm()
        before = await jump(house)
        assert before["outcome"] == "repaired", before
        assert before["violated"] == [RAMP]
        me = await one_asks_and_another_confirms(house)
        decision = await every_verdict_says_so_and_the_point_stays_armed(house, me)
        await it_ends_before_its_time_without_a_stall(house)
        await it_is_released_by_who_asked(house)
        await a_restart_ends_it(house)
    await asyncio.to_thread(the_certificate_is_verified, house, decision)


async def jump(house: House) -> dict[str, Any]:
    """What would be said of a wish that breaks the ramp and nothing else; never written (S20)."""
    last = [d for d in house.picture.decisions.values() if d.write_outcome == "confirmed"][-1].setpoints
    now = float(last["TK1.P101.SP"])
    far = now + 30 if now < 45 else now - 30
    wish = {tag: {"true": "1", "false": "0"}.get(value, value) for tag, value in last.items()}
    wish["TK1.P101.SP"] = f"{far:.1f}"
    return await house.decided({"proposal": wish, "what_if": {"TK1.LT101": 2.0, "TK1.FT101": 12.0}})


async def ordered(house: House, lasting: str) -> None:
    """An override asked for by the Unix account and confirmed by the OPC UA one."""
    await house.asked("override.request", {"constraint": RAMP, "reason": "valve test", "for": lasting})
    confirmed = await house.ask("override.confirm", {"constraint": RAMP}, user=USER)
    assert confirmed.ok, confirmed.error
    assert [(o["id"], o["state"]) for o in confirmed.result] == [(RAMP, "active")]


async def one_asks_and_another_confirms(house: House) -> str:
    critical = {"constraint": "buffer-tank/no-overflow", "reason": "test", "for": "1 min"}
    refused = await house.ask("override.request", critical, user=USER)
    assert "is critical" in refused.error
    asked = await house.asked(
        "override.request", {"constraint": RAMP, "reason": "valve test", "for": "5 min"}
    )
    me = str(asked[0]["requested_by"])
    assert me != USER
    alone = await house.ask("override.confirm", {"constraint": RAMP})
    assert f"`{me}` asked for this override: another account" in alone.error
    generation = house.picture.gateway.generation if house.picture.gateway is not None else 0
    confirmed = await house.ask("override.confirm", {"constraint": RAMP}, user=USER)
    assert confirmed.ok, confirmed.error
    await house.until(
        lambda p: p.gateway is not None and p.gateway.generation > generation, 10, "another rule set"
    )
    return me


async def every_verdict_says_so_and_the_point_stays_armed(house: House, me: str) -> str:
    under = f"by {me}, confirmed by {USER}"
    found = await jump(house)
    assert found["outcome"] == "permitted", found
    assert (found["violated"], found["reported"]) == ([], [RAMP])
    assert f"with `{RAMP}` overridden until" in found["overridden"]
    assert found["overridden"].endswith(under)
    await house.until(lambda p: armed_under(p) is not None, 20, "a confirmed write under the override")
    view = armed_under(house.picture)
    assert view is not None
    assert house.picture.mode == "armed"
    await house.until(lambda p: p.seen_alarm_with(under), 5, "its alarm")
    assert under in house.picture.alarms["overrides"].cause
    listed = await o3ctl(house, "override", "list", "--json")
    assert [entry["id"] for entry in json.loads(listed)] == [RAMP]
    explained = await o3ctl(house, "explain", view.id)
    assert "under its assumptions, with" in " ".join(explained.split())
    status = await o3ctl(house, "status")
    assert "valve test" in status
    await house.asked("override.release", {"constraint": RAMP})
    await house.until(lambda p: p.overrides[RAMP].state == "ended", 10, "the override ended")
    return view.id


def armed_under(picture: Picture) -> DecisionView | None:
    """The newest decision under the override whose write was confirmed."""
    found = [d for d in picture.decisions.values() if d.overridden and d.write_outcome == "confirmed"]
    return found[-1] if found else None


async def it_ends_before_its_time_without_a_stall(house: House) -> None:
    decided = len(house.picture.decisions)
    await ordered(house, "10 s")
    await house.until(lambda p: p.overrides[RAMP].state == "ended", 15, "the override's end")
    views = list(house.picture.decisions.values())[decided:]
    stalled = [v.reason for v in views if "override" in v.reason]
    assert stalled == []
    assert (await jump(house))["violated"] == [RAMP]
    assert house.picture.mode == "armed"
    tell(f"{len(views)} decisions while an override of 10 s came and went, none stalled by it")


async def it_is_released_by_who_asked(house: House) -> None:
    await ordered(house, "5 min")
    await house.asked("override.release", {"constraint": RAMP})
    assert await house.asked("override.list") == []
    assert (await jump(house))["outcome"] == "repaired"


async def a_restart_ends_it(house: House) -> None:
    await ordered(house, "5 min")
    generation = house.picture.gateway.generation if house.picture.gateway is not None else 0
    await house.stop_daemon()
    await house.start_daemon()
    await house.until(
        lambda p: p.connected and p.gateway is not None and p.gateway.generation > generation, 60, "a start"
    )
    assert await house.asked("override.list") == []
    assert "started again" in endings(house)[-1]


def endings(house: House) -> list[str]:
    """Why each override ended, as the audit log has it."""
    with closing(sqlite3.connect(house.state / "audit.sqlite")) as connection:
        rows = connection.execute("SELECT body FROM audit WHERE kind = 'event' ORDER BY sequence").fetchall()
    events = [json.loads(body)["event"] for (body,) in rows]
    return [str(event["what"]["because"]) for event in events if event["kind"] == "override_ended"]


async def o3ctl(house: House, *words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.cli.main", *words),
        *("--socket", str(house.state / "run" / "o3.sock")),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output
    return output.decode()


def the_certificate_is_verified(house: House, decision: str) -> None:
    made = export(house.state, decision, None)
    done = verify(made.data, Wanted(solvers=("z3",), audit=house.state / "audit.sqlite"))
    assert done.good, [look for look in done.looks if look.good is False]
    assert f"with `{RAMP}` overridden until" in done.words
