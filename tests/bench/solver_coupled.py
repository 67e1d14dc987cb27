"""Checks of plants whose states all move each other, beside the query one would write down first.

The families of `solver` are tanks side by side: each state depends on itself, its inflow and its pump, and
Z3's own preprocessing takes such an unrolled query apart. Here it cannot (`train` says what these stand for).
The unrolled query is given `PATIENCE_S` at most: where it has not answered by then, the ratio is at least
what is told, so this wants a quiet machine. CPU time in one process, as in `solver`.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from gateway.solver.workers.check import Checks
from tests.bench.naive import Naive
from tests.bench.report import Figure, percentile
from tests.bench.synthetic import DELAY_S, HOLD_S
from tests.bench.train import Train, requests, rule_set

CHECKS = 200
PATIENCE_S = 120.0
NAIVE = {  # how many decisions the unrolled query is asked for: seconds to minutes each
    Train(rules=10): 5,
    Train(rules=50, returns=False): 5,
    Train(rules=50): 5,
    Train(rules=50, horizon=1, returns=False): 2,
    Train(rules=50, horizon=1): 2,
    Train(rules=50, horizon=5, returns=False): 0,
    Train(rules=50, horizon=5): 1,
    Train(rules=50, horizon=10): 0,
    Train(rules=200): 0,
    Train(rules=200, horizon=5): 0,
}


@dataclass(slots=True)
class Measured:
    """Times in ms of one family."""

    compile_ms: float = 0.0
    check_ms: list[float] = field(default_factory=list)
    naive_ms: list[float] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    silent: int = 0  # unrolled queries without an answer
    unlike: int = 0

    @property
    def ratio(self) -> float:
        """Median of the unrolled query over ours, on the same decisions."""
        return percentile(self.naive_ms, 0.5) / percentile(self.check_ms[: len(self.naive_ms)], 0.5)


def run(console: Console) -> list[Figure]:
    """Every family."""
    found: dict[Train, Measured] = {}
    gc.disable()
    try:
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task("families", total=len(NAIVE))
            for train, beside in NAIVE.items():
                progress.update(task, description=train.name)
                found[train] = _measured(train, beside)
                progress.advance(task)
    finally:
        gc.unfreeze()
        gc.enable()
    _show(console, found)
    fifty, one, five = (found[Train(rules=50, horizon=steps)] for steps in (0, 1, 5))
    verdicts = Counter(verdict for m in found.values() for verdict in m.verdicts)
    made = {
        "faster_than_naive_50_safe_set": fifty.ratio,
        "faster_than_naive_50_horizon_1": one.ratio,
        "faster_than_naive_50_horizon_5": five.ratio,
        "check_50_cpu_p50_ms": percentile(fifty.check_ms, 0.5),
        "check_50_cpu_p99_ms": percentile(fifty.check_ms, 0.99),
        "check_50_horizon_5_cpu_p50_ms": percentile(five.check_ms, 0.5),
        "check_50_horizon_5_cpu_p99_ms": percentile(five.check_ms, 0.99),
        "compile_50_horizon_5_ms": five.compile_ms,
        "undetermined_percent": 100 * verdicts["Undetermined"] / verdicts.total(),
        "verdicts_unlike_naive": sum(m.unlike for m in found.values()),
    }
    return [Figure("solver_coupled", name, value) for name, value in made.items()]


def _measured(train: Train, beside: int) -> Measured:
    found = Measured()
    started = time.process_time()
    rules = rule_set(train)
    checks = Checks(rules)
    checks.warm(HOLD_S, DELAY_S)
    found.compile_ms = 1000 * (time.process_time() - started)
    gc.collect()
    gc.freeze()
    for request in requests(5, seed=0):
        checks.check(request)
    asked = list(requests(CHECKS, seed=1))
    for request in asked:
        started = time.process_time()
        result, _ = checks.check(request)
        found.check_ms.append(1000 * (time.process_time() - started))
        found.verdicts.append(type(result.verdict).__name__)
    naive = Naive(rules, PATIENCE_S)
    for request, ours in zip(asked[:beside], found.verdicts, strict=False):
        started = time.process_time()
        says = naive.permitted(request)
        found.naive_ms.append(1000 * (time.process_time() - started))
        found.silent += says == "undetermined"
        found.unlike += "undetermined" not in {says, ours.lower()} and says != ours.lower()
    return found


def _show(console: Console, found: dict[Train, Measured]) -> None:
    table = Table("rules", "compile", "check p50", "p99", "naive p50", "ratio", "verdicts", "unlike")
    for train, m in found.items():
        least = "over " if m.silent else ""
        beside = [f"{least}{percentile(m.naive_ms, 0.5):.0f}", f"{least}{m.ratio:.0f}"]
        counts = Counter(verdict[:5].lower() for verdict in m.verdicts)
        table.add_row(
            train.name,
            f"{m.compile_ms:.0f} ms",
            f"{percentile(m.check_ms, 0.5):.2f}",
            f"{percentile(m.check_ms, 0.99):.2f}",
            *(beside if m.naive_ms else ["-", "-"]),
            " ".join(f"{name} {count}" for name, count in sorted(counts.items())),
            str(m.unlike) if m.naive_ms else "-",
        )
    console.print(table)
