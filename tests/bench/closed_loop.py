"""The demo plant under models with and without the check: violations, cost of the check, what it lets pass.

Every seed has its own disturbance, noise, delays and start. `safe` is what `tests.bench.vertices` calls safe.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from gateway.plantsim.controllers import LEVEL_SETPOINT_M, TEMPERATURE_SETPOINT_C
from gateway.plantsim.judge import HIGHEST_LEVEL_M, LEAST_LEVEL_PUMP_M
from gateway.plantsim.objective import Moment, score
from gateway.plantsim.tank import TankState
from gateway.solver.checking.terms import Budget
from gateway.solver.modules.compile import compile_module
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from tests.bench.policies import policy
from tests.bench.report import Figure
from tests.bench.simulator import Cycle, Run, demo, simulate

NAME = "closed_loop"
SEEDS, STEPS = 10, 600
MODULE = Path(__file__).parents[2] / "constraints" / "buffer-tank.json"
# From the setpoint, so that no settling hides what the check costs; `reference` starts anywhere.
SETTLED = "reference_settled"
MODELS = ("reference", SETTLED, "reckless")
# What the shipped models never are: one that never relents, one that goes everywhere, one that keeps each
# rule of the moment and goes for a limit (there a safe set that is too narrow shows).
PROBES = ("fill_and_heat", "wandering", "brink")
_PROCESSES = 2
# Time is simulated: a machine that pauses must not make an answer unknown. The work limit is the shipped one.
_BUDGET = Budget(timeout_ms=10_000)


@dataclass(frozen=True, slots=True, order=True)
class Job:
    """One run."""

    policy: str
    seed: int
    steps: int
    checked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What one run comes down to."""

    job: Job
    objective: float
    violated_steps: int
    violated: Counter[str]
    cycles: tuple[Cycle, ...]
    levels_m: tuple[float, ...]


def run(
    console: Console, *, seeds: int = SEEDS, steps: int = STEPS, plot: Path | None = None
) -> list[Figure]:
    """Every figure of this benchmark; a plot when a path is given."""
    ran = list(_all(console, [job for seed in range(seeds) for job in jobs(seed, steps)]))
    _explain(console, ran)
    if plot is not None:
        from tests.bench.closed_loop_plot import draw  # noqa: PLC0415  # matplotlib only for a plot

        draw(ran, plot)
        console.print(f"plot: {plot}")
    return figures(ran)


def jobs(seed: int, steps: int) -> list[Job]:
    """The runs of one seed, the longest first."""
    checked = [Job(name, seed, steps, checked=True) for name in (*MODELS, *PROBES)]
    return checked + [Job(name, seed, steps, checked=False) for name in (*MODELS, *PROBES)]


def start(job: Job) -> TankState:
    """Where a run begins: anywhere a tank may well be, now and then near a limit."""
    if job.policy == SETTLED:
        return TankState(LEVEL_SETPOINT_M, TEMPERATURE_SETPOINT_C)
    dice = random.Random(job.seed)  # noqa: S311  # reproducible, not a secret
    return TankState(dice.uniform(0.9, 3.3), dice.uniform(30.0, 60.0))


def execute(job: Job) -> Ran:
    """One run, in this process."""
    check = checks() if job.checked else None
    found = asyncio.run(
        simulate(policy(job.policy, job.seed), seed=job.seed, steps=job.steps, check=check, start=start(job))
    )
    return _ran(job, found)


