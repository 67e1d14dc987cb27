"""kill -9 of a worker or of the daemon to the next correct verdict, asked for twenty times a second.

The running demo, armed. Correct is a verdict on the model's own proposal: verdicts on a fallback, which are
written and keep the plant, come earlier and are counted apart.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.bench.report import Figure
from tests.integration.house import POINT, House
from tests.integration.kills import Recoveries, kill_daemon, kill_workers, recovered
from tests.integration.prober import Prober

NAME = "faults"
ROUNDS = 20
PARTS = ("solver", "engine")
_MILLI = 1000


def run(console: Console, *, rounds: int = ROUNDS) -> list[Figure]:
    """Every figure of this benchmark; an unsafe working value in any round breaks it."""
    found = asyncio.run(_run(console, rounds))
    _show(console, found)
    return figures(found)


def figures(found: list[Recoveries]) -> list[Figure]:
    """The numbers that have bars, and those that explain them: workers first, the daemon last."""
    *workers, daemon = found
    made = {
        "worker_recovery_median_ms": _MILLI * max(one.median_s for one in workers),  # of the slower part
        "worker_recovery_worst_ms": _MILLI * max(one.worst_s for one in workers),
        "daemon_recovery_median_s": daemon.median_s,
        "daemon_recovery_worst_s": daemon.worst_s,
        "fallback_verdicts": float(sum(one.fallbacks for one in found)),
    }
    return [Figure(NAME, name, value) for name, value in made.items()]


async def _run(console: Console, rounds: int) -> list[Recoveries]:
    found: list[Recoveries] = []
    with tempfile.TemporaryDirectory() as name, Progress(console=console) as progress:
        task = progress.add_task("faults: start", total=rounds * (len(PARTS) + 1))

        def told(line: str) -> None:
            progress.update(task, advance=1, description=f"faults: {line.split(' killed', 1)[0]}")

        async with House(Path(name)) as house:
            await house.arm()
            prober = Prober(house.state / "run" / "o3.sock", POINT)
            async with prober.probing():
                await prober.next_correct(time.monotonic(), 10.0)
                for part in PARTS:
                    found.append(await kill_workers(house, prober, part, rounds, told))
                    await recovered(house)
                found.append(await kill_daemon(house, prober, rounds, told))
            await house.close()
            broken = house.violations()
    if broken:
        problem = f"{len(broken)} unsafe working values, the first: {broken[0]}"
        raise RuntimeError(problem)
    return found


def _show(console: Console, found: list[Recoveries]) -> None:
    table = Table("killed", "rounds", "median ms", "worst ms", "fallback verdicts", "other answers meanwhile")
    for one in found:
        others = {kind: n for kind, n in one.others.items() if not kind.startswith("fallback ")}
        table.add_row(
            one.what,
            str(len(one.took_s)),
            f"{_MILLI * one.median_s:.0f}",
            f"{_MILLI * one.worst_s:.0f}",
            str(one.fallbacks),
            ", ".join(f"{kind} {count}" for kind, count in others.items()),
        )
    console.print(table)
