"""The demo plant in real time: the scan loop beside the Modbus server, in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.core.clock import Clock, SystemClock
from gateway.plantsim.modbus_tcp import ModbusTcpServer
from gateway.plantsim.plc import SoftPlc
from gateway.plantsim.scan_log import ScanLog
from gateway.plantsim.tank import TankState
from gateway.plantsim.units import IDENTITY, units_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantSettings:
    """What one plant is started with; port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 15020
    seed: int = 1
    scan_log: Path | None = None
    level_m: float = 2.0
    temperature_c: float = 40.0
    scan_s: float = 0.02


@dataclass(frozen=True, slots=True)
class RunningPlant:
    """A plant that scans and answers."""

    port: int
    plc: SoftPlc
    server: ModbusTcpServer


@asynccontextmanager
async def running_plant(settings: PlantSettings, clock: Clock | None = None) -> AsyncIterator[RunningPlant]:
    """A plant that scans and serves while the context is open; on leaving, its log is complete."""
    clock = SystemClock() if clock is None else clock
    start = TankState(settings.level_m, settings.temperature_c)
    plc = SoftPlc(seed=settings.seed, start=start, scan_s=settings.scan_s)
    server = ModbusTcpServer(units_of(plc), IDENTITY)
    scan_log = None if settings.scan_log is None else ScanLog(settings.scan_log)
    stop = asyncio.Event()
    try:
        async with server.serving(settings.host, settings.port) as port, asyncio.TaskGroup() as group:
            group.create_task(_scan_until(stop, plc, clock, scan_log, settings.scan_s), name="plc-scan")
            try:
                yield RunningPlant(port, plc, server)
            finally:
                stop.set()
    finally:
        if scan_log is not None:
            scan_log.close()


async def _scan_until(
    stop: asyncio.Event, plc: SoftPlc, clock: Clock, scan_log: ScanLog | None, scan_s: float
) -> None:
    """Scan every `scan_s` seconds of the event loop's time; overdue scans are dropped, not made up."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    while not stop.is_set():
        scan = plc.scan(clock.monotonic())
        if scan_log is not None:
            scan_log.append(scan, clock.utc_ns())
        due = max(due + scan_s, loop.time())
        await asyncio.sleep(due - loop.time())
