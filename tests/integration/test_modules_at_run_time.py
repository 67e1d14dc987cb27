"""Constraint modules of the running, armed demo: two persons, proofs, rollback, shadow (S1, S24, S27)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.house import POINT, ROOT, USER, House, tell
from tests.integration.picture import Picture

pytestmark = pytest.mark.integration

EXAMPLE_LIMIT = ROOT / "docs" / "examples" / "lower-level-limit.json"
LIMIT = "lower-level-limit"


class Confirming(House):
    """The demo with the field's rule for weakenings."""

    def _prepare(self) -> None:
        super()._prepare()
        config = self.folder / "gateway.toml"
        text = config.read_text()
        assert 'weakening = "allow"' in text
        config.write_text(text.replace('weakening = "allow"', 'weakening = "confirm"'))

    async def load(self, name: str, text: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401  # plain data
        """What is then known of the file's module."""
        found = await self.asked("runtime.load", {"name": name, "data": text.encode(), **more})
        return next(m for m in found if m["file"] == name)


def revision(picture: Picture, module: str) -> int:
    return picture.modules[module].revision if module in picture.modules else 0


@pytest.mark.timeout(900)
async def test_rules_change_under_an_armed_point(tmp_path: Path) -> None:
    first = EXAMPLE_LIMIT.read_text()
    wider = first.replace('"revision": 1', '"revision": 2').replace('"level <= 3.2"', '"level <= 3.205"')
    async with Confirming(tmp_path) as house:
        await house.arm()
        assert (await house.load("limit.json", first))["state"] == "active"
        await a_weakening_needs_another_account_and_then_its_proof(house, wider)
        await a_rollback_is_recorded_and_holds(house)
        await a_priority_stands_beside_the_bytes(house, first)
        await a_module_in_shadow_says_what_it_would_have_refused(house, first)
        assert house.picture.mode == "armed"
        await an_unproved_tightening_is_instant_and_then_disarms(house)


async def a_weakening_needs_another_account_and_then_its_proof(house: Confirming, wider: str) -> None:
    waits = await house.load("limit.json", wider)
    assert waits["state"] == "pending"
    me = waits["changed_by"][0]
    refused = await house.ask("runtime.approve", {"module": LIMIT})
    assert f"`{me}` made this change" in refused.error
    assert "another account with the role engineer" in refused.error
    started = time.monotonic()
    approved = await house.ask("runtime.approve", {"module": LIMIT}, user=USER)
    assert approved.ok, approved.error
    state = next(m for m in approved.result if m["id"] == LIMIT)
    if state["state"] == "pending":
        assert "once its safe set is proved invariant" in state["refused_because"][0]
        assert state["revision"] == 1
    await house.until(lambda p: revision(p, LIMIT) == 2, 90, "the weaker revision proved and in force")
    tell(f"approved weakening proved and in force after {time.monotonic() - started:.1f} s")
    assert house.picture.mode == "armed"


async def a_rollback_is_recorded_and_holds(house: Confirming) -> None:
    await house.asked("runtime.rollback", {"module": LIMIT})
    await house.until(lambda p: revision(p, LIMIT) == 1, 10, "the revision before")
    listed = await house.asked("runtime.list")
    assert next(m for m in listed if m["id"] == LIMIT)["state"] == "active"
    again = await house.ask("runtime.rollback", {"module": LIMIT})
    assert "no revision" in again.error


async def a_priority_stands_beside_the_bytes(house: Confirming, first: str) -> None:
    state = await house.load("limit.json", first, priority=3)
    assert (state["priority"], state["digest"]) == (3, house.picture.modules[LIMIT].digest)
    assert (house.watched / "limit.json").read_text() == first
    at = time.monotonic()
    await house.until(lambda p: p.wrote(at), 10, "a write under the reordered set")


async def a_module_in_shadow_says_what_it_would_have_refused(house: Confirming, first: str) -> None:
    text = first.replace(f'"{LIMIT}"', '"trial"').replace('"level <= 3.2"', '"level <= 0.1"')
    shape = json.loads(text)
    shape["cases"] = [
        {"given": g["given"] | {"level": level}, "previous": g["previous"], "expect": expect}
        for g, level, expect in zip(
            shape["cases"], ("3.21", "0.05"), ({"violated": ["lower-level"]}, "permitted"), strict=True
        )
    ]
    shape["safe_set"] = []
    at = time.monotonic()
    assert (await house.load("trial.json", json.dumps(shape), shadow=True))["state"] == "shadow"
    await house.until(lambda p: bool(p.last and p.last.shadow), 10, "a decision with shadow findings")
    last = house.picture.last
    assert last is not None
    assert any("trial/lower-level would have refused it" in sentence for sentence in last.shadow)
    await house.until(lambda p: p.wrote(at), 10, "writes go on")
    await house.asked("runtime.unload", {"module": "trial"})


async def an_unproved_tightening_is_instant_and_then_disarms(house: Confirming) -> None:
    """A level limit inside the safe set: the backup cannot keep it from everywhere."""
    shape = json.loads(EXAMPLE_LIMIT.read_text())
    shape |= {"id": "hasty", "safe_set": []}
    shape["constraints"][0]["require"] = "level <= 3.1"
    shape["cases"][1]["given"]["level"] = "3.05"
    at = time.monotonic()
    assert (await house.load("hasty.json", json.dumps(shape)))["state"] == "active"
    await house.until(lambda p: p.mode == "advisory", 60, "the point disarmed")
    tell(f"unproved tightening took the point out of armed after {time.monotonic() - at:.1f} s")
    refused = await house.ask("mode", {"point": POINT, "mode": "armed"})
    assert "prove" in refused.error


def report_in(folder: Path) -> str:
    return next(folder.rglob("limit.accepted.txt")).read_text()


# Answers come after the module, and are there again after a restart without a question.
@pytest.mark.timeout(900)
async def test_what_an_analysis_found_of_a_module_in_force_is_told_everywhere(tmp_path: Path) -> None:
    first = EXAMPLE_LIMIT.read_text()
    async with Confirming(tmp_path) as house:
        assert (await house.load("limit.json", first))["state"] == "active"
        took_s = await house.until(
            lambda p: LIMIT in p.modules and bool(p.modules[LIMIT].analysis), 90, "an analysis"
        )
        said = house.picture.modules[LIMIT].analysis
        assert "asked for" in said[0]
        assert "among buffer-tank 7" in said[0]
        beside = report_in(tmp_path)
        assert said[0] in beside
        assert "fine: safe set: proved" in beside
        assert "error of level (TK1.LT101)" in beside
        tell(f"analysed {took_s:.1f} s after it was in force: {said[0]}")
