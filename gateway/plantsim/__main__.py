"""`python -m gateway.plantsim`: the demo plant as a program."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path

from gateway.plantsim.plant import PlantSettings, running_plant

_LONGEST_SCAN_MS = 1000


def main() -> None:
    """Serve until SIGINT or SIGTERM; exits 0 then, 1 when the port cannot be had, 2 on wrong arguments."""
    settings = _settings()
    try:
        asyncio.run(_serve(settings))
    except OSError as exc:
        sys.stderr.write(f"plant: cannot serve on {settings.host}:{settings.port}: {exc}\n")
        sys.exit(1)


async def _serve(settings: PlantSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with running_plant(settings) as plant:
        _say(f"plant: serving Modbus TCP on {settings.host}:{plant.port}")
        await stop.wait()
    counters = plant.server.counters
    _say(f"plant: stopped, {counters.requests} requests, {plant.plc.late_scans} late scans")


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # a full disk must not end the plant
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _settings() -> PlantSettings:
    parser = argparse.ArgumentParser(
        prog="o3-plantsim", description="a heated buffer tank behind a soft PLC, served over Modbus TCP"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=_between(0, 65535), default=15020, help="0 takes a free port")
    parser.add_argument("--seed", type=int, default=1, help="seed of disturbances and sensor noise")
    parser.add_argument("--scan-log", type=Path, help="CSV file, one line per scan, appended to")
    parser.add_argument("--level", type=float, default=2.0, help="level at start, m")
    parser.add_argument("--temperature", type=float, default=40.0, help="temperature at start, degC")
    parser.add_argument("--scan-ms", type=_between(1, _LONGEST_SCAN_MS), default=20, help="scan time, ms")
    arguments = parser.parse_args()
    return PlantSettings(
        host=arguments.host,
        port=arguments.port,
        seed=arguments.seed,
        scan_log=arguments.scan_log,
        level_m=arguments.level,
        temperature_c=arguments.temperature,
        scan_s=arguments.scan_ms / 1000,
    )


class _between:  # noqa: N801  # argparse shows the type's name in its message
    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high

    def __call__(self, text: str) -> int:
        number = int(text)
        if not self._low <= number <= self._high:
            raise argparse.ArgumentTypeError(f"{number} is not in {self._low}..{self._high}")
        return number


if __name__ == "__main__":
    main()
