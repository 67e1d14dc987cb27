"""Checks and repairs of rule sets of all sizes, beside the query one would write down first.

CPU time in one process, without the way to a worker: what the check itself costs. As in a worker, garbage
is collected between checks and never within one.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from fractions import Fraction

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from gateway.core.decision import Refused, Repaired
from gateway.core.ports import CheckRequest
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from tests.bench.naive import Naive
from tests.bench.report import Figure, percentile
from tests.bench.synthetic import DELAY_S, HOLD_S, Family, requests, rule_set

CHECKS = 300
REPAIRS = 60
NAIVE = 20
FAMILIES = (
    *(Family(rules=n, horizon=h) for n in (10, 50, 200) for h in (0, 1, 5, 10)),
    *(Family(rules=n, products=True) for n in (10, 50, 200)),
)


@dataclass(slots=True)
class Measured:
    """Times in ms of one family."""

    compile_ms: float = 0.0
    check_ms: list[float] = field(default_factory=list)
    repair_ms: list[float] = field(default_factory=list)
    nearest_ms: list[float] = field(default_factory=list)  # the same where it may lie anywhere
    nearer: int = 0  # of those found on the way and anywhere, nearer to what was proposed
    found: int = 0
    naive_ms: list[float] = field(default_factory=list)
    beside_ms: list[float] = field(default_factory=list)  # ours on the decisions that the naive query had
    verdicts: Counter[str] = field(default_factory=Counter)
    disagreed: int = 0


def run(console: Console) -> list[Figure]:
    """Every family; the reference answers the first decisions of each."""
    found: dict[Family, Measured] = {}
    gc.disable()
    try:
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task("families", total=len(FAMILIES))
            for family in FAMILIES:
                progress.update(task, description=family.name)
                found[family] = _measured(family)
                progress.advance(task)
    finally:
        gc.unfreeze()
        gc.enable()
    _show(console, found)
    fifty, two_hundred = found[Family(rules=50)], found[Family(rules=200)]
    five = found[Family(rules=50, horizon=5)]
    asked = sum(m.verdicts.total() for m in found.values())
    return [
        Figure("solver", "faster_than_naive_50_horizon_5", _ratio(five)),
        Figure("solver", "faster_than_naive_50_safe_set", _ratio(fifty)),
        Figure("solver", "check_50_cpu_p50_ms", percentile(fifty.check_ms, 0.5)),
        Figure("solver", "check_50_cpu_p99_ms", percentile(fifty.check_ms, 0.99)),
        Figure("solver", "check_200_cpu_p99_ms", percentile(two_hundred.check_ms, 0.99)),
        Figure("solver", "repair_50_p50_ms", percentile(fifty.repair_ms, 0.5)),
        Figure("solver", "nearest_repair_50_p50_ms", percentile(fifty.nearest_ms, 0.5)),
        Figure("solver", "nearest_repair_50_p99_ms", percentile(fifty.nearest_ms, 0.99)),
        Figure("solver", "nearest_not_nearer", sum(m.found - m.nearer for m in found.values())),
        Figure("solver", "compile_50_ms", fifty.compile_ms),
        Figure(
            "solver",
            "undetermined_percent",
            100 * sum(m.verdicts["Undetermined"] for m in found.values()) / asked,
        ),
        Figure("solver", "verdicts_unlike_naive", sum(m.disagreed for m in found.values())),
    ]


def _measured(family: Family) -> Measured:
    found = Measured()
    started = time.process_time()
    rules = rule_set(family)
    checks = Checks(rules)
    checks.warm(HOLD_S, DELAY_S)
    found.compile_ms = 1000 * (time.process_time() - started)
    gc.collect()
    gc.freeze()
    for request in requests(family, 5, seed=0, may_repair=False):
        checks.check(request)
    asked = list(requests(family, CHECKS, seed=1, may_repair=False))
    for request in asked:
        result, took_ms = _timed(checks, request)
        found.check_ms.append(took_ms)
        found.verdicts[result] += 1
    for request in requests(family, 40 * REPAIRS, seed=2, may_repair=True):
        if len(found.repair_ms) == REPAIRS:
            break
        result, took_ms = _timed(checks, request) if int(request.decision[2:]) % 2 else ("", 0.0)
        if result in {Repaired.__name__, Refused.__name__}:
            found.repair_ms.append(took_ms)
            _anywhere(found, rules, checks, request)
    _beside_naive(found, Naive(rules), checks, asked[:NAIVE])
    return found


def _anywhere(found: Measured, rules: RuleSet, checks: Checks, request: CheckRequest) -> None:
    """The same proposal with its repair wherever that is nearest."""
    anywhere = replace(request, repair="nearest")
    if not found.nearest_ms:
        checks.check(anywhere)  # what the first one pays for all
    started = time.process_time()
    there, _ = checks.check(anywhere)
    found.nearest_ms.append(1000 * (time.process_time() - started))
    plain, _ = checks.check(request)
    if isinstance(plain.verdict, Repaired):
        found.found += 1
        far = _far(rules, request, plain.verdict)
        found.nearer += isinstance(there.verdict, Repaired) and _far(rules, request, there.verdict) <= far


def _far(rules: RuleSet, request: CheckRequest, verdict: Repaired) -> Fraction:
    """How far from what was proposed, as shares of ranges."""
    wanted = request.proposal.engineering() if request.proposal is not None else {}
    spans = {v.tag: v.range[1] - v.range[0] for v in rules.actions}
    return sum((abs(v.value - wanted[v.tag]) / spans[v.tag] for v in verdict.setpoints), Fraction(0))


def _beside_naive(found: Measured, naive: Naive, checks: Checks, asked: list[CheckRequest]) -> None:
    for request in asked:
        started = time.process_time()
        says = naive.permitted(request)
        found.naive_ms.append(1000 * (time.process_time() - started))
        ours, took_ms = _timed(checks, request)
        found.beside_ms.append(took_ms)
        known = "undetermined" not in {says, ours.lower()}
        found.disagreed += known and says != ours.lower()


def _timed(checks: Checks, request: CheckRequest) -> tuple[str, float]:
    started = time.process_time()
    result, _ = checks.check(request)
    return type(result.verdict).__name__, 1000 * (time.process_time() - started)


def _ratio(measured: Measured) -> float:
    return percentile(measured.naive_ms, 0.5) / percentile(measured.beside_ms, 0.5)


def _show(console: Console, found: dict[Family, Measured]) -> None:
    table = Table(
        "rules",
        "compile",
        "check p50",
        "p99",
        "repair p50",
        "nearest p50",
        "naive p50",
        "ratio",
        "verdicts",
        "unlike",
    )
    for family, m in found.items():
        table.add_row(
            family.name,
            f"{m.compile_ms:.0f} ms",
            f"{percentile(m.check_ms, 0.5):.2f}",
            f"{percentile(m.check_ms, 0.99):.2f}",
            f"{percentile(m.repair_ms, 0.5):.2f}",
            f"{percentile(m.nearest_ms, 0.5):.2f}",
            f"{percentile(m.naive_ms, 0.5):.0f}",
            f"{_ratio(m):.0f}",
            " ".join(f"{name[:5].lower()} {count}" for name, count in sorted(m.verdicts.items())),
            str(m.disagreed),
        )
    console.print(table)
