"""What a process has of the processor: its share as ever, or only the time that nobody else wants."""

from __future__ import annotations

import contextlib
import os
import threading


def as_ever(pid: int) -> None:
    """The usual share for a child; but one that we wake does not put us to sleep on our own core.

    We may have more to send: without it the engine began its work half the time where main was.
    """
    with contextlib.suppress(AttributeError, OSError):  # not on this system, or not allowed
        os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))


def what_is_left(pid: int) -> None:
    """Only the time that nobody else wants: whoever wakes up takes the core at once."""
    with contextlib.suppress(AttributeError, OSError):  # as above
        os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


def comes_back() -> bool:
    """Whether a process of ours has its share `as_ever` again after `what_is_left`.

    Linux grants that to the privileged and to whoever has a limit for `nice` of 0 or below (`LimitNICE=+0`).
    """
    found: list[bool] = []

    def tried() -> None:  # in a thread that ends whatever comes of it: the scheduler knows threads
        with contextlib.suppress(AttributeError, OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
            found.append(True)

    thread = threading.Thread(target=tried, name="scheduling class")
    thread.start()
    thread.join()
    return bool(found)
