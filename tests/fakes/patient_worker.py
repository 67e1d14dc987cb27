"""A solver worker whose queries have seconds: a machine that pauses makes none of its answers unknown."""

from __future__ import annotations

from functools import partial

from gateway.solver.checking.terms import Budget
from gateway.solver.workers import check, worker

if __name__ == "__main__":
    vars(check)["Budget"] = partial(Budget, timeout_ms=10_000)
    worker.main()
