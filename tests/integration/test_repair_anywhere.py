"""The reckless model at a gateway whose repairs may lie anywhere: told in words, and no rule broken."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gateway.cli.certificate.checks import Wanted, verify
from gateway.cli.certificate.export import export
from gateway.link.messages import DecisionView
from tests.integration.house import House, tell

pytestmark = pytest.mark.integration

_REPAIRS = 8


@pytest.mark.timeout(900)
async def test_s12_repairs_anywhere_are_told_recorded_and_break_no_rule(tmp_path: Path) -> None:
    async with House(tmp_path, model="reckless", level_m=3.5, repair="nearest") as house:
        await house.arm()
        at = time.monotonic()
        await house.until(lambda p: len(_repaired(p.since(at))) >= _REPAIRS, 120, "enough repairs")
        views = house.picture.since(at)
        points = await house.asked("status")
        await house.close()
        assert house.violations() == []
    repaired = _repaired(views)
    tell(f"repaired {len(repaired)} of {len(views)}: {repaired[0].reason}")
    assert [point["repair"] for point in points["points"]] == ["nearest"]
    for view in repaired:
        assert " asked " in view.reason
        assert "because of `" in view.reason
        assert "buffer-tank.json:" in view.reason
    assert not [view for view in views if "disagree" in view.reason]
    done = verify(export(house.state, repaired[0].id).data, Wanted(solvers=()))
    assert done.good, [look for look in done.looks if look.good is False]


def _repaired(views: list[DecisionView]) -> list[DecisionView]:
    return [view for view in views if view.outcome == "repaired"]
