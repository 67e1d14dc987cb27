"""`o3ctl binding`: the sheet that says what a decision point's tags are bound to, and who saw it so (S26)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.options import AsJson, Point, Socket, operator

if TYPE_CHECKING:
    from gateway.cli.live.operating import Standing

app = typer.Typer(
    name="binding", help="Binding sheets: without a signed one no point can be armed.", no_args_is_help=True
)


@app.command("print")
def print_sheet(point: Point, socket: Socket = None, as_json: AsJson = False) -> None:
    """Write a draft: what each tag is bound to and reads now. A person fills in the local indicators."""
    from gateway.cli.live import operating  # noqa: PLC0415  # asyncio, msgspec, rich

    def shown(draft: operating.Draft) -> None:
        print(draft.sheet, end="")
        for tag, why in draft.not_good.items():
            print(f"o3ctl: `{tag}` is {why}: its raw count and value are left blank", file=sys.stderr)

    raise typer.Exit(
        operator(socket, as_json).answer("binding.print", {"point": point}, operating.Draft, shown)
    )


@app.command()
def sign(
    point: Point,
    file: Annotated[Path, typer.Option("--file", metavar="FILE", help="The sheet, filled in.")],
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="In whose name (default: you).")] = "",
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Let a filled-in sheet stand for the point. Needs the role engineer; audited with your user."""
    from gateway.cli.live import operating  # noqa: PLC0415  # asyncio, msgspec, rich

    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as exc:
        print(f"o3ctl: `{file}` cannot be read: {exc.strerror or exc}", file=sys.stderr)
        raise typer.Exit(1) from exc
    except UnicodeDecodeError as exc:
        print(f"o3ctl: `{file}` is not UTF-8 text; save the sheet as CSV in UTF-8", file=sys.stderr)
        raise typer.Exit(1) from exc
    args = {"point": point, "text": text, "file": str(file), "by": by}
    raise typer.Exit(operator(socket, as_json).answer("binding.sign", args, operating.Standing, _standing))


@app.command()
def show(point: Point, socket: Socket = None, as_json: AsJson = False) -> None:
    """Who signed what for the point, and what has voided it since."""
    from gateway.cli.live import operating  # noqa: PLC0415  # asyncio, msgspec, rich

    raise typer.Exit(
        operator(socket, as_json).answer("binding.show", {"point": point}, operating.Standing, _standing)
    )


def _standing(found: Standing) -> None:
    from gateway.cli.told import words  # noqa: PLC0415  # msgspec

    if found.digest:
        when = words.local_time(found.at_ns)
        print(f"{found.point}: signed by {found.signed_by} (user {found.user}) at {when}")
        print(f"digest {found.digest}")
    if found.void:
        print(f"the point cannot be armed: {found.void}")
    else:
        print("the configuration binds every tag as the sheet says")
