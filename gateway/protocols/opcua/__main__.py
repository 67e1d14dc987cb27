"""`python -m gateway.protocols.opcua --link SOCKET --config FILE ...`: the process o3-opcua."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path

import structlog

from gateway.core.errors import ConfigError
from gateway.link.client import LinkClient
from gateway.protocols.opcua.process import follow, freeze, serving
from gateway.protocols.opcua.settings import Settings, load
from gateway.supervision.child_log import log_as_parent

log = structlog.get_logger().bind(component="opcua")

EXIT_CONFIG, EXIT_LISTEN = 2, 3
_PARENT_LOOK_S = 0.5


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM, SIGINT or the end of the parent process; 2: settings, 3: cannot listen."""
    parser = argparse.ArgumentParser(prog="o3-opcua")
    parser.add_argument("--link", type=Path, required=True, help="the daemon's internal port")
    parser.add_argument("--config", type=Path, required=True, help="settings, JSON")
    parser.add_argument(
        "--parent",
        type=int,
        default=os.getppid(),
        metavar="PID",
        help="end when this is no longer the parent",
    )
    parser.add_argument("--ready-fd", type=int, help="`PORT\\n` is written there once it listens")
    options = parser.parse_args(arguments)
    log_as_parent()
    logging.getLogger("asyncua").setLevel(logging.CRITICAL)  # it tells strangers' mistakes at error level
    try:
        settings = load(options.config)
    except ConfigError as exc:
        sys.stderr.write(f"{exc}\n")
        return EXIT_CONFIG
    try:
        asyncio.run(_run(settings, options.link, options.ready_fd, options.parent))
    except ConfigError as exc:
        log.error("cannot_serve", problem=str(exc))  # noqa: TRY400  # a sentence for people
        return EXIT_CONFIG
    except OSError as exc:
        sys.stderr.write(f"cannot listen on {settings.host}:{settings.port}: {exc.strerror or exc}\n")
        return EXIT_LISTEN
    return 0


async def _run(settings: Settings, link: Path, ready_fd: int | None, parent: int) -> None:
    async with serving(settings) as running:
        following = asyncio.create_task(
            follow(running, lambda: LinkClient.connect(link, "o3-opcua")), name="opcua-follow"
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, following.cancel)
        watching = asyncio.create_task(_end_with(parent, following), name="opcua-parent")
        freeze()
        if ready_fd is not None:
            os.write(ready_fd, f"{running.server.port}\n".encode())
            os.close(ready_fd)
        with contextlib.suppress(asyncio.CancelledError):  # a signal, or the end of the loop
            await following
        watching.cancel()


async def _end_with(parent: int, following: asyncio.Task[None]) -> None:
    """A daemon killed outright leaves nobody holding the port of the next one's o3-opcua.

    `parent` is as the daemon gave it: it may have ended before this process could ask.
    """
    while os.getppid() == parent:  # noqa: ASYNC110 - the kernel offers no event for it
        await asyncio.sleep(_PARENT_LOOK_S)
    log.warning("parent_ended")
    following.cancel()


if __name__ == "__main__":
    raise SystemExit(main())
