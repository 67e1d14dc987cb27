"""`python -m gateway.web`: the process o3-web."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import signal
from ipaddress import ip_address
from pathlib import Path

import uvicorn

from gateway.core.clock import SystemClock
from gateway.link.client import LinkClient
from gateway.supervision.child_log import log_as_parent
from gateway.web.app import create_app
from gateway.web.feed import GatewayLink, keep_mirrored
from gateway.web.mirror import Mirror

_PARENT_PERIOD_S = 0.5


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(
        prog="o3-web", description="HTTP API and page of the O3 gateway, read-only"
    )
    parser.add_argument(
        "--link", type=Path, required=True, metavar="SOCKET", help="internal port of the gateway"
    )
    parser.add_argument("--host", default="127.0.0.1", help="loopback address to listen on")
    parser.add_argument("--port", type=int, default=8480)
    parser.add_argument(
        "--parent",
        type=int,
        default=os.getppid(),
        metavar="PID",
        help="end when this is no longer the parent",
    )
    options = parser.parse_args()
    try:
        loopback = ip_address(options.host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        parser.error(f"--host {options.host}: only a loopback address; there are no users on this port yet")
    log_as_parent()
    asyncio.run(serve(options.link, options.host, options.port, options.parent))


async def serve(link: Path, host: str, port: int, parent: int) -> None:
    """Mirror the Feed and answer HTTP until a signal, cancellation, or the end of the parent process.

    A daemon killed and started again must not find its port held by its predecessor's child. The daemon gives
    its own id: a child that asks for it may be asking after the daemon's end, and would never notice that.
    """
    mirror = Mirror(SystemClock())

    async def connect() -> GatewayLink:
        return await LinkClient.connect(link, "o3-web")

    server = uvicorn.Server(_uvicorn_config(mirror, host, port))
    gc.collect()
    gc.freeze()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: setattr(server, "should_exit", True))
    async with asyncio.TaskGroup() as tasks:
        others: tuple[asyncio.Task[None], ...] = (
            tasks.create_task(keep_mirrored(connect, mirror), name="web-mirror"),
            tasks.create_task(_end_with(parent, server), name="web-parent"),
        )
        with contextlib.suppress(SystemExit):  # uvicorn's way to say the port is taken; it has logged it
            await server.serve()
        for task in others:
            task.cancel()
    if not server.started:
        raise SystemExit(1)


async def _end_with(parent: int, server: uvicorn.Server) -> None:
    while os.getppid() == parent:  # noqa: ASYNC110 - the kernel offers no event for it
        await asyncio.sleep(_PARENT_PERIOD_S)
    server.should_exit = True


def _uvicorn_config(mirror: Mirror, host: str, port: int) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(mirror),
        host=host,
        port=port,
        lifespan="off",
        ws="none",
        access_log=False,
        log_level="warning",
        server_header=False,
        limit_concurrency=128,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=1,
    )


if __name__ == "__main__":
    main()
