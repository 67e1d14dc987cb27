"""The pool of solver workers as tests have it: what its workers say does not depend on the machine's pace."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gateway.core.clock import Deadline, SystemClock
from gateway.solver.workers.pool import CheckerPool
from gateway.supervision.worker import WorkerProcess
from tests.unit.solver_demo import rule_set

CLOCK = SystemClock()


class PatientPool(CheckerPool):
    """Its workers are the true ones but for the time of one query."""

    def _worker(self, number: int) -> WorkerProcess:
        return WorkerProcess("tests.fakes.patient_worker", self._arguments, name=f"solver-{number}")


async def two_workers() -> AsyncIterator[CheckerPool]:
    """Serving the demo's rule set; none is left behind."""
    made = PatientPool(2, CLOCK, warm=[(1.2, 0.3)])
    await made.start()
    await made.load(rule_set())
    yield made
    await made.aclose()
    assert made.pids() == ()


def soon() -> Deadline:
    """As long as a slow machine needs."""
    return Deadline.after(60.0, CLOCK)
