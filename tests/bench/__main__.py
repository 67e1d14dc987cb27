"""`python -m tests.bench [NAME ...]`: run benchmarks, print figure, bar and verdict.

A missed bar is a figure, not a failure: the exit status is 0 unless a benchmark itself broke.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
import tomllib
from functools import partial
from pathlib import Path

from rich.console import Console

from tests.bench.report import BUDGETS, Figure, show, verdict

BENCHMARKS = (
    "backtest",
    "closed_loop",
    "decision_latency",
    "guided",
    "inference",
    "memory",
    "model_swap",
    "quantization",
    "safe_interval",
    "solver",
    "solver_coupled",
    "swap",
    "tclab",
)


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for; 1 when a benchmark broke."""
    options = _parser().parse_args(arguments)
    console = Console(stderr=options.json)
    found: list[Figure] = []
    broken: list[str] = []
    for name in options.names or BENCHMARKS:
        console.rule(name)
        try:
            found += _run(name, options, console)
        except Exception:  # noqa: BLE001  # the other benchmarks still run
            console.print_exception(max_frames=5)
            broken.append(name)
    if options.json:
        sys.stdout.write(json.dumps(_rows(found), indent=2) + "\n")
    else:
        show(found, console)
    for name in broken:
        console.print(f"[red]{name} broke: its figures are missing[/]")
    return 1 if broken else 0


def _run(name: str, options: argparse.Namespace, console: Console) -> list[Figure]:
    run = importlib.import_module(f"tests.bench.{name}").run
    if name == "closed_loop":
        run = partial(run, seeds=options.seeds, steps=options.steps, plot=options.plot)
    if name == "tclab":
        run = partial(run, seeds=options.seeds, steps=options.steps, first=options.first_seed)
    if name == "inference":
        run = partial(run, parts=tuple(options.parts), minute_s=options.minute)
    result: list[Figure] = run(console)
    return result


def _rows(found: list[Figure]) -> list[dict[str, object]]:
    budgets = tomllib.loads(BUDGETS.read_text())
    rows: list[dict[str, object]] = []
    for figure in found:
        bar, judged = verdict(figure, budgets)
        value = figure.value if math.isfinite(figure.value) else None
        rows.append(
            {
                "benchmark": figure.benchmark,
                "figure": figure.name,
                "value": value,
                "bar": bar,
                "verdict": judged,
            }
        )
    return rows


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; default: all")
    parser.add_argument("--json", action="store_true", help="figures as JSON on standard output")
    parser.add_argument("--seeds", type=int, default=10, help="closed_loop, tclab: how many seeds")
    parser.add_argument("--steps", type=int, default=600, help="closed_loop, tclab: decisions in a run")
    parser.add_argument("--first-seed", type=int, default=0, help="tclab: the first of the seeds")
    parser.add_argument("--parts", nargs="*", default=(), help="inference: some of its parts; default: all")
    parser.add_argument(
        "--minute", type=float, default=12.0, help="inference: seconds after a start that count"
    )
    parser.add_argument("--plot", type=Path, help="closed_loop: write the level over time as a PNG")
    return parser


if __name__ == "__main__":
    sys.exit(main())
