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

from gateway.cli.audit.place import log_file
from gateway.cli.options import AsJson, Config, StateDir, TagsCsv, seconds_of

if TYPE_CHECKING:
    from gateway.cli.backtest.part import Job, Stretcher
    from gateway.cli.backtest.report import BacktestReport
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
            help="Judge it with these modules (a file or a folder), not with those in force now.",
        ),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option("--plot", metavar="FILE.png", help="Draw timeline and margins; or the word `terminal`."),
    ] = None,
    state_dir: StateDir = None,
    tags: TagsCsv = None,
    config: Config = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, max=64, help="Processes (default: one a core).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a module would newly have refused or permitted of the decisions on record.

    Status 1 where none is on record.
    """
    from gateway.cli.backtest import words as backtest_words  # noqa: PLC0415  # rich
    from gateway.cli.offline import fail  # noqa: PLC0415  # pydantic and the grammars
    from gateway.core.errors import StorageError  # noqa: PLC0415

    begins_ns = time.time_ns() - seconds_of(since) * _NS
    if plot is not None and plot != "terminal" and not plot.endswith(".png"):
        raise typer.BadParameter("--plot takes a file that ends in .png, or the word `terminal`")
    processes, assumed = jobs or os.cpu_count() or 1, tags is None and config is None
    try:
        stretcher = stretcher_of(file, against, log_file(state_dir, config), point, (tags, config))
        report = _judged(stretcher, begins_ns, processes, assumed=assumed)
    except StorageError as exc:
        fail(f"o3ctl: {exc}")
    if not report.decisions:
        of = f" of decision point `{point}`" if point else ""
        fail(
            f"o3ctl: `{report.log}` holds no decision{of} of the last {since}, so nothing is known of the "
            "module: look further back with --since, or name another --point or --state-dir"
        )
    if as_json:
        print(json.dumps(report.plain(), indent=2, ensure_ascii=False))
    else:
        backtest_words.show(report)
    if plot == "terminal":
        backtest_words.draw(report)
    elif plot is not None:
        _plotted(report, Path(plot))


def stretcher_of(
    file: Path,
    against: Path | None,
    log: Path,
    point: str | None,
    known: tuple[Path | None, Path | None],
) -> Stretcher:
    """A module ready to judge that log; what is wrong with it ends the verb. Raises `StorageError`."""
    from gateway.cli import offline  # noqa: PLC0415
    from gateway.cli.backtest.part import Job, Stretcher  # noqa: PLC0415  # z3, numpy, msgspec
    from gateway.solver.bytecode.accept import source_of  # noqa: PLC0415
    from gateway.solver.errors import ModuleRefusedError  # noqa: PLC0415

    beside = _in_force(log.parent / "modules") if against is None else _named(file, against)
    read = [(offline.file_bytes(file), file.name), *beside]
    try:
        tags: dict[TagId, TagDefinition] = {}
        for data, name in reversed(read):
            tags.update(offline.tags_of(source_of(data, name), *known))
        return Stretcher(Job(log=log, module=read[0], others=tuple(beside), tags=tags, point=point))
    except ModuleRefusedError as exc:
        offline.fail("\n".join(f"{p.source}:{p.line}:{p.column}: {p.problem}" for p in exc.problems))


def _named(file: Path, against: Path) -> list[tuple[bytes, str]]:
    """The modules of a file or folder, but for the one that is judged; what cannot be read ends the verb."""
    from gateway.cli.offline import fail, file_bytes, folder_bytes  # noqa: PLC0415

    if against.is_file():
        return [(file_bytes(against), against.name)]
    if not against.is_dir():
        fail(f"o3ctl: `{against}` is no module and no folder")
    read, unread = folder_bytes(against, file)
    if unread:
        fail(
            "\n".join([*unread, "nothing is judged with only some of the rules: mend these or take them out"])
        )
    return [(data, path.name) for path, data in read.items()]


def _in_force(folder: Path) -> list[tuple[bytes, str]]:
    """The modules a gateway has in force, by its state folder; none where it never had any."""
    from gateway.solver.in_force.activation import Activation  # noqa: PLC0415

    kept = Activation(folder)
    kept.load()
    return [(kept.kept(module.content), module.file) for _, module in sorted(kept.modules.items())]


def _judged(stretcher: Stretcher, begins_ns: int, processes: int, *, assumed: bool) -> BacktestReport:
    """Everything of the log since then, judged. Raises `StorageError`."""
    from gateway.cli.backtest.report import Ran, report_of  # noqa: PLC0415

    started = time.monotonic()
    try:
        first, last = stretcher.since(begins_ns)
        slot_ns = stretcher.slot_ns(first, last)
        stretches = [(at, min(at + _ROWS - 1, last), slot_ns) for at in range(first, last + 1, _ROWS)]
        found = whole(stretcher.job, stretcher, stretches, processes)
        ran = Ran(begins_ns, slot_ns, time.monotonic() - started, assumed)
        return report_of(stretcher.job, stretcher, found, ran)
    finally:
        stretcher.close()


def whole(
    job: Job, stretcher: Stretcher, stretches: list[tuple[int, int, int]], processes: int
) -> Comparison:
    """All stretches together: in this process where they are few, else in several, with a progress bar."""
    from gateway.cli.backtest.part import begin, judge_stretch  # noqa: PLC0415
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
        from gateway.cli.backtest.plot import draw  # noqa: PLC0415  # matplotlib
    except ImportError:
        fail("o3ctl: a PNG needs matplotlib: pip install 'o3-gateway[plot]', or use --plot terminal")
    try:
        draw(report, path)
    except OSError as exc:
        fail(f"o3ctl: `{path}` cannot be written: {exc.strerror or exc}")
    print(f"plot: {path}", file=sys.stderr)
