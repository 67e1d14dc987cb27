"""A running gateway tells where its model runs and what its worker holds: status, metrics, nodes' source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.house import ANSWER_S, House

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

LOOKS = 40


async def test_status_and_metrics_tell_what_the_worker_of_a_model_holds_and_where_it_runs(
    tmp_path: Path,
) -> None:
    async with House(tmp_path) as house:
        model = await counted(house)
        held = model["memory"]

        assert held["sessions"] >= 1
        assert held["pages_free"] < held["pages"]
        assert 0 < held["internal_fragmentation"] < 1
        assert held["external_fragmentation"] == 0
        assert model["asked_provider"] == "auto"
        assert model["provider"] in {"CPUExecutionProvider", "CUDAExecutionProvider"}
        assert model["fell_back"] == ""
        said = await told(house, 'o3_model_memory{model="buffer-tank",figure="pages_free"}')
        assert 'o3_model_fell_back{model="buffer-tank",asked="auto"' in said


async def counted(house: House) -> dict[str, Any]:
    """The one model, once its worker has counted."""
    for _ in range(LOOKS):
        (model,) = (await house.asked("status"))["models"]
        if model["counted_ns"]:
            return dict(model)
        await another_decision(house)
    pytest.fail("the worker never counted")


async def told(house: House, metric: str) -> str:
    """All metrics, once that one is among them: the web process hears of it within a second."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{house.web_port}", timeout=ANSWER_S) as web:
        for _ in range(LOOKS):
            try:
                said = (await web.get("/metrics")).text
            except httpx.ConnectError:  # not up yet
                said = ""
            if metric in said:
                return said
            await another_decision(house)
    pytest.fail(f"no {metric} in {said}")


async def another_decision(house: House) -> None:
    """Return when one more has been made: about a second."""
    decided = len(house.picture.decisions)
    await house.until(lambda p: len(p.decisions) > decided, 30, "one more decision")
