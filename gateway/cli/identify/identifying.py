"""`o3ctl identify`: a draft of a module's dynamics from what was recorded. It activates nothing."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from gateway.cli.options import AsJson, Config, TagsCsv
from gateway.core.errors import cause

if TYPE_CHECKING:
    from gateway.cli.identify.wish import Told
    from gateway.solver.identify.identify import Identified
    from gateway.solver.identify.series import Recording

_SINCE = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h|d)")
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}


_Since = Annotated[
    str, typer.Option("--since", metavar="TIME", help="How far back decisions count, such as 30d or 12h.")
]
_Point = Annotated[str | None, typer.Option("--point", metavar="POINT", help="A decision point's id.")]
_Table = Annotated[
    Path | None,
    typer.Option("--csv", metavar="FILE", help="A table with a time column and a column for each tag."),
]
_Time = Annotated[
    str | None,
    typer.Option("--time", metavar="COLUMN", help="The table's time column (default: the first)."),
]
_Like = Annotated[
    Path | None,
    typer.Option("--like", metavar="M.json", help="A module to take names, errors and step from."),
]
_State = Annotated[
    Path | None, typer.Option("--state-dir", metavar="DIR", help="Default: as the configuration says.")
]
_Step = Annotated[str | None, typer.Option("--step", metavar="TIME", help="The module's step, such as 1s.")]
_Errors = Annotated[
    list[str] | None,
    typer.Option("--error", metavar="TAG=VALUE", help="What a transmitter may be off by; may be repeated."),
]
_Targets = Annotated[
    list[str] | None,
    typer.Option("--target", metavar="TAG", help="Only this tag gets dynamics; may be repeated."),
]
_LeaveOut = Annotated[
    list[str] | None,
    typer.Option("--leave-out", metavar="TAG", help="Fit without this tag; may be repeated."),
]
_Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="DRAFT.json", help="Write the draft here, its evidence beside it."
    ),
]
_Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE.png", help="Plot residuals and bands (matplotlib).")
]


def identify(
    point: _Point = None,
    since: _Since = "30d",
    table: _Table = None,
    time_column: _Time = None,
    config: Config = None,
    tags: TagsCsv = None,
    like: _Like = None,
    state_dir: _State = None,
    step: _Step = None,
    error: _Errors = None,
    target: _Targets = None,
    leave_out: _LeaveOut = None,
    output: _Output = None,
    plot: _Plot = None,
    as_json: AsJson = False,
) -> None:
    """Fit dynamics and disturbance bands to recorded data, as a draft; status 1 where that cannot be done."""
    from gateway.cli.identify import wish as identify_wish  # noqa: PLC0415  # pydantic, numpy

    since_s = _seconds(since, "--since")
    told = identify_wish.told(
        identify_wish.Options(
            point=point,
            table=table,
            config=config,
            tags=tags,
            like=like,
            state_dir=state_dir,
            step=step if step is None else _seconds(step, "--step"),
            errors=error or [],
            targets=target or [],
            leave_out=leave_out or [],
        )
    )
    _may_write(told, output)
    if table is not None:
        recording, source = _of_table(table, time_column, told)
    else:
        recording, source = _of_decisions(told, since_s, since)
    _draft(told, recording, source, output, plot, as_json=as_json)


def _of_table(table: Path, time_column: str | None, told: Told) -> tuple[Recording, str]:
    from gateway.cli.identify import recorded  # noqa: PLC0415

    return recorded.of_table(table, time_column, told.channels), str(table)


def _of_decisions(told: Told, since_s: float, since: str) -> tuple[Recording, str]:
    from gateway.cli.identify import recorded  # noqa: PLC0415

    oldest = time.time_ns() - int(since_s * 1e9)
    recording = recorded.of_decisions(told.audit, told.point, oldest, told.channels)
    return recording, f"decisions of point `{told.point}` in `{told.audit}`, the last {since}"


def _draft(
    told: Told, recording: Recording, source: str, output: Path | None, plot: Path | None, *, as_json: bool
) -> None:
    """Fit, write what was asked for, and tell; ends the verb where nothing may be concluded."""
    from gateway.solver.identify import evidence  # noqa: PLC0415  # numpy
    from gateway.solver.identify.draft import draft, text  # noqa: PLC0415
    from gateway.solver.identify.identify import Wish, identified  # noqa: PLC0415

    found = identified(recording, Wish(step_s=told.step_s, targets=told.targets))
    if isinstance(found, tuple):
        _refused(found, as_json=as_json)
    module = draft(found, told.module)
    if plot is not None:
        _plot(found, plot)
    kept = _written(module, found, told, source, output)
    if as_json:
        data = {"ok": True, "draft": module, "evidence": evidence.evidence(found, told.module, source)}
        print(json.dumps(data | {"files": kept, "note": _note(output)}, indent=2, ensure_ascii=False))
        return
    print("\n".join(evidence.report(found, told.module, source)), end="\n\n")
    if output is None:
        print(text(module))
    for name in kept:
        print(f"written: {name}")
    print(_note(output))


def _note(output: Path | None) -> str:
    where = "the draft" if output is None else str(output)
    return (
        f"{where} is a draft and not in force: no gateway takes it while its rule `fill-in` stands. Put in "
        "the rules that must hold, a case that breaks each critical one, and a backup; judge every number "
        "(the band is what was seen, not what can happen); then `o3ctl schema validate` it and `o3ctl "
        "analyze` it"
    )


def _seconds(text: str, option: str) -> float:
    match = _SINCE.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise typer.BadParameter(f"`{text}` of {option} is no time; write 30d, 12h, 5min or 1s")
    return float(match[1]) * _SECONDS[match[2]]


def _may_write(told: Told, output: Path | None) -> None:
    """A draft goes neither into the watched folder nor over a file that is there."""
    from gateway.cli import offline  # noqa: PLC0415

    if output is None:
        return
    if told.watched is not None and output.resolve().parent == told.watched.resolve():
        offline.fail(f"o3ctl: `{told.watched}` is the watched folder, and a draft has no business there")
    for path in (output, *_beside(output)):
        if path.exists():
            offline.fail(f"o3ctl: `{path}` is there already; name another file or take it away")


def _beside(output: Path) -> tuple[Path, Path]:
    stem = output.name.removesuffix(".json")
    return output.with_name(f"{stem}.evidence.json"), output.with_name(f"{stem}.evidence.txt")


def _written(
    module: dict[str, Any], found: Identified, told: Told, source: str, output: Path | None
) -> list[str]:
    from gateway.cli import offline  # noqa: PLC0415
    from gateway.solver.identify import evidence  # noqa: PLC0415
    from gateway.solver.identify.draft import text  # noqa: PLC0415

    if output is None:
        return []
    data, words = _beside(output)
    plain = json.dumps(evidence.evidence(found, told.module, source), indent=2, ensure_ascii=False)
    files = {
        output: text(module),
        data: plain + "\n",
        words: "\n".join([*evidence.report(found, told.module, source), "", _note(output), ""]),
    }
    for path, content in files.items():
        try:
            path.write_text(content, encoding="utf-8")
        except OSError as exc:
            offline.fail(f"o3ctl: `{path}` cannot be written: {exc.strerror or exc}")
    return [str(path) for path in files]


def _refused(why: tuple[str, ...], *, as_json: bool) -> NoReturn:
    if as_json:
        print(json.dumps({"ok": False, "problems": list(why)}, indent=2, ensure_ascii=False))
    else:
        for sentence in why:
            print(sentence, file=sys.stderr)
        print("no draft is written", file=sys.stderr)
    raise typer.Exit(1)


def _plot(found: Identified, path: Path) -> None:
    from gateway.cli import offline  # noqa: PLC0415

    try:
        from gateway.cli.identify.plot import drawn  # noqa: PLC0415  # matplotlib
    except ModuleNotFoundError:
        offline.fail("o3ctl: --plot needs matplotlib, which is not installed here: pip install matplotlib")
    try:
        drawn(found, path)
    except (OSError, ValueError) as exc:
        offline.fail(f"o3ctl: `{path}` cannot be written: {cause(exc)}")
