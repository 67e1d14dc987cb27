"""What the interpreter must not do to an event loop that decisions wait for."""

from __future__ import annotations

import gc
import sys

HELD_S = 0.0005  # by a thread that computes, at each turn of the loop; Python's own is ten times as long


def before_traffic() -> None:
    """For a process that keeps few cycles and has started: nothing holds its loop for long from now on.

    Full collections would, for hundreds of milliseconds. And a thread that computes would at every turn of
    the loop: while one compiled modules, a question to a worker took 6 ms, and takes 0.7.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    sys.setswitchinterval(HELD_S)
