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

from gateway.supervision import share

_T = TypeVar("_T")
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
        share.as_ever(worker.native_id)
    return done.result()


def _done(work: Callable[[], _T], done: Future[_T]) -> None:
    own = threading.get_native_id()
    if share.comes_back():
        share.what_is_left(own)
    else:
        _be_nice(own)
    try:
        done.set_result(work())
    except BaseException as exc:  # noqa: BLE001  told where it is waited for
        done.set_exception(exc)
    finally:  # where it may: a thread that ends holds the interpreter's lock
        share.as_ever(own)


def _be_nice(thread: int) -> None:
    with contextlib.suppress(OSError):  # it has ended
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICE)
