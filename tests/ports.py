"""Ports for servers in other processes, which are told theirs before they start."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

_GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST = 20_000  # above what servers on a developer's machine use
_FEWEST = 1_000
_CHANCE = random.SystemRandom()  # two runs with one seed must not choose the same


def free_ports(count: int) -> list[int]:
    """Ports nobody has, all different, and none of those that the system gives to whoever connects.

    So none is taken by chance before its server starts, or while one that was killed is away.
    """
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            one = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):  # somebody has it: the next one
                one.bind(("127.0.0.1", _candidate()))
                found.append(one.getsockname()[1])
        return found


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]


def _candidate() -> int:
    """A port by chance; 0, which is any, where the system leaves too few to choose from."""
    first_given = int(_GIVEN.read_text().split()[0]) if _GIVEN.exists() else 0
    return _CHANCE.randrange(_FIRST, first_given) if first_given >= _FIRST + _FEWEST else 0
