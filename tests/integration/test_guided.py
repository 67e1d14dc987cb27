"""The reckless model, guided: it proposes what the rules can permit, and the check has less to refuse."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gateway.link.messages import DecisionView
from tests.integration.house import House, tell

pytestmark = pytest.mark.integration

_DECISIONS = 20


@pytest.mark.timeout(900)
async def test_guided_the_reckless_model_is_hardly_ever_refused(tmp_path: Path) -> None:
    for name in ("free", "led"):
        (tmp_path / name).mkdir()
    free = await _decided(tmp_path / "free", guided=False)
    led = await _decided(tmp_path / "led", guided=True)

    tell(f"reckless: stopped {_stopped(free)} of {len(free)}, guided {_stopped(led)} of {len(led)}")
    assert all(view.decoding == "" for view in free)
    assert _stopped(free) >= _DECISIONS / 5  # else this shows nothing
    assert 5 * _stopped(led) <= _stopped(free)
    assert all(set(view.masked_out) == set(view.proposal) for view in led)
    assert max(max(view.masked_out.values()) for view in led) > 0.05


async def _decided(folder: Path, *, guided: bool) -> list[DecisionView]:
    async with House(folder, model="reckless", level_m=3.5, guided=guided) as house:
        await house.arm()
        at = time.monotonic()
        await house.until(
            lambda p: sum(_came(view, guided=guided) for view in p.since(at)) >= _DECISIONS,
            90,
            f"enough decisions{', guided in time' if guided else ''}",
        )
        views = [view for view in house.picture.since(at) if _came(view, guided=guided)]
        if guided:
            counters = (await house.asked("status"))["gateway"]["counters"]
            assert counters["point_buffer-tank_guidance_guided"] >= _DECISIONS
        await house.close()
        assert house.violations() == []
    return views


def _came(view: DecisionView, *, guided: bool) -> bool:
    """A proposal that was judged, and guided where that was wanted: a busy machine has no time for some."""
    return view.outcome != "undetermined" and view.decoding.startswith("guided" if guided else "")


def _stopped(views: list[DecisionView]) -> int:
    return sum(view.outcome in {"refused", "repaired"} for view in views)
