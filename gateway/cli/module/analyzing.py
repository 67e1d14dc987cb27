"""`o3ctl analyze M.json`: what a module says, permits and lacks, before it is in force. Needs no gateway."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.options import AsJson, Config, TagsCsv

if TYPE_CHECKING:
    from gateway.config.model import GatewayConfig
    from gateway.solver.analysis.analyze import Wanted
    from gateway.solver.analysis.findings import Report
    from gateway.solver.analysis.sidecar import Key, Sidecar
    from gateway.solver.modules.module import Module

BUDGET_S = 60.0


def analyze_file(
    file: Annotated[Path, typer.Argument(metavar="M.json", help="A module, .json or .o3c.")],
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="DIR", help="The modules in force, such as the watched folder."),
    ] = None,
    suggest_safe_set: Annotated[
        bool, typer.Option("--suggest-safe-set", help="Look for a safe set, prove it and print it.")
    ] = False,
    tags: TagsCsv = None,
    config: Config = None,
    budget: Annotated[
        float, typer.Option("--budget", metavar="SECONDS", min=0.1, help="For all questions together.")
    ] = BUDGET_S,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Ask everything again, whatever was answered before.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Ask what can be known of a module before it is in force; status 1 where it is refused, or not known."""
    from gateway.cli.module.analysis_words import show  # noqa: PLC0415  # rich
    from gateway.solver.analysis import sidecar  # noqa: PLC0415  # z3
    from gateway.solver.analysis.analyze import analyze  # noqa: PLC0415
    from gateway.solver.analysis.asking import Allowance  # noqa: PLC0415

    wanted, unread, state = _wanted(file, against, tags, config, as_json=as_json)
    wanted = replace(wanted, suggest=suggest_safe_set)
    kept = _answers(state, config)
    key = sidecar.key(wanted.module, wanted.active, wanted.times, wanted.silence_s, suggest_safe_set)
    report = kept.read(key) if kept is not None and not fresh else None
    if report is None:
        with _Bars() as progress:
            report = analyze(wanted, Allowance(seconds=budget), progress)
        if kept is not None:
            _keep(kept, key, report)
    report = _with_unread(report, unread)
    if as_json:
        print(json.dumps(report.plain(), indent=2, ensure_ascii=False))
    else:
        show(report, assumed=tags is None and config is None)
    raise typer.Exit(1 if report.refused or report.unknown else 0)


def _wanted(
    file: Path, against: Path | None, tags: Path | None, config: Path | None, *, as_json: bool
) -> tuple[Wanted, list[str], Path | None]:
    """What to analyse, files of `against` that are no modules, and the state folder where one is known."""
    from gateway.cli import offline  # noqa: PLC0415  # pydantic and the grammars
    from gateway.solver.analysis.analyze import Wanted  # noqa: PLC0415
    from gateway.solver.errors import ModuleRefusedError  # noqa: PLC0415

    data = offline.file_bytes(file)
    try:
        module = _module(data, file, tags, config)
    except ModuleRefusedError as exc:
        found = [{"line": p.line, "column": p.column, "problem": p.problem} for p in exc.problems]
        if as_json:
            told = {"ok": False, "refused": True, "file": str(file), "problems": found}
            print(json.dumps(told, indent=2, ensure_ascii=False))
        else:
            for p in exc.problems:
                print(f"{file}:{p.line}:{p.column}: {p.problem}")
            print("the module cannot be used, so nothing more is asked of it")
        raise typer.Exit(1) from exc
    active, unread = _active(against, file, tags, config) if against is not None else ([], [])
    wanted = Wanted(module=module, active=active)
    if config is None:
        return wanted, unread, None
    return _of_point(wanted, unread, config)


def _module(data: bytes, file: Path, tags: Path | None, config: Path | None) -> Module:
    """Raises `ModuleRefusedError`."""
    from gateway.cli import offline  # noqa: PLC0415
    from gateway.solver.bytecode.accept import accepted, source_of  # noqa: PLC0415
    from gateway.solver.bytecode.signing import Trust  # noqa: PLC0415

    known = offline.tags_of(source_of(data, file.name), tags, config)
    return accepted(data, file.name, known, Trust())


