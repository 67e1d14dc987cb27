"""o3ctl: one verb a function. What a verb needs is imported inside, so that `o3ctl --help` is quick.

Exit status: 0 done, 1 refused or something is wrong, 2 wrong usage, 3 no gateway answers. With `--json` a
verb prints one JSON value in each of these cases; one that goes on (`--follow`, `--live`) prints one a line.
"""

from __future__ import annotations

import enum
import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.audit import verbs as auditing
from gateway.cli.backtest import backtesting, trying
from gateway.cli.certificate import verbs as certificate
from gateway.cli.identify import identifying
from gateway.cli.model import files as model_files
from gateway.cli.model import golden as model_golden
from gateway.cli.model import holding as model_holding
from gateway.cli.model import sealing as model_sealing
from gateway.cli.model import serving as model_serving
from gateway.cli.module import analyzing, compiling, schema, tables
from gateway.cli.options import AsJson, Point, Socket, named_before_the_verb
from gateway.cli.options import operator as _operator
from gateway.cli.plant import binding
from gateway.cli.runtime import overriding
from gateway.cli.runtime import verbs as runtime
from gateway.cli.told.failing import Verbs

app = typer.Typer(
    cls=Verbs,
    name="o3ctl",
    help="Operate a running O3 edge gateway, or check its configuration.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(runtime.app)
app.add_typer(binding.app)
app.add_typer(overriding.app)
app.add_typer(auditing.app)
app.add_typer(certificate.app)
app.add_typer(schema.app)
model_serving.register(model_files.app)
model_holding.register(model_files.app)
model_golden.register(model_files.app)
model_sealing.register(model_files.app)
app.add_typer(model_files.app)
app.add_typer(compiling.key_app)
app.command("analyze")(analyzing.analyze_file)
app.command("backtest")(backtesting.backtest_file)
app.command("try")(trying.try_file)
app.command("identify")(identifying.identify)
app.command("compile")(compiling.compile_file)
app.command("disassemble")(compiling.disassemble_file)
app.command("import")(tables.import_table)
app.command("export")(tables.export_table)


@app.callback()
def before_the_verb(socket: Socket = None) -> None:
    """Operate a running O3 edge gateway, or check its configuration."""
    named_before_the_verb.set(socket)


class ModeName(enum.StrEnum):
    """Modes a decision point can be put into."""

    OFF = "off"
    SHADOW = "shadow"
    ADVISORY = "advisory"
    ARMED = "armed"


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="gateway.toml")], as_json: AsJson = False
) -> None:
    """Say everything that is wrong with a configuration, or what it would run. Needs no gateway."""
    from gateway.cli.plant import checking  # noqa: PLC0415  # pydantic and the grammars

    report = checking.check(file)
    if as_json:
        print(json.dumps(report.plain(), indent=2, ensure_ascii=False))
    else:
        for sentence in checking.sentences(report):
            print(sentence)
    raise typer.Exit(1 if report.problems else 0)


@app.command()
def status(socket: Socket = None, as_json: AsJson = False) -> None:
    """Health, decision points, constraint modules and alarms."""
    raise typer.Exit(_operator(socket, as_json).status())


@app.command()
def tags(socket: Socket = None, as_json: AsJson = False) -> None:
    """Every tag's newest value, quality and age."""
    raise typer.Exit(_operator(socket, as_json).tags())


@app.command()
def decisions(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new decisions.")] = False,
    point: Annotated[str | None, typer.Option("--point", help="Only this decision point.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many.")] = 20,
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """The newest decisions, newest first; with --follow oldest first and without end."""
    operator = _operator(socket, as_json)
    raise typer.Exit(operator.follow(limit, point) if follow else operator.decisions(limit, point))


@app.command()
def explain(
    decision: Annotated[str, typer.Argument(metavar="DECISION", help="A decision's id.")],
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Why a decision came out as it did, and on what evidence."""
    raise typer.Exit(_operator(socket, as_json).explain(decision))


@app.command()
def mode(
    point: Point,
    to: Annotated[ModeName, typer.Argument(metavar="off|shadow|advisory|armed", help="The mode.")],
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Put a decision point into a mode. Arming needs the role engineer."""
    args = {"point": point, "mode": to.value}
    raise typer.Exit(_operator(socket, as_json).act("mode", args, f"{point} is {to.value}"))


@app.command()
def ack(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="An alarm's source, see o3ctl status.")],
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Acknowledge a standing alarm. Where it keeps a point from being armed, that needs the role engineer."""
    said = f"{source} is acknowledged"
    raise typer.Exit(_operator(socket, as_json).act("ack", {"source": source}, said))


@app.command("stop-writes")
def stop_writes(
    resume: Annotated[bool, typer.Option("--resume", help="Let writes happen again.")] = False,
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Stop all writes (the kill switch): no setpoint leaves the gateway until --resume."""
    stopped = "writes are stopped; resume with: o3ctl stop-writes --resume"
    said = "writes may happen again" if resume else stopped
    raise typer.Exit(_operator(socket, as_json).act("stop-writes", {"resume": resume}, said))


def main() -> None:
    """Entry point of `o3ctl`."""
    try:
        app()
    except BrokenPipeError:
        # The reader (`head`, `less`) has seen enough; stdout goes elsewhere so that exit stays quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


if __name__ == "__main__":
    main()
