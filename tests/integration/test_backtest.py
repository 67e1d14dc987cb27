"""A module beside the running demo: tried live, back-tested on its records, and coverage over a restart."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.link.messages import DecisionView
from tests.integration.house import ROOT, SLOWEST, House, tell

pytestmark = pytest.mark.integration

_TIGHTER = (
    ("abs(rate(pump)) <= 10", "abs(rate(pump)) <= 0.01"),
    ('{"pump": "20",', '{"pump": "10",'),
    ('"pump": "50", "heater"', '"pump": "40", "heater"'),
    ('{"pump": "35",', '{"pump": "40",'),
)


async def o3ctl(house: House, *arguments: str) -> str:
    """What the command prints; it must succeed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.cli.main", *arguments),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={"O3_SOCKET": str(house.state / "run" / "o3.sock"), "PATH": "/usr/bin:/bin"},
    )
    async with asyncio.timeout(SLOWEST * 60):
        said, _ = await process.communicate()
    assert process.returncode == 0, said
    return said.decode()


def tighter(folder: Path) -> Path:
    """The demo's module with a ramp that nearly nothing keeps."""
    text = (ROOT / "constraints" / "buffer-tank.json").read_text()
    for old, new in _TIGHTER:
        assert old in text, old
        text = text.replace(old, new)
    path = folder / "tighter.json"
    path.write_text(text)
    return path


def shared(house: House) -> tuple[str, ...]:
    return ("--state-dir", str(house.state), "--config", str(house.folder / "gateway.toml"), "--json")


@pytest.mark.timeout(900)
async def test_a_module_is_tried_live_then_back_tested_and_coverage_survives_a_restart(
    tmp_path: Path,
) -> None:
    async with House(tmp_path, level_m=2.6) as house:
        await house.arm()
        before = {m["id"]: m["state"] for m in await house.asked("runtime.list")}
        module = tighter(tmp_path)

        lines = (
            await o3ctl(house, "try", str(module), "--live", "--for", "12s", *shared(house))
        ).splitlines()
        *differences, last = (json.loads(line) for line in lines)
        summary = last["summary"]
        tell(f"tried on {summary['decisions']} decisions: {summary['kinds']}")
        assert summary["decisions"] >= 5
        refused = [d for d in differences if d["difference"] == "newly refused"]
        assert len(refused) == summary["kinds"]["newly_refused"] > 0
        assert {m["id"]: m["state"] for m in await house.asked("runtime.list")} == before

        await house.until(lambda p: sum(map(_judged, p.decisions.values())) >= 10, 30, "ten verdicts")
        found = json.loads(await o3ctl(house, "backtest", str(module), "--since", "1h", *shared(house)))
        assert found["kinds"]["newly_refused"] >= summary["kinds"]["newly_refused"]
        own = ROOT / "constraints" / "buffer-tank.json"
        same = json.loads(await o3ctl(house, "backtest", str(own), "--since", "1h", *shared(house)))
        assert same["judged"] >= 5
        assert same["kinds"]["newly_refused"] == same["kinds"]["newly_permitted"] == 0

        await house.stop_daemon()
        kept = {f"{c['module']}/{c['constraint']}": c for c in _kept(house)}
        assert kept["buffer-tank/no-overflow"]["judged"] >= 5
        decided = len(house.picture.decisions)
        await house.start_daemon()
        await house.until(lambda p: len(p.decisions) > decided, 60, "a decision after the restart")
        said: list[dict[str, Any]] = json.loads(await o3ctl(house, "runtime", "coverage", "--json"))
        again = {c["id"]: c for c in said}
        assert again["buffer-tank/no-overflow"]["judged"] >= kept["buffer-tank/no-overflow"]["judged"]
        assert again["buffer-tank/no-overflow"]["since_ns"] == kept["buffer-tank/no-overflow"]["since_ns"]
        assert not any(c["never_fired"] for c in said)  # nothing of the demo is thirty days old


def _judged(view: DecisionView) -> bool:
    """A busy machine has no time for some."""
    return view.outcome in {"permitted", "repaired", "refused"}


def _kept(house: House) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((house.state / "coverage.json").read_text())["constraints"]
    return found
