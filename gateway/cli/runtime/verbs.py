"""`o3ctl runtime`: constraint modules of the running gateway. Each verb answers with the new list."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.options import AsJson, Socket, operator, seconds_of
from gateway.cli.reading import module_bytes

app = typer.Typer(name="runtime", help="Constraint modules of the running gateway.", no_args_is_help=True)

_LONG_MS = 60_000.0  # a large set is compiled in every worker before it is in force

Module = Annotated[str, typer.Argument(metavar="MODULE", help="A constraint module's id.")]
File = Annotated[Path | None, typer.Option("--file", "-f", metavar="FILE", help="A module's source (.json).")]
Compiled = Annotated[Path | None, typer.Option("--module", metavar="M.o3c", help="A compiled module (.o3c).")]
Priority = Annotated[
    int | None,
    typer.Option("--priority", min=0, max=15, help="Instead of the file's; the bytes stay as they are."),
]
Shadow = Annotated[
    bool, typer.Option("--shadow", help="Judge it beside the modules in force, without effect.")
]


@app.command("list")
def runtime_list(socket: Socket = None, as_json: AsJson = False) -> None:
    """Constraint modules: in force, in shadow, waiting, refused and why."""
    raise typer.Exit(operator(socket, as_json).modules("runtime.list", {}))


@app.command("coverage")
def runtime_coverage(
    quiet_for: Annotated[
        str,
        typer.Option("--quiet-for", metavar="30d", help="Tell of constraints that never fired in that long."),
    ] = "30d",
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """What each constraint in force has done: how often it fired, when it last bound, its margins."""
    from gateway.cli.runtime import coverage  # noqa: PLC0415  # rich

    raise typer.Exit(coverage.told(operator(socket, as_json), seconds_of(quiet_for)))


@app.command("load")
def runtime_load(
    path: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="As --file.")] = None,
    file: File = None,
    module: Compiled = None,
    priority: Priority = None,
    shadow: Shadow = False,
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Put a constraint module in force; where that may weaken the rules it waits for approval."""
    given = [p for p in (path, file, module) if p is not None]
    if len(given) != 1:
        raise typer.BadParameter("name one file: --file M.json or --module M.o3c")
    try:
        data = module_bytes(given[0])
    except OSError as exc:
        print(f"o3ctl: `{given[0]}` cannot be read: {exc.strerror or exc}", file=sys.stderr)
        raise typer.Exit(1) from exc
    args: dict[str, Any] = {"name": given[0].name, "data": data}
    if priority is not None:
        args["priority"] = priority
    if shadow:
        args["shadow"] = True
    raise typer.Exit(operator(socket, as_json).modules("runtime.load", args, deadline_ms=_LONG_MS))


@app.command("unload")
def runtime_unload(module: Module, socket: Socket = None, as_json: AsJson = False) -> None:
    """Ask to take a constraint module out; it waits for approval."""
    raise typer.Exit(operator(socket, as_json).modules("runtime.unload", {"module": module}))


@app.command("approve")
def runtime_approve(
    module: Module,
    change: Annotated[
        str,
        typer.Option(
            "--change", metavar="MARK", help="As `runtime list` shows it: nothing else is approved."
        ),
    ] = "",
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Approve a waiting change; while a point is armed, one that another account made."""
    args = {"module": module} | ({"change": change} if change else {})
    raise typer.Exit(operator(socket, as_json).modules("runtime.approve", args, deadline_ms=_LONG_MS))


@app.command("rollback")
def runtime_rollback(
    module: Annotated[
        str, typer.Argument(metavar="[MODULE]", help="A module's id; else the one that changed last.")
    ] = "",
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Go back to the accepted revision before; where that may weaken the rules it waits for approval."""
    args = {"module": module}
    raise typer.Exit(operator(socket, as_json).modules("runtime.rollback", args, deadline_ms=_LONG_MS))


@app.command("promote")
def runtime_promote(module: Module, socket: Socket = None, as_json: AsJson = False) -> None:
    """Put a module that is judged in shadow in force."""
    args = {"module": module}
    raise typer.Exit(operator(socket, as_json).modules("runtime.promote", args, deadline_ms=_LONG_MS))
