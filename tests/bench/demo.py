"""The demo as a child process, for benchmarks: the same `make run` a person starts."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from gateway.core.errors import LinkError
from gateway.link.client import LinkClient


@dataclass(frozen=True, slots=True)
class RunningDemo:
    """A demo that answers and is armed."""

    process: asyncio.subprocess.Process
    socket: Path
    started_at: float  # monotonic seconds
    first_verdict_s: float  # from the daemon's own start to its first verdict that is not undetermined

    def gateway_processes(self) -> list[psutil.Process]:
        """The daemon and everything it started; not the plant, not the broker."""
        for child in psutil.Process(self.process.pid).children(recursive=False):
            if child.cmdline()[1:3] == ["-m", "gateway"]:
                return [child, *child.children(recursive=True)]
        return []


@asynccontextmanager
async def running_demo(folder: Path, *, armed: bool = True) -> AsyncIterator[RunningDemo]:
    """Start the demo, wait until it decides (and writes), stop it with SIGINT."""
    started_at = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "gateway.cli.demo", "--dir", str(folder)),
        *(() if armed else ("--no-arm",)),
        stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    socket = folder / "state" / "run" / "o3.sock"
    try:
        async with asyncio.timeout(120):
            first_s = await _until_ready(socket, process, armed=armed)
        yield RunningDemo(process, socket, started_at, first_s)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        async with asyncio.timeout(60):
            await process.wait()


async def _until_ready(socket: Path, process: asyncio.subprocess.Process, *, armed: bool) -> float:
    first_s: float | None = None
    while process.returncode is None:
        with contextlib.suppress(LinkError):  # not listening yet
            client = await LinkClient.connect(socket, "bench")
            try:
                status: dict[str, Any] = (await client.ask("status")).result
                decisions: list[dict[str, Any]] = (await client.ask("decisions", {"limit": 200})).result
            finally:
                await client.aclose()
            verdicts = [d["at_ns"] for d in decisions if d["outcome"] != "undetermined"]
            if verdicts and first_s is None:
                first_s = (min(verdicts) - status["gateway"]["started_ns"]) / 1e9
            if first_s is not None and (
                not armed or any(d["write_outcome"] == "confirmed" for d in decisions)
            ):
                return first_s
        await asyncio.sleep(0.1)
    problem = f"the demo ended with status {process.returncode}: is another one running?"
    raise RuntimeError(problem)
