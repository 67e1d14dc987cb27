"""`o3ctl model load` of bad bundles while the gateway runs: refused in words, and the old one decides on."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from pathlib import Path

import pytest

from tests.integration.house import ROOT, SLOWEST, House, tell
from tests.integration.picture import lost_worker
from tests.integration.test_models_at_run_time import CONFIGURED, OwnBundles
from tests.unit.bad_bundles import BAD, ENDLESS, blind_between, sound

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]

SOUND = "sound"


async def _o3ctl(house: House, *arguments: str) -> tuple[int, str]:
    """Exit status, and what an engineer reads: all of it in one line."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.cli.main", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT,
        env={"O3_SOCKET": str(house.state / "run" / "o3.sock"), "PATH": "/usr/bin:/bin", "COLUMNS": "4000"},
    )
    async with asyncio.timeout(SLOWEST * 90):
        said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, " ".join(said.decode().split())


async def test_each_bad_bundle_is_refused_in_words_and_nothing_in_service_changes(tmp_path: Path) -> None:
    async with OwnBundles(tmp_path) as house:
        bundles = tmp_path / "bundles"
        sound(bundles / SOUND, stateless=True)
        for bad in (*BAD, ENDLESS):
            bad.made_in(bundles / bad.name)
        serving, started = house.pids("engine"), time.monotonic()
        for bad in (*BAD, ENDLESS):
            status, said = await _o3ctl(house, "model", "load", bad.name)
            assert status != 0, (bad.name, said)
            assert f"`{bad.name}` did not take over" in said, (bad.name, said)
            assert re.search(bad.said, said), (bad.name, said)
            assert f"`{CONFIGURED}` still serves `{CONFIGURED}`" in said
            assert house.pids("engine") == serving, bad.name

        assert await house.served_by() == CONFIGURED
        assert len(house.events("model-refused")) == len(BAD) + 1
        assert house.events("model") == []
        decided = len(house.picture.decisions)
        await house.until(lambda p: len(p.decisions) > decided, 10, "one more decision")
        views = house.picture.since(started)
        late = [view.reason for view in views if view.outcome not in {"permitted", "repaired"}]
        tell(
            f"{len(BAD) + 1} bad bundles, {time.monotonic() - started:.0f} s, {len(views)} decisions; {late}"
        )
        assert not [reason for reason in late if lost_worker(reason)], late
        assert len({view.model_digest for view in views if view.model_digest}) == 1

        # nothing is left that would refuse a good one
        status, said = await _o3ctl(house, "model", "load", SOUND)
        assert status == 0, said
        assert await house.served_by() == SOUND


async def test_an_answer_that_is_no_number_is_undetermined_and_the_worker_lives(tmp_path: Path) -> None:
    """The self-test does not meet it: none of its probes lies where the square root has no number."""
    async with OwnBundles(tmp_path) as house:
        blind_between(tmp_path / "bundles" / "blind", 1.9, 2.6)  # m; the demo's level stands at 2
        loaded = await house.ask("model.load", {"bundle": "blind"})
        assert loaded.ok, loaded.error
        serving, at = house.pids("engine")[-1], time.monotonic()  # the one before may still be ending
        await house.until(
            lambda p: sum("no number" in view.reason for view in p.since(at)) >= 3,
            30,
            "three without an answer",
        )
        without = [view for view in house.picture.since(at) if "no number" in view.reason]
        assert {view.outcome for view in without} == {"undetermined"}
        assert not any(view.proposal for view in without)
        assert house.pids("engine") == [serving]

        back = await house.ask("model.rollback")
        assert back.ok, back.error
        again = time.monotonic()
        await house.until(
            lambda p: any(view.outcome == "permitted" for view in p.since(again)), 30, "a permitted decision"
        )
