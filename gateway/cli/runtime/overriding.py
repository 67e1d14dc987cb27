"""`o3ctl override`: standard constraints that two persons set aside for a while (S25)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.options import AsJson, Socket, operator

if TYPE_CHECKING:
    from gateway.link.messages import OverrideState

app = typer.Typer(
    name="override",
    help="Set a standard constraint aside for a while: one account asks, another confirms.",
    no_args_is_help=True,
)

_LONG_MS = 60_000.0  # a large set is compiled in every worker before it is in force

Constraint = Annotated[
    str, typer.Argument(metavar="MODULE/CONSTRAINT", help="As verdicts name it; never a critical one.")
]


@app.command("request")
def override_request(
    constraint: Constraint,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the audit log.")],
    lasting: Annotated[
        str, typer.Option("--for", metavar="TIME", help='How long from now, such as "30 min".')
    ],
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Ask that a constraint be overridden. Nothing changes until another account confirms it."""
    args = {"constraint": constraint, "reason": reason, "for": lasting}
    _answered("override.request", args, socket, as_json)


@app.command("confirm")
def override_confirm(constraint: Constraint, socket: Socket = None, as_json: AsJson = False) -> None:
    """Confirm what another account asked for; needs the role engineer. In force when this comes back."""
    _answered("override.confirm", {"constraint": constraint}, socket, as_json)


@app.command("release")
def override_release(constraint: Constraint, socket: Socket = None, as_json: AsJson = False) -> None:
    """End an override, or take a request back: for either of its two persons and any engineer."""
    _answered("override.release", {"constraint": constraint}, socket, as_json)


@app.command("list")
def override_list(socket: Socket = None, as_json: AsJson = False) -> None:
    """What is overridden, and what waits to be confirmed."""
    _answered("override.list", {}, socket, as_json)


def _answered(verb: str, args: dict[str, Any], socket: Socket, as_json: bool) -> None:
    from gateway.cli.told import show  # noqa: PLC0415  # rich
    from gateway.link.messages import OverrideState  # noqa: PLC0415  # msgspec

    def shown(found: list[OverrideState]) -> None:
        if found:
            show.console().print(show.override_table(found))
        else:
            print("nothing is overridden, and nobody asks for it")

    raise typer.Exit(
        operator(socket, as_json).answer(verb, args, list[OverrideState], shown, deadline_ms=_LONG_MS)
    )
