"""The pool of solver workers as tests have it: what its workers say does not depend on the machine's pace."""

from __future__ import annotations

from gateway.solver.workers.pool import CheckerPool
from gateway.supervision.worker import WorkerProcess


class PatientPool(CheckerPool):
    """Its workers are the true ones but for the time of one query."""

    def _worker(self, number: int) -> WorkerProcess:
        return WorkerProcess("tests.fakes.patient_worker", self._arguments, name=f"solver-{number}")
