"""`make run` as a person starts and stops it."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from pathlib import Path

import psutil
import pytest

from gateway.link.client import LinkClient
from tests.bench.demo import running_demo
from tests.integration.house import SLOWEST, tell

pytestmark = pytest.mark.integration

DEMO_PORTS = (15020, 4840, 18883, 8480)


def taken() -> list[int]:
    """Demo ports somebody listens on."""
    found: list[int] = []
    for port in DEMO_PORTS:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                found.append(port)
    return found


@pytest.mark.timeout(900)
async def test_make_run_arms_the_demo_and_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    if ports := taken():
        pytest.skip(f"another demo runs on this machine: ports {ports}")
    async with running_demo(tmp_path / "demo") as demo:
        client = await LinkClient.connect(demo.socket, "test")
        status = (await client.ask("status")).result
        await client.aclose()
        assert status["points"][0]["mode"] == "armed"
        assert status["gateway"]["generation"] >= 1
        processes = [
            psutil.Process(demo.process.pid),
            *psutil.Process(demo.process.pid).children(recursive=True),
        ]
        asked_at = time.monotonic()
        demo.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(SLOWEST * 15):
            assert await demo.process.wait() == 0
        took_s = time.monotonic() - asked_at
    tell(f"Ctrl-C took {took_s:.1f} s")
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, SLOWEST * 5)
    assert alive == []
    assert taken() == []
