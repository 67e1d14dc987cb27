"""A daemon that was stopped and started again goes on from the recorded past, unless that is too long ago."""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
from pathlib import Path

import pytest

from gateway.link.messages import GatewayState
from tests.integration.house import ROOT, House, tell
from tests.integration.picture import Picture

pytestmark = pytest.mark.integration

_SHIPPED = ROOT / "gateway" / "inference" / "bundles" / "buffer-tank"
_TOKENS = 6  # of a cycle: three tags measured, three in force
_LONGEST_GAP = 5  # cycles


def _bundles(folder: Path, cycle_s: str) -> Path:
    """The demo's bundle with another cycle: how long a stop may take is told in cycles."""
    made = Path(shutil.copytree(_SHIPPED, folder / "bundles" / "buffer-tank"))
    manifest = json.loads((made / "bundle.json").read_text())
    (made / "bundle.json").write_text(json.dumps(manifest | {"cycle_s": cycle_s}))
    return made.parent


def _engine(state: GatewayState, name: str) -> int:
    return state.counters[f"engine_buffer-tank_{name}"]


def _spans(picture: Picture, seconds: float) -> bool:
    times = [view.at_ns for view in picture.decisions.values() if view.model_digest]
    return bool(times) and times[-1] - times[0] >= seconds * 1e9


async def _restarted(house: House, down_s: float = 0.0) -> tuple[GatewayState, GatewayState, float]:
    """The last state before, the first one after in which the model has proposed, and the stop's seconds.

    The stop is from decision to decision; the daemon is down for `down_s` of it at least.
    """
    before = house.picture.gateway
    assert before is not None
    known = set(house.picture.decisions)
    last = max(view.at_ns for view in house.picture.decisions.values())
    await house.stop_daemon()
    await asyncio.sleep(down_s)  # nothing to wait for but the clock: the length of the stop is the subject
    await house.start_daemon()
    await house.until(
        lambda p: (
            p.gateway is not None
            and p.gateway.started_ns > before.started_ns
            and _engine(p.gateway, "proposals") >= 1
        ),
        60,
        "a proposal after the start",
    )
    after = house.picture.gateway
    assert after is not None
    fresh = [view.at_ns for name, view in house.picture.decisions.items() if name not in known]
    return before, after, (min(fresh) - last) / 1e9


@pytest.mark.timeout(900)
async def test_the_first_decision_after_a_restart_finds_its_history_in_the_worker(tmp_path: Path) -> None:
    cycle_s = 8
    async with House(tmp_path / "house", bundles=_bundles(tmp_path, str(cycle_s))) as house:
        await house.until(lambda p: _spans(p, 3.5 * cycle_s), 90, "a history of three cycles")
        _, after, stopped_s = await _restarted(house)
        known = len(house.picture.decisions)
        await house.until(lambda p: len(p.decisions) >= known + 9, 60, "nine more decisions")
        later = house.picture.gateway
        engine_ms = [
            view.timings_ms["propose"]
            for view in house.picture.decisions.values()
            if view.at_ns > after.started_ns and "propose" in view.timings_ms
        ]
    tell(
        f"stopped {stopped_s:.1f} s; propose: first {engine_ms[0]:.1f} ms, p50 of the later "
        f"{statistics.median(engine_ms[1:]):.1f} ms"
    )

    assert stopped_s < _LONGEST_GAP * cycle_s, "too slow a machine to tell anything"
    assert later is not None
    # Nothing had to be computed anew: no request brought a history, and the first found three cycles kept.
    assert _engine(after, "histories_sent") == _engine(later, "histories_sent") == 0
    assert _engine(after, "proposals") <= cycle_s
    assert _engine(after, "reused_tokens") >= 3 * _TOKENS
    assert _engine(after, "computed_tokens") < 3 * _TOKENS


@pytest.mark.timeout(900)
async def test_a_stop_of_more_than_five_cycles_forgets_the_history(tmp_path: Path) -> None:
    cycle_s = 0.3
    async with House(tmp_path / "house", bundles=_bundles(tmp_path, str(cycle_s))) as house:
        await house.until(lambda p: _spans(p, 12), 90, "a history of forty cycles")
        before, after, stopped_s = await _restarted(house, down_s=_LONGEST_GAP * cycle_s)

    assert stopped_s > _LONGEST_GAP * cycle_s
    kept_at_most = _engine(after, "proposals") * 5 * _TOKENS
    assert _engine(before, "reused_tokens") > 20 * _TOKENS
    assert _engine(after, "reused_tokens") <= kept_at_most < _engine(before, "reused_tokens")