def _active(
    folder: Path, file: Path, tags: Path | None, config: Path | None
) -> tuple[list[Module], list[str]]:
    """The modules of a folder but the file itself, by id; and what of it cannot be read as one."""
    from gateway.cli import offline  # noqa: PLC0415
    from gateway.solver.errors import ModuleRefusedError  # noqa: PLC0415

    if not folder.is_dir():
        offline.fail(f"o3ctl: `{folder}` is no folder")
    found: dict[str, Module] = {}
    read, unread = offline.folder_bytes(folder, file)
    for path, data in read.items():
        try:
            module = _module(data, path, tags, config)
        except ModuleRefusedError as exc:
            unread.append(f"{path}:{exc.problems[0].line}: {exc.problems[0].problem}")
            continue
        if module.id in found:
            unread.append(f"{path}: module `{module.id}` is in `{found[module.id].source}` too")
        found.setdefault(module.id, module)
    return list(found.values()), unread


def _of_point(wanted: Wanted, unread: list[str], path: Path) -> tuple[Wanted, list[str], Path | None]:
    """The times of the decision point that writes the module's actions, and the gateway's state folder."""
    from gateway.config.lease import lease_sum, until_effect  # noqa: PLC0415
    from gateway.config.load import load  # noqa: PLC0415
    from gateway.solver.analysis.effective import Times  # noqa: PLC0415

    config: GatewayConfig = load(path)  # it was read before, for its tags
    state = config.gateway.state_dir
    point = next((p for p in config.decision_point if set(p.outputs) & set(wanted.module.actions)), None)
    if point is None:
        return wanted, unread, state
    times = Times(tuple(until_effect(config, point)), point.max_skew)
    silence_s = sum(seconds for _, seconds in lease_sum(config, point))
    return replace(wanted, times=times, silence_s=silence_s), unread, state


def _with_unread(report: Report, unread: Sequence[str]) -> Report:
    """What could not be compared with is not known, and says so."""
    from gateway.solver.analysis.findings import Finding, nearest_first  # noqa: PLC0415

    more = [
        Finding(question="conflicts", level="unknown", said=f"not compared with what is no module: {said}")
        for said in unread
    ]
    return replace(report, findings=nearest_first([*more, *report.findings]))


def _answers(state: Path | None, config: Path | None) -> Sidecar | None:
    """Where answers are kept; None where no state folder is known, or its key is not ours to read."""
    from gateway.config.load import load  # noqa: PLC0415
    from gateway.solver.analysis.sidecar import Sidecar  # noqa: PLC0415
    from gateway.solver.bytecode.signing import KeyRefusedError, Seal  # noqa: PLC0415

    if state is None or config is None or not state.is_dir():
        return None
    path = load(config).modules.answers_key
    try:
        return Sidecar(state / "analysis", Seal.of(path) if path is not None else None)
    except KeyRefusedError as exc:
        print(f"answers are neither looked up nor kept: {exc}", file=sys.stderr)
        return None


def _keep(kept: Sidecar, key: Key, report: Report) -> None:
    try:
        kept.keep(key, report)
    except OSError as exc:
        print(f"the answers are not kept: {exc.strerror or exc}", file=sys.stderr)


class _Bars:
    """A bar for each question on standard error, where a person looks."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

        console = Console(stderr=True)
        columns = (TextColumn("{task.description:12}"), BarColumn(), TimeElapsedColumn())
        self._bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._last = ""

    def __enter__(self) -> Callable[[str, int, int], None]:
        self._bars.start()
        return self.told

    def __exit__(self, *_raised: object) -> None:
        self._bars.stop()

    def told(self, question: str, done: int, of: int) -> None:
        """The bar of a question; the one before it is full once another is asked."""
        if question != self._last:
            for task in self._bars.tasks:
                self._bars.update(task.id, completed=task.total or 0)
            self._bars.add_task(question, total=of)
            self._last = question
        self._bars.update(self._bars.tasks[-1].id, completed=done, total=of)
