"""kill -9 of our own processes, again and again, while a prober asks twenty times a second."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import psutil

from gateway.plantsim.plc import Status
from tests.integration.house import SLOWEST, House
from tests.integration.picture import Picture
from tests.integration.prober import Prober

LEASE_S = 3.0

Told = Callable[[str], None]


@dataclass(slots=True)
class Recoveries:
    """Rounds of one fault; `others` counts, by kind, what else was answered until all was as before."""

    what: str
    took_s: list[float] = field(default_factory=list)  # kill to the next verdict on the model's proposal
    others: Counter[str] = field(default_factory=Counter)

    @property
    def median_s(self) -> float:
        """Of the rounds; at least one is needed."""
        return statistics.median(self.took_s)

    @property
    def worst_s(self) -> float:
        """Of the rounds."""
        return max(self.took_s)

    @property
    def fallbacks(self) -> int:
        """Verdicts on a fallback instead of the proposal."""
        return sum(count for kind, count in self.others.items() if kind.startswith("fallback "))

    def note(self, took_s: float, others: dict[str, int]) -> str:
        """One more round, in words."""
        self.took_s.append(took_s)
        self.others.update(others)
        return f"{self.what} killed: next correct verdict after {1000 * took_s:.0f} ms; others: {others}"

    def summary(self, bar_s: float) -> str:
        """Median against its bar, the worst, and what else was answered."""
        missed = "" if self.median_s <= bar_s else ", MISSED"
        return (
            f"{self.what}: fault to next correct verdict, {len(self.took_s)} rounds: median "
            f"{1000 * self.median_s:.0f} ms (bar {1000 * bar_s:.0f} ms{missed}), worst "
            f"{1000 * self.worst_s:.0f} ms; others: {dict(self.others)}"
        )


async def kill_workers(house: House, prober: Prober, part: str, rounds: int, told: Told) -> Recoveries:
    """One worker of a part each round; the others of the part are there before each."""
    found = Recoveries(f"{part} worker")
    for _ in range(rounds):
        before, replaced = house.pids(part), house.logged("worker_replaced")
        at = time.monotonic()
        os.kill(before[0], signal.SIGKILL)
        took = await prober.next_correct(at, 20.0)
        as_before = partial(_replaced, house, part=part, before=before, replaced=replaced)
        await house.until(as_before, 30, f"the {part} part as before")
        await prober.next_correct(time.monotonic(), 20.0)
        told(found.note(took, prober.others(at)))
    return found


async def kill_daemon(house: House, prober: Prober, rounds: int, told: Told) -> Recoveries:
    """The daemon, restarted at once: the lease ends, the PLC falls back, the point arms itself (S23)."""
    found = Recoveries("daemon")
    for _ in range(rounds):
        assert house.daemon is not None
        children = psutil.Process(house.daemon.pid).children(recursive=True)
        named = {child.pid: _named(child) for child in children}
        at = time.monotonic()
        house.daemon.kill()
        await house.daemon.wait()
        await house.start_daemon()
        fell_back = await house.panel.until(given_up, LEASE_S + 2.0)
        took = await prober.next_correct(at, 40.0)
        said = found.note(took, prober.others(at))
        told(f"{said}; PLC's own control after {fell_back:.2f} s")
        gone, alive = await asyncio.to_thread(psutil.wait_procs, children, SLOWEST * 5.0)
        left = [named[child.pid] for child in alive]
        assert not left, f"{len(gone)} children ended with the daemon, these did not: {left}"
        await house.panel.until(in_control, 40.0)
        await house.until(lambda p: p.mode == "armed", 5.0, "armed by itself, as it was before (S23)")
    return found


async def recovered(house: House, usual_s: float = 40.0) -> float:
    """Seconds until the PLC is under the gateway's control again by a write confirmed from now on."""
    started = time.monotonic()
    await house.until(lambda p: p.wrote(started), usual_s, "a confirmed write after the fault")
    await house.panel.until(in_control, 5.0)
    await house.until(lambda p: p.mode == "armed", 5.0, "armed as before")
    return time.monotonic() - started


def in_control(words: list[int]) -> bool:
    """Whether the PLC's registers say that the gateway has the plant."""
    return bool(words[1] & Status.IN_CONTROL)


def given_up(words: list[int]) -> bool:
    """Whether they say that it has not."""
    return not in_control(words)


def _named(child: psutil.Process) -> str:
    try:
        return " ".join(child.cmdline())
    except psutil.NoSuchProcess:
        return "ended already"


def _replaced(house: House, _picture: Picture, *, part: str, before: list[int], replaced: int) -> bool:
    """Whether a part has its full number of workers again, warm, and the killed one is not among them."""
    now = house.pids(part)
    if len(now) < len(before) or before[0] in now:
        return False
    if part != "solver":
        return True
    return house.logged("worker_replaced") > replaced
