"""`o3ctl audit`: whether the audit log is as it was written, from its file, gateway or not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.audit.place import log_file
from gateway.cli.options import AsJson

if TYPE_CHECKING:
    from gateway.storage.chain import ChainReport

app = typer.Typer(name="audit", help="The audit log, without the gateway.", no_args_is_help=True)


@app.callback()
def audit() -> None:
    """The audit log, without the gateway."""


@app.command()
def verify(
    state_dir: Annotated[
        Path | None,
        typer.Option(
            "--state-dir", metavar="DIR", help="The gateway's state_dir (default: the installed one)."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Walk the whole chain and say whether every record is as it was appended."""
    from gateway.core.errors import StorageError  # noqa: PLC0415  # as below

    path = log_file(state_dir)
    try:
        report = _walked(path, quiet=as_json or not sys.stderr.isatty())
    except StorageError as exc:
        if as_json:
            print(json.dumps({"ok": False, "file": str(path), "problem": str(exc)}))
        else:
            print(f"o3ctl: {exc}", file=sys.stderr)
        raise typer.Exit(1) from exc
    if as_json:
        found = {"rows": report.rows, "head": report.head, "broken_at": report.broken_at}
        print(json.dumps({"ok": report.intact, "file": str(path), **found, "problem": report.problem}))
    else:
        print(sentence(path, report))
    raise typer.Exit(0 if report.intact else 1)


def sentence(path: Path, report: ChainReport) -> str:
    """What was found, for people."""
    if report.intact:
        return (
            f"{path}: {report.rows} records, every one as it was appended.\n"
            f"head {report.head}: keep it elsewhere; a log cut off at its end looks whole from inside"
        )
    return (
        f"{path}: NOT as it was written: {report.problem}. The {report.rows} records before it are whole. "
        "Keep the file as it is, and find out who could write it"
    )


def _walked(path: Path, *, quiet: bool) -> ChainReport:
    from gateway.storage.offline import verify_file  # noqa: PLC0415  # sqlite3, msgspec

    if quiet:
        return verify_file(path, lambda _count, _total: None)
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("verifying", total=None)
        return verify_file(path, lambda count, total: progress.update(task, completed=count, total=total))
