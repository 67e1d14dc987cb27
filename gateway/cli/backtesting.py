"""`o3ctl backtest M.json --since 30d`: a module beside recorded decisions. Needs no gateway."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.auditing import log_file
from gateway.cli.options import AsJson, seconds_of
from gateway.cli.schema import Config, TagsCsv

if TYPE_CHECKING:
    from gateway.cli.backtest_part import Job, Stretcher
    from gateway.cli.backtest_report import BacktestReport
    from gateway.core.tag import TagDefinition, TagId
    from gateway.solver.backtest.compare import Comparison

_ROWS = 8192  # of the log, a stretch
_ALONE = 3  # stretches that are not worth another process
_NS = 1_000_000_000


def backtest_file(
    file: Annotated[Path, typer.Argument(metavar="M.json", help="A module, .json or .o3c.")],
    since: Annotated[
        str, typer.Option("--since", metavar="30d", help="How far back: s, min, h, d or w.")
    ] = "30d",
    point: Annotated[str | None, typer.Option("--point", help="Only this decision point.")] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="RULES",
            help="Modules it would be in force with: a file, or a folder such as the watched one.",
        ),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option("--plot", metavar="FILE.png", help="Draw timeline and margins; or the word `terminal`."),
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            "--state-dir", metavar="DIR", help="The gateway's state_dir (default: the installed one)."
        ),
    ] = None,
    tags: TagsCsv = None,
    config: Config = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, max=64, help="Processes (default: one a core).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a module would newly have refused or permitted of the decisions on record."""
    from gateway.cli import backtest_words  # noqa: PLC0415  # rich
    from gateway.cli.offline import fail  # noqa: PLC0415  # pydantic and the grammars
    from gateway.core.errors import StorageError  # noqa: PLC0415

    begins_ns = time.time_ns() - seconds_of(since) * _NS
    if plot is not None and plot != "terminal" and not plot.endswith(".png"):
        raise typer.BadParameter("--plot takes a file that ends in .png, or the word `terminal`")
    job = _job(file, against, log_file(state_dir), point, (tags, config))
    try:
        report = _judged(job, begins_ns, jobs or os.cpu_count() or 1, assumed=tags is None and config is None)
    except StorageError as exc:
        fail(f"o3ctl: {exc}")
    if as_json:
        print(json.dumps(report.plain(), indent=2, ensure_ascii=False))
    else:
        backtest_words.show(report)
    if plot == "terminal":
        backtest_words.draw(report)
    elif plot is not None:
        _plotted(report, Path(plot))


def _job(
    file: Path,
    against: Path | None,
    log: Path,
    point: str | None,
    known: tuple[Path | None, Path | None],
) -> Job:
    from gateway.cli import offline  # noqa: PLC0415
    from gateway.cli.backtest_part import Job  # noqa: PLC0415  # z3, numpy, msgspec
    from gateway.solver.bytecode.accept import source_of  # noqa: PLC0415
    from gateway.solver.errors import ModuleRefusedError  # noqa: PLC0415

    paths = [file, *_beside(file, against)]
    read = [(offline.file_bytes(path), path.name) for path in paths]
    try:
        tags: dict[TagId, TagDefinition] = {}
        for data, name in reversed(read):
            tags.update(offline.tags_of(source_of(data, name), *known))
    except ModuleRefusedError as exc:
        offline.fail("\n".join(f"{p.source}:{p.line}:{p.column}: {p.problem}" for p in exc.problems))
    return Job(log=log, module=read[0], others=tuple(read[1:]), tags=tags, point=point)


def _beside(file: Path, against: Path | None) -> list[Path]:
    """The modules it is judged with."""
    from gateway.cli.offline import fail  # noqa: PLC0415
    from gateway.solver.watcher import is_module_name  # noqa: PLC0415  # watchfiles

    if against is None:
        return []
    if against.is_file():
        return [against]
    if not against.is_dir():
        fail(f"o3ctl: `{against}` is no module and no folder")
    return [
        path
        for path in sorted(against.iterdir())
        if path.is_file() and is_module_name(path.name) and path.resolve() != file.resolve()
    ]


def _judged(job: Job, begins_ns: int, processes: int, *, assumed: bool) -> BacktestReport:
    """Everything of the log since then, judged. Raises `StorageError`."""
    from gateway.cli import offline  # noqa: PLC0415
    from gateway.cli.backtest_part import Stretcher  # noqa: PLC0415
    from gateway.cli.backtest_report import Ran, report_of  # noqa: PLC0415
    from gateway.solver.errors import ModuleRefusedError  # noqa: PLC0415

    started = time.monotonic()
    try:
        stretcher = Stretcher(job)
    except ModuleRefusedError as exc:
        offline.fail("\n".join(f"{p.source}:{p.line}:{p.column}: {p.problem}" for p in exc.problems))
    try:
        first, last = stretcher.since(begins_ns)
        slot_ns = stretcher.slot_ns(first, last)
        stretches = [(at, min(at + _ROWS - 1, last), slot_ns) for at in range(first, last + 1, _ROWS)]
        found = whole(job, stretcher, stretches, processes)
        ran = Ran(begins_ns, slot_ns, time.monotonic() - started, assumed)
        return report_of(job, stretcher, found, ran)
    finally:
        stretcher.close()


def whole(
    job: Job, stretcher: Stretcher, stretches: list[tuple[int, int, int]], processes: int
) -> Comparison:
    """All stretches together: in this process where they are few, else in several, with a progress bar."""
    from gateway.cli.backtest_part import begin, judge_stretch  # noqa: PLC0415
    from gateway.solver.backtest.compare import Comparison  # noqa: PLC0415

    found = Comparison()
    with _bar(len(stretches)) as advance:
        if len(stretches) <= _ALONE or processes == 1:
            for stretch in stretches:
                found.add(stretcher.stretch(*stretch))
                advance()
            return found
        # A fresh interpreter for each: a fork would carry this one's threads' locks with it.
        with ProcessPoolExecutor(processes, get_context("spawn"), initializer=begin, initargs=(job,)) as pool:
            for done in as_completed([pool.submit(judge_stretch, *stretch) for stretch in stretches]):
                found.add(done.result())
                advance()
    return found


@contextmanager
def _bar(stretches: int) -> Iterator[Callable[[], None]]:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    console = Console(stderr=True)
    columns = (
        TextColumn("judging"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("judging", total=stretches)
        yield lambda: progress.advance(task)


def _plotted(report: BacktestReport, path: Path) -> None:
    from gateway.cli.offline import fail  # noqa: PLC0415

    try:
        from gateway.cli.backtest_plot import draw  # noqa: PLC0415  # matplotlib
    except ImportError:
        fail("o3ctl: a PNG needs matplotlib: pip install 'o3-gateway[plot]', or use --plot terminal")
    try:
        draw(report, path)
    except OSError as exc:
        fail(f"o3ctl: `{path}` cannot be written: {exc.strerror or exc}")
    print(f"plot: {path}", file=sys.stderr)
