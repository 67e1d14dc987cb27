"""Work that gives way: at which priority it runs, how long, and what comes of it."""

from __future__ import annotations

import os
import threading

import pytest

from gateway.inference.kv.backend import ProviderTruth
from gateway.inference.serving.costs import stopwatch
from gateway.inference.serving.giving_way import giving_way
from gateway.supervision import share

_LONG_S = 30.0


def _standing() -> tuple[int, int]:
    """Policy and nice value of the calling thread."""
    return os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def _lowered(standing: tuple[int, int], own: tuple[int, int]) -> bool:
    return standing[0] == os.SCHED_IDLE or standing[1] > own[1]


def test_the_work_gives_way_and_the_caller_stays_as_it_was() -> None:
    before = _standing()
    assert _lowered(giving_way(_standing, _LONG_S), before)
    assert _standing() == before


def test_what_takes_too_long_gets_a_share() -> None:
    waited = threading.Event()

    def work() -> tuple[int, int]:
        while os.sched_getscheduler(0) == os.SCHED_IDLE:
            waited.wait(0.001)  # until it is raised; the event is never set
        return _standing()

    assert giving_way(work, 0.01)[0] != os.SCHED_IDLE


def test_where_nobody_may_raise_it_again_it_keeps_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share, "comes_back", lambda: False)
    before = _standing()
    policy, nice = giving_way(_standing, _LONG_S)

    assert policy == before[0]
    assert nice == min(19, before[1] + 5)
    assert _standing() == before


def test_what_it_raises_is_raised() -> None:
    def work() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        giving_way(work, _LONG_S)


def test_costs_on_a_processor_are_the_threads_own_time() -> None:
    """Else a model tested beside busy neighbours would count as slow."""
    own, wall = (stopwatch(ProviderTruth("auto", name, "1")) for name in ("CPUExecutionProvider", "Another"))
    began = own(), wall()
    threading.Event().wait(0.05)
    assert own() - began[0] < 0.04
    assert wall() - began[1] >= 0.04
