"""Options that many verbs share. What needs more than typer is imported inside, so that `--help` is quick."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gateway.cli.operating import Operator

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Socket = Annotated[
    Path | None,
    typer.Option("--socket", metavar="PATH", help="The gateway's internal port (default: $O3_SOCKET)."),
]
Point = Annotated[str, typer.Argument(metavar="POINT", help="A decision point's id.")]

named_before_the_verb: ContextVar[Path | None] = ContextVar("named_before_the_verb", default=None)


def operator(socket: Path | None, as_json: bool) -> Operator:
    """Whoever asks the gateway: at the socket named behind the verb, before it, or found."""
    from gateway.cli import asking, operating  # noqa: PLC0415  # asyncio, msgspec, rich

    return operating.Operator(asking.find_socket(socket or named_before_the_verb.get()), as_json)
