"""The daemon: start order, the tasks that live as long as it does, and the stop order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any

import structlog

from gateway.config.model import GatewayConfig
from gateway.core.clock import SystemClock
from gateway.core.errors import ConfigError
from gateway.daemon.engines import start_engine
from gateway.daemon.house import House
from gateway.daemon.recall import of_model, recalled
from gateway.observability.systemd import sd_notify
from gateway.storage.ownership import owned
from gateway.supervision.loop import before_traffic

log = structlog.get_logger().bind(component="daemon")

_STATE_PERIOD_S = 1.0
_SETTLE_PERIOD_S = 0.1
_BEAT_PERIOD_S = 0.25
_RELEASE_WITHIN_S = 1.0
_TASKS_WITHIN_S = 2.5


async def run_gateway(config: GatewayConfig) -> None:
    """Run until SIGTERM or SIGINT, then stop in reverse: control-valid first."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(owned(config.gateway.state_dir))  # before anything there is read or written
        house = House(config, SystemClock())
        if not await _started(house, stack, stop):
            return
        tasks = [asyncio.create_task(work, name=name) for name, work in _long_lived(house).items()]
        tasks.append(asyncio.create_task(_until(stop), name="stop"))
        before_traffic()
        sd_notify("READY=1")
        log.info("gateway_started", id=config.gateway.id, config=str(config.path))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # a part that ends by itself is a fault: its error ends the daemon
        finally:
            sd_notify("STOPPING=1")
            await _stop(house, tasks)


async def _started(house: House, stack: contextlib.AsyncExitStack, stop: asyncio.Event) -> bool:
    """False where it was to stop before all stood: then what had begun is ended by the stack."""
    starting = asyncio.create_task(_start(house, stack), name="start")
    asked = asyncio.create_task(stop.wait(), name="stop-while-starting")
    try:
        await asyncio.wait((starting, asked), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            return True
        log.info("stopped_while_starting")
        return False
    finally:
        for task in (starting, asked):
            task.cancel()
        await asyncio.gather(starting, asked, return_exceptions=True)


async def _start(house: House, stack: contextlib.AsyncExitStack) -> None:
    """Everything that must stand before the first decision; closed in reverse order."""
    config = house.config
    await house.audit.start()
    stack.push_async_callback(house.audit.aclose)
    house.state.record_start(house.clock.utc_ns())
    await house.state.flush()
    await house.audit.append_event("start", "gateway", {"config": config.digest})
    house.modes.recall()
    stack.push_async_callback(house.pool.aclose)
    for engine in house.engines.values():
        stack.push_async_callback(engine.aclose)
    try:
        async with asyncio.TaskGroup() as starting:
            starting.create_task(house.pool.start(), name="start-solver")
            for name, engine in house.engines.items():
                starting.create_task(start_engine(config, name, engine), name=f"start-{name}")
                starting.create_task(_recall(house, name), name=f"recall-{name}")
    except BaseExceptionGroup as group:
        told, others = group.split(ConfigError)
        if told is None or others is not None:
            raise
        raise ConfigError(
            tuple(str(problem) for problem in told.exceptions)
        ) from None  # for a person to read
    await asyncio.gather(*(engine.warm() for engine in house.engines.values()))  # where records came late
    await house.models.tell_passed_over()
    config.gateway.constraints_dir.mkdir(parents=True, exist_ok=True)
    await house.registry.start(await house.watcher.first())
    await stack.enter_async_context(house.link.listening())


async def _recall(house: House, model: str) -> None:
    """Histories from the recorded decisions, while the model's worker starts; it is warmed with them."""
    points = of_model(house.points, model)
    house.engines[model].recall(await recalled(house.audit, points, house.clock))


def _long_lived(house: House) -> dict[str, Coroutine[Any, Any, Any]]:
    """Every task that lives as long as the daemon, by name."""
    tasks: dict[str, Coroutine[Any, Any, Any]] = {
        "constraints": house.watcher.run(house.registry.apply),
        "reporter": house.reporter.run(),
        "proofs": house.running.run(),
        "approved": house.registry.run(),
        "overrides": house.overriding.run(),
        "compared": house.comparing.run(),
        "examined": house.examining.run(),
        "models": house.models.run(),
        "memories": house.models.memories.run(),
        "state": _publish_state(house),
        "settle": _settle(house),
        "beat": _beat(house),
        "watchdog": house.watchdog.run(),
        "rearm": house.rearm.run(),
        "take-over": house.take_over.run(),
        "recheck": house.recheck.run(),
        "assumptions": house.assumptions.run(),
        "coverage": house.coverage.run(),
    }
    for name, channel in house.field.channels.items():
        tasks[f"channel-{name}"] = channel.run()
    for point, lane in house.lanes.items():
        tasks[f"lanes-{point}"] = lane.run()
    for service in house.northbound:
        tasks[service.name] = service.run()
    if house.mqtt is not None:
        tasks["mqtt"] = house.mqtt.run()
    return tasks


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()


async def _publish_state(house: House) -> None:
    """The whole picture once a second, for those who look."""
    while True:
        await asyncio.sleep(_STATE_PERIOD_S)
        house.publish_state()


async def _settle(house: House) -> None:
    """Takes what armed may not go on with to its consequence.

    Changes nobody requested (S19), too many repairs (S12), sets that are not invariant (S1).
    """
    while True:
        await asyncio.sleep(_SETTLE_PERIOD_S)
        for point, why in house.read_back.settle():
            await house.modes.disarm(point, why)
        await house.modes.limit_repairs()
        rules = house.rules.current
        for point in house.points.values():
            if why := rules.disproved or rules.too_seldom(point.settings.period_s):
                await house.modes.disarm(point, why)


async def _beat(house: House) -> None:
    """Feeds the watchdog from the decision loops, each after its own last decision (never from a timer)."""
    seen: dict[str, float] = {}
    for point in house.lanes:
        if (period := house.lanes[point].point.settings.period_s) is not None:
            house.watchdog.expect(f"lane-{point}", 5 * period + 2.0)
    while True:
        await asyncio.sleep(_BEAT_PERIOD_S)
        for point, lane in house.lanes.items():
            if lane.last_beat != seen.get(point):
                seen[point] = lane.last_beat
                house.watchdog.fed(f"lane-{point}")


async def _stop(house: House, tasks: list[asyncio.Task[Any]]) -> None:
    """Give the plant back first; then everything else, within the time systemd allows."""
    log.info("gateway_stopping")
    with contextlib.suppress(TimeoutError):  # the PLC's own lease is the next line of defence
        async with asyncio.timeout(_RELEASE_WITHIN_S):
            await house.modes.release_all()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=_TASKS_WITHIN_S)
    for task in tasks:
        if task.done() and not task.cancelled() and (fault := task.exception()) is not None:
            log.error("task_failed", task=task.get_name(), problem=repr(fault))
