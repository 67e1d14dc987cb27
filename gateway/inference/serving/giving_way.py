"""Work in the time that nobody else wants: on a thread of its own, at the lowest priority.

On Linux a priority is a thread's. So the process is as it was when the thread has ended, and needs no right
to raise itself.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")
_IDLE, _ORDINARY = 5, 3  # Linux's SCHED_IDLE, and SCHED_BATCH as every worker runs; see `supervision.worker`
_NICE = 5  # a third of what a busy neighbour gets, on one core


def giving_way(work: Callable[[], _T], patience_s: float) -> _T:
    """What `work` gives, or raises. After `patience_s` it gets a share of the time that others want, too.

    Idle threads get next to nothing beside busy ones. Where a thread may not be raised again, it has its
    share from the start.
    """
    done: Future[_T] = Future()
    worker = threading.Thread(target=_done, args=(work, done), name="giving-way")
    worker.start()
    worker.join(patience_s)
    if worker.is_alive() and worker.native_id is not None:
        _be_nice(worker.native_id)
        _schedule(worker.native_id, _ORDINARY)
    return done.result()


def _done(work: Callable[[], _T], done: Future[_T]) -> None:
    _give_way()
    try:
        done.set_result(work())
    except BaseException as exc:  # noqa: BLE001  told where it is waited for
        done.set_exception(exc)
    finally:  # where it may: a thread that ends holds the interpreter's lock
        _schedule(threading.get_native_id(), _ORDINARY)


def _give_way() -> None:
    own = threading.get_native_id()
    if _can_come_back():
        _schedule(own, _IDLE)
    else:
        _be_nice(own)


def _can_come_back() -> bool:
    """Whether an idle thread may be made an ordinary one again; tried on one that is not needed."""
    found: list[bool] = []

    def tried() -> None:
        own = threading.get_native_id()
        found.append(_schedule(own, _IDLE) and _schedule(own, _ORDINARY))

    trial = threading.Thread(target=tried, name="giving-way-tried")
    trial.start()
    trial.join()
    return found == [True]


def _be_nice(thread: int) -> None:
    with contextlib.suppress(OSError):  # it has ended
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICE)


def _schedule(thread: int, policy: int) -> bool:
    try:
        os.sched_setscheduler(thread, policy, os.sched_param(0))
    except (AttributeError, OSError):  # not on this system, not allowed, or it has ended
        return False
    return True
