"""What happens around a running gateway: a second one on its folder, a socket that somebody removes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.house import ROOT, House

pytestmark = pytest.mark.integration


@pytest.mark.timeout(300)
async def test_a_second_gateway_changes_nothing_and_a_removed_socket_comes_back(tmp_path: Path) -> None:
    async with House(tmp_path) as house:
        before = remembered(house)
        second = await asyncio.to_thread(started_again, house)
        assert second.returncode == 2
        assert house.daemon is not None
        assert f"belongs to a gateway that is running (process {house.daemon.pid})" in second.stderr
        assert remembered(house) == before

        port = house.state / "run" / "o3.sock"
        port.unlink()
        at = time.monotonic()
        async with asyncio.timeout(60):
            while not port.is_socket():  # noqa: ASYNC110  # a folder gives no event here
                await asyncio.sleep(0.05)
        stopped = await house.asked("stop-writes", {})
        assert stopped == {"writes_stopped": True}
        await house.until(lambda p: len(p.since(at)) > 1, 30, "decisions go on")
        await house.close()
        assert house.violations() == []


def remembered(house: House) -> tuple[bytes, bytes]:
    """What a start would change in the state folder."""
    return (house.state / "modules" / "state.json").read_bytes(), (house.state / "state.json").read_bytes()


def started_again(house: House) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  # our own interpreter
        [sys.executable, "-m", "gateway", "--config", str(house.folder / "gateway.toml")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
