"""`o3ctl model list|load|unload|rollback`: models of the running gateway. Each answers with the new list."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.cli.options import AsJson, Socket, operator

_LONG_MS = 60_000.0  # the new worker loads, tests itself and gets warm before it takes over

Model = Annotated[
    str, typer.Argument(metavar="[MODEL]", help="A model of the configuration; needless where there is one.")
]
KeepArmed = Annotated[
    bool,
    typer.Option(
        "--keep-armed",
        help='Armed points stay armed; only where the house rules say `model_change = "keep"`.',
    ),
]


def model_list(socket: Socket = None, as_json: AsJson = False) -> None:
    """Models of the running gateway: which bundle serves each, and which one did before."""
    raise typer.Exit(operator(socket, as_json).models("model.list", {}))


def model_load(
    bundle: Annotated[str, typer.Argument(metavar="BUNDLE", help="A bundle's folder under `bundles_dir`.")],
    model: Annotated[
        str, typer.Option("--for", metavar="MODEL", help="The model it serves; needless where there is one.")
    ] = "",
    keep_armed: KeepArmed = False,
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Let another bundle take over between two decisions; where that fails, the one in service stays."""
    _change("model.load", {"bundle": bundle, "model": model, "keep_armed": keep_armed}, socket, as_json)


def model_unload(
    model: Model = "", keep_armed: KeepArmed = False, socket: Socket = None, as_json: AsJson = False
) -> None:
    """Let the bundle that the configuration names serve again."""
    _change("model.unload", {"model": model, "keep_armed": keep_armed}, socket, as_json)


def model_rollback(
    model: Model = "", keep_armed: KeepArmed = False, socket: Socket = None, as_json: AsJson = False
) -> None:
    """Let the bundle that served before serve again."""
    _change("model.rollback", {"model": model, "keep_armed": keep_armed}, socket, as_json)


def _change(verb: str, args: dict[str, Any], socket: Socket, as_json: bool) -> None:
    asker = operator(socket, as_json)
    ended = asker.models(verb, args, deadline_ms=_LONG_MS)
    if not ended and not as_json:
        ended = asker.in_shadow()
    raise typer.Exit(ended)


def register(app: typer.Typer) -> None:
    """Put these verbs into the group `model`."""
    app.command("list")(model_list)
    app.command("load")(model_load)
    app.command("unload")(model_unload)
    app.command("rollback")(model_rollback)
