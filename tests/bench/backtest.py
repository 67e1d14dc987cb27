"""A million recorded decisions, judged by `o3ctl backtest`: wall time of the whole command.

The records are the demo's own: decided by the real path in simulated time, a few hundred of each proposer,
and written over and over with ids and times of their own in the audit log's format.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track

from gateway.core.decision import DecisionRecord
from gateway.storage import chain
from gateway.storage.codec import record_to_plain
from tests.bench.closed_loop import MODULE, Job, checks, start
from tests.bench.policies import policy
from tests.bench.report import Figure
from tests.bench.simulator import DEMO, simulate

MILLION = 1_000_000
_PROPOSERS = ("wandering", "brink")
_STEPS = 300
_BATCH = 20_000
_ID, _AT = b"d-placeholder", 1_111_111_111_111_111_111
_NS = 1_000_000_000
_TIGHTER = (
    ("temp <= 75", "temp <= 55"),
    ("temp <= 74.04", "temp <= 54.04"),
    ('"temp": "75', '"temp": "55'),
)


def run(console: Console, *, count: int = MILLION) -> list[Figure]:
    """Figures of one back-test over `count` records."""
    with tempfile.TemporaryDirectory(prefix="o3-backtest-") as folder:
        log, module = Path(folder) / "audit.sqlite", Path(folder) / "tighter.json"
        size = write(log, records(), count, console)
        module.write_text(_tighter())
        console.print(f"{count} records, {size / 1e9:.1f} GB")
        began, cpu = time.perf_counter(), _children_cpu_s()
        done = subprocess.run(  # noqa: S603  our own command
            [
                *(sys.executable, "-m", "gateway.cli.main", "backtest", str(module), "--since", "5200w"),
                *("--state-dir", folder, "--config", str(DEMO), "--json"),
            ],
            stdout=subprocess.PIPE,
            check=True,
        )
        wall, cpu = time.perf_counter() - began, _children_cpu_s() - cpu
    report = json.loads(done.stdout)
    console.print(
        f"{wall:.1f} s, {cpu:.1f} s of CPU, {os.cpu_count()} cores; {report['kinds']}, {report['cannot']}"
    )
    return [
        Figure("backtest", "million_s", wall * MILLION / count),
        Figure("backtest", "cpu_us_per_decision", cpu * 1e6 / count),
        Figure("backtest", "asked_exactly_percent", 100 * report["asked_exactly"] / report["decisions"]),
        Figure("backtest", "lost_decisions", float(count - report["decisions"])),
    ]


def _tighter() -> str:
    """The demo's module with a lower limit of temperature."""
    text = MODULE.read_text()
    for old, new in _TIGHTER:
        assert old in text, old
        text = text.replace(old, new)
    return text


def records() -> list[DecisionRecord]:
    """Decisions of the demo, by the real path."""
    found: list[DecisionRecord] = []
    for name, seed in itertools.product(_PROPOSERS, (1, 2, 3)):
        job = Job(name, seed, _STEPS, checked=True)
        asyncio.run(
            simulate(
                policy(name, seed), seed=seed, steps=_STEPS, check=checks(), start=start(job), records=found
            )
        )
    return found


def write(path: Path, decided: Sequence[DecisionRecord], count: int, console: Console) -> int:
    """An audit log of `count` decisions, one a second until now; its size in bytes."""
    bodies = [_template(record) for record in decided]
    chain.open_for_appending(path, 250).close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("PRAGMA journal_mode=MEMORY")
        digest, begins = chain.GENESIS, time.time_ns() - count * _NS
        numbers = range(count)
        for first in track(range(0, count, _BATCH), "writing", console=console, transient=True):
            connection.execute("BEGIN")
            rows = []
            for number in numbers[first : first + _BATCH]:
                name = f"d-{number:011d}"
                body = bodies[number % len(bodies)].replace(_ID, name.encode())
                body = body.replace(str(_AT).encode(), str(begins + number * _NS).encode())
                digest = hashlib.sha256(digest + body).digest()
                rows.append((number + 1, "decision", name, "buffer-tank", body, digest))
            connection.executemany("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?)", rows)
            connection.execute("COMMIT")
    return path.stat().st_size


def _template(record: DecisionRecord) -> bytes:
    """The row's body, with an id and a time to be put in."""
    plain = record_to_plain(record) | {"id": _ID.decode(), "received_utc_ns": _AT}
    return chain.row("decision", plain, decision=_ID.decode(), point=record.point).body


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
