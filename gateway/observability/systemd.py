"""The service manager's notify socket, natively (sd_notify(3)); silently absent elsewhere."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping

_US_PER_S = 1_000_000


def sd_notify(state: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Tell systemd `state` (`READY=1`, `STOPPING=1`, `WATCHDOG=1`, lines joined); False outside systemd.

    Never blocks and never raises: a service manager that does not listen must not stop the plant.
    """
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]  # abstract namespace, unix(7)
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock,
    ):
        sock.setblocking(False)  # noqa: FBT003
        sock.sendto(state.encode(), address)
        return True
    return False


def watchdog_interval_s(environ: Mapping[str, str] = os.environ, pid: int | None = None) -> float | None:
    """Seconds within which systemd expects `WATCHDOG=1` of this process, or None (sd_watchdog_enabled(3))."""
    meant_for = environ.get("WATCHDOG_PID", "")
    if meant_for and meant_for != str(os.getpid() if pid is None else pid):
        return None
    text = environ.get("WATCHDOG_USEC", "")
    if not text.isdecimal() or int(text) == 0:
        return None
    return int(text) / _US_PER_S
