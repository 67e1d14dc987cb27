"""Requests at a steady rate while bundles are swapped: what the test and the benchmark of a swap share."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gateway.core.clock import Deadline, SystemClock
from gateway.core.decision import Proposal
from gateway.core.errors import InferenceError
from gateway.inference.client.model_engine import ModelEngine
from gateway.inference.client.past import MOST_MOMENTS, Moment
from gateway.inference.client.served import ServedModel
from tests.unit.inference_demo import in_force, snapshot

CLOCK = SystemClock()
_TOLD = ("are left and an answer takes about", "are under way already")  # the words of admission


@dataclass(slots=True)
class Load:
    """Five points that ask, together, so often a second; every outcome is kept."""

    served: ServedModel
    per_s: float
    deadline_s: float
    answered_ms: list[float] = field(default_factory=list)
    digests: set[str] = field(default_factory=set)
    late: int = 0  # told so at their own deadline, or at once where they could not be in time or find a place
    lost: list[BaseException] = field(default_factory=list)

    @property
    def asked(self) -> int:
        """All of them."""
        return len(self.answered_ms) + self.late + len(self.lost)

    async def run(self, until: asyncio.Event) -> None:
        """Open loop: a slow answer does not hold the next request. Returns when all are answered."""
        loop, due = asyncio.get_running_loop(), time.monotonic()
        asked: set[asyncio.Task[None]] = set()
        for number in itertools.count():
            if until.is_set():
                break
            task = loop.create_task(self._one(number))
            asked.add(task)
            task.add_done_callback(asked.discard)
            due = max(due + 1 / self.per_s, time.monotonic())
            try:
                async with asyncio.timeout(due - time.monotonic()):
                    await until.wait()
            except TimeoutError:
                continue
        while asked:
            await asyncio.wait(set(asked))

    async def _one(self, number: int) -> None:
        started = time.monotonic()
        deadline = Deadline.after(self.deadline_s, CLOCK)
        taken = snapshot(CLOCK.monotonic(), temperature=40.0 + number % 20)
        try:
            proposal: Proposal = await self.served.for_point(f"p{number % 5}").propose(
                taken, in_force(), deadline
            )
        except InferenceError as exc:
            if deadline.passed(CLOCK) or any(words in str(exc) for words in _TOLD):
                self.late += 1
            else:
                self.lost.append(exc)
        except Exception as exc:  # noqa: BLE001  # whatever it is, it is a request that was lost
            self.lost.append(exc)
        else:
            self.answered_ms.append(1e3 * (time.monotonic() - started))
            self.digests.add(proposal.model_digest)


def full_pasts() -> dict[str, tuple[list[Moment], int]]:
    """As long a past as is kept, for each of the five points, up to now: from here on it does not grow."""
    now = CLOCK.monotonic()
    ages = range(MOST_MOMENTS, 0, -1)
    return {
        f"p{point}": (
            [Moment(now - age, snapshot(now - age, temperature=40.0 + age % 20), in_force()) for age in ages],
            1,
        )
        for point in range(5)
    }


async def agreed(_fresh: ModelEngine) -> None:
    """Nobody has anything against the successor."""


async def swap(served: ServedModel, folders: Sequence[Path], times: int) -> list[float]:
    """That many swaps, one after another, over the folders in turn; seconds of each."""
    took = []
    for number in range(times):
        started = time.monotonic()
        await served.take(folders[number % len(folders)], agreed)
        took.append(time.monotonic() - started)
    return took
