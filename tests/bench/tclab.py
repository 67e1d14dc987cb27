"""The `tclab` package's twin behind its shipped module: is anything violated, and what does the check cost?

Each of six proposers drives the twin with the check and without. What is safe is found by vertex sampling,
in floats and without the solver: from the worst vertex of the state set the proposal for one step, then the
backup.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from gateway.solver.workers.check import Checks
from tests.bench.report import Figure
from tests.bench.tclab_proposers import PROPOSERS, setpoints
from tests.bench.tclab_twin import Loop, Tally, checks

SEEDS, STEPS = 10, 600
# Who asks for what a plant is run with; `rising` and `full` do nothing but press against the limits.
_USUAL = ("anything", "wandering", "faulty", "controller")


@dataclass(slots=True)
class Driven:
    """One proposer: with the check, and without."""

    checked: Tally = field(default_factory=Tally)
    unchecked: Tally = field(default_factory=Tally)
    cpu_s: float = 0.0


def run(console: Console, seeds: int = SEEDS, steps: int = STEPS, first: int = 0) -> list[Figure]:
    """Every proposer on `seeds` twins from seed `first` on, `steps` of 10 s each."""
    known = checks()
    found = {name: Driven() for name in PROPOSERS}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(PROPOSERS) * seeds * steps)
        for seed in range(first, first + seeds):
            for name, mine in found.items():
                progress.update(task, description=f"{name}, seed {seed}")
                drive(known, mine, name, seed, steps, lambda: progress.advance(task))
    _show(console, found)
    return figures(found)


def drive(
    known: Checks, found: Driven, name: str, seed: int, steps: int, told: Callable[[], object] = lambda: None
) -> None:
    """One proposer on one twin, without the check and with it; `told` after each checked step."""
    aims = setpoints(seed)
    found.unchecked += Loop(PROPOSERS[name](seed), seed, None).run(steps, aims)
    loop = Loop(PROPOSERS[name](seed), seed, known)
    started = time.process_time()
    found.checked += loop.run(steps, aims, told)
    found.cpu_s += time.process_time() - started


def figures(found: dict[str, Driven]) -> list[Figure]:
    """What is held against bars."""
    everyone = [mine.checked for mine in found.values()]
    usual = [found[name].checked for name in _USUAL]
    good = found["controller"]
    values = {
        "steps": sum(t.steps for t in everyone),
        "violations": sum(t.hot + t.ramp + t.power for t in everyone),
        "violations_unchecked": sum(
            m.unchecked.hot_steps + m.unchecked.ramp + m.unchecked.power for m in found.values()
        ),
        "unsafe_permitted": sum(t.unsafe_permitted for t in everyone),
        "permitted_hot_in_silence": sum(t.permitted_hot_in_silence for t in everyone),
        "nothing_to_write": sum(t.idle for t in everyone),
        "undetermined": sum(t.undetermined.total() for t in everyone),
        "safe_permitted_percent": _percent(usual, "permitted", "safe"),
        "safe_permitted_everyone_percent": _percent(everyone, "permitted", "safe"),
        "lost_within_the_rules": sum(t.lost_within_the_rules for t in everyone),
        "safe_in_silence_permitted_percent": _of_silent(usual),
        "safe_in_silence_permitted_everyone_percent": _of_silent(everyone),
        "stopped_hot_in_silence_percent": _of_stopped(everyone),
        "controller_cost_percent": 100 * (good.checked.error / good.unchecked.error - 1),
        "residuals_outside_percent": _percent(everyone, "outside", "readings"),
        "check_cpu_ms": 1000 * sum(m.cpu_s for m in found.values()) / sum(t.steps for t in everyone),
    }
    return [Figure("tclab", name, float(value)) for name, value in values.items()]


def _percent(tallies: list[Tally], part: str, whole: str) -> float:
    of = sum(getattr(t, whole) for t in tallies)
    return 100 * sum(getattr(t, part) for t in tallies) / of if of else float("nan")


def _of_stopped(tallies: list[Tally]) -> float:
    stopped = sum(t.safe - t.permitted for t in tallies)
    return 100 * sum(t.stopped_hot_in_silence for t in tallies) / stopped if stopped else float("nan")


def _of_silent(tallies: list[Tally]) -> float:
    kept = sum(t.permitted for t in tallies)
    return 100 * kept / (kept + sum(t.lost for t in tallies)) if kept else float("nan")


def _show(console: Console, found: dict[str, Driven]) -> None:
    table = Table("proposer", "broken", "without", "safe", "kept %", "stopped by", "peak", "error K", "ms")
    for name, mine in found.items():
        t, u = mine.checked, mine.unchecked
        table.add_row(
            name,
            f"{t.hot_steps} {t.ramp} {t.power}",
            f"{u.hot_steps} {u.ramp} {u.power}",
            str(t.safe),
            f"{_percent([t], 'permitted', 'safe'):.2f}",
            " ".join(f"{rule} {count}" for rule, count in t.stopped_by.most_common(3))
            + f" ({t.stopped_hot_in_silence})",
            f"{t.hottest:.2f}",
            f"{t.error / (2 * t.steps):.2f} {u.error / (2 * u.steps):.2f}",
            f"{1000 * mine.cpu_s / t.steps:.0f}",
        )
    console.print(
        "broken: steps above 60 degC, moves beyond the ramp, beyond the supply; error: with, without"
    )
    console.print(table)
