"""Memory of our processes with 1 000 tags: the demo's twelve and copies that read the same registers."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from tests.bench.report import Figure
from tests.integration.house import House

TAGS = 1_000
SETTLED_DECISIONS = 20


class ManyTags(House):
    """The demo with its tag table filled up."""

    def _prepare(self) -> None:
        super()._prepare()
        table = self.folder / "tk1.csv"
        rows = table.read_text().splitlines()
        first = next(row for row in rows if row.startswith("TK1.LT101,"))
        rest = first.split(",", 1)[1]
        missing = TAGS - (len(rows) - 1)
        rows += [f"TK1.X{number:04d},{rest}" for number in range(missing)]
        table.write_text("\n".join(rows) + "\n")


def run(console: Console) -> list[Figure]:
    """Proportional set size of every process of ours, together: shared pages count once."""
    return asyncio.run(_run(console))


async def _run(console: Console) -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        async with ManyTags(Path(name)) as house:
            await house.until(
                lambda p: len(p.decisions) >= SETTLED_DECISIONS, 120, f"{SETTLED_DECISIONS} decisions"
            )
            assert house.daemon is not None
            daemon = psutil.Process(house.daemon.pid)
            sizes = [
                (" ".join(p.cmdline()[1:4]), p.memory_full_info().pss / 2**20)
                for p in (daemon, *daemon.children(recursive=True))
            ]
    table = Table("process", "PSS MB")
    for what, size in sizes:
        table.add_row(what, f"{size:.0f}")
    console.print(table)
    return [Figure("memory", "thousand_tags_mb", float(sum(size for _, size in sizes)))]
