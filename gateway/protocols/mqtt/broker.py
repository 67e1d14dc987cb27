"""A mosquitto child for the demo and for tests: loopback only, nothing kept, gone with its parent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

import structlog

from gateway.core.errors import LinkBrokenError

log = structlog.get_logger().bind(component="mqtt-broker")

_START_LIMIT_S = 30.0
_STOP_GRACE_S = 2.0
_CONFIG = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
set_tcp_nodelay true
user {user}
max_packet_size 262144
max_queued_messages 1000
"""


def mosquitto_path() -> str | None:
    """Debian puts it where an ordinary user's PATH does not look."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


@asynccontextmanager
async def demo_broker(port: int, folder: Path) -> AsyncIterator[asyncio.subprocess.Process | None]:
    """A broker on 127.0.0.1:`port` while the block runs; None where mosquitto is not installed.

    It keeps the caller's user (a change of user would undo its death with the parent), accepts anonymous
    clients from this machine only and stores nothing. Raises `LinkBrokenError` when it does not start.
    """
    program = mosquitto_path()
    if program is None:
        log.warning("mosquitto_missing", consequence="MQTT is off")
        yield None
        return
    config = _write_config(port, folder)
    dies_with_us = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()
    with _log_file(folder) as output:
        process = await asyncio.create_subprocess_exec(
            *dies_with_us,
            program,
            "-c",
            str(config),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # a Ctrl-C for us is not one for it: our order of stopping holds
        )
    try:
        await _answers(process, port, folder / "mosquitto.log")
        yield process
    finally:
        await _stop(process)


def _write_config(port: int, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "mosquitto.conf"
    config.write_text(_CONFIG.format(port=port, user=pwd.getpwuid(os.getuid()).pw_name))
    return config


def _log_file(folder: Path) -> BinaryIO:
    return (folder / "mosquitto.log").open("wb")


def _logged(output: Path) -> str:
    return output.read_text(errors="replace").strip()


async def _answers(process: asyncio.subprocess.Process, port: int, output: Path) -> None:
    """Returns once our child listens; a foreign listener on the port ends the child, and that is told."""
    try:
        async with asyncio.timeout(_START_LIMIT_S):
            while " running" not in _logged(output):
                if process.returncode is not None:
                    last = " ".join(_logged(output).splitlines()[-1:])
                    raise LinkBrokenError(f"mosquitto 127.0.0.1:{port}", f"did not start: {last}")
                await asyncio.sleep(0.02)
    except TimeoutError as exc:
        raise LinkBrokenError(f"mosquitto 127.0.0.1:{port}", "does not listen") from exc


async def _stop(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):  # it may have been killed already
        process.terminate()
    try:
        async with asyncio.timeout(_STOP_GRACE_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