def figures(ran: Sequence[Ran]) -> list[Figure]:
    """The numbers that have bars, and those that explain them."""

    def of(name: str, *, checked: bool) -> list[Ran]:
        return [r for r in ran if r.job.policy == name and r.job.checked is checked]

    by_policy = {n: [c for r in of(n, checked=True) for c in r.cycles] for n in (*MODELS, *PROBES)}
    everything = [c for cycles in by_policy.values() for c in cycles]

    def cost_percent(name: str) -> float:
        with_check = _mean(r.objective for r in of(name, checked=True))
        return 100 * (with_check / _mean(r.objective for r in of(name, checked=False)) - 1)

    made = {
        "reckless_unchecked_violations": _violations(of("reckless", checked=False)),
        "reckless_checked_violations": _violations(of("reckless", checked=True)),
        "reference_unchecked_violations": _violations(of("reference", checked=False)),
        "reference_checked_violations": _violations(of("reference", checked=True)),
        "probes_unchecked_violations": sum(_violations(of(n, checked=False)) for n in PROBES),
        "probes_checked_violations": sum(_violations(of(n, checked=True)) for n in PROBES),
        "reference_objective_cost_percent": cost_percent(SETTLED),
        "reference_anywhere_cost_percent": cost_percent("reference"),
        "safe_permitted_percent": safe_permitted_percent([c for name in MODELS for c in by_policy[name]]),
        "unsafe_permitted": float(sum(bool(c.unsafe) and c.unchanged for c in everything)),
    }
    for name, cycles in by_policy.items():
        made[f"{name}_no_action_percent"] = no_action_percent(cycles)
    for name in PROBES:
        made[f"{name}_safe_permitted_percent"] = safe_permitted_percent(by_policy[name])
    levels = [level for r in of("brink", checked=True) for level in r.levels_m]
    made["brink_nearest_overflow_mm"] = 1000 * (HIGHEST_LEVEL_M - max(levels))
    made["brink_nearest_dry_run_mm"] = 1000 * (min(levels) - LEAST_LEVEL_PUMP_M)
    return [Figure(NAME, name, value) for name, value in made.items()]


def safe_permitted_percent(cycles: Sequence[Cycle]) -> float:
    """Of the proposals that vertex sampling calls safe, those permitted as they were; nan of none."""
    safe = [c for c in cycles if not c.unsafe]
    return 100 * sum(c.unchanged for c in safe) / len(safe) if safe else float("nan")


def no_action_percent(cycles: Sequence[Cycle]) -> float:
    """Cycles in which neither the proposal, a repair nor a fallback was permitted (S1); recovery counts."""
    idle = sum(c.written_by in {"", "recovery"} for c in cycles)
    return 100 * idle / len(cycles) if cycles else float("nan")


def _all(console: Console, todo: list[Job]) -> Iterable[Ran]:
    context = multiprocessing.get_context("spawn")
    with (
        Progress(console=console) as progress,
        ProcessPoolExecutor(_PROCESSES, mp_context=context) as pool,
    ):
        task = progress.add_task("closed loop", total=len(todo))
        for done in as_completed([pool.submit(execute, job) for job in todo]):
            progress.advance(task)
            yield done.result()


def _ran(job: Job, found: Run) -> Ran:
    moments: list[Moment] = found.moments
    return Ran(
        job=job,
        objective=score(moments).objective,
        violated_steps=found.violated_steps,
        violated=found.violated,
        cycles=tuple(found.cycles),
        levels_m=tuple(round(m.state.level_m, 4) for m in moments),
    )


@lru_cache(maxsize=1)
def checks() -> Checks:
    """The demo's checker, as patient as a slow machine needs."""
    _, definitions = demo()
    return Checks(RuleSet.of([compile_module(MODULE.read_bytes(), MODULE.name, definitions)], 1), _BUDGET)


def _violations(ran: Iterable[Ran]) -> float:
    return float(sum(r.violated_steps for r in ran))


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def _explain(console: Console, ran: Sequence[Ran]) -> None:
    """Who broke what, and which safe proposals were not permitted, by the rule that stopped them."""
    table = Table("policy", "check", "steps with a violation", "by constraint", "mean objective", "outcomes")
    for name in (*MODELS, *PROBES):
        for checked in (False, True):
            mine = [r for r in ran if r.job.policy == name and r.job.checked is checked]
            broken: Counter[str] = sum((r.violated for r in mine), Counter())
            outcomes = Counter(
                f"{c.outcome}/{c.written_by or 'nothing'}" if c.outcome != "permitted" else c.outcome
                for r in mine
                for c in r.cycles
            )
            table.add_row(
                name,
                "with" if checked else "without",
                f"{_violations(mine):g}",
                _counted(broken),
                f"{_mean(r.objective for r in mine):.4f}",
                _counted(outcomes),
            )
    console.print(table)
    checked_cycles = [(r.job.policy, c) for r in ran for c in r.cycles]
    stopped = Counter(
        f"{name}: {c.refused_for}" for name, c in checked_cycles if not (c.unsafe or c.unchanged)
    )
    console.print(f"safe proposals not permitted unchanged: {_counted(stopped) or 'none'}")
    changed = Counter(c.refused_for for name, c in checked_cycles if name == SETTLED and not c.unchanged)
    console.print(f"what the check changed of {SETTLED}: {_counted(changed) or 'nothing'}")


def _counted(found: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in found.most_common())
