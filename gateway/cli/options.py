"""Options that many verbs share. What needs more than typer is imported inside, so that `--help` is quick."""

from __future__ import annotations

import re
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gateway.cli.live.operating import Operator

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Socket = Annotated[
    Path | None,
    typer.Option("--socket", metavar="PATH", help="The gateway's internal port (default: $O3_SOCKET)."),
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help="The gateway's state_dir (default: --config's, else the installed one).",
    ),
]
TagsCsv = Annotated[
    Path | None, typer.Option("--tags", metavar="CSV", help="The tags; else as the module says they are.")
]
Config = Annotated[
    Path | None, typer.Option("--config", metavar="gateway.toml", help="The configuration with the tags.")
]
Point = Annotated[str, typer.Argument(metavar="POINT", help="A decision point's id.")]

_UNITS_S = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SINCE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(s|min|m|h|d|w)\s*$")

named_before_the_verb: ContextVar[Path | None] = ContextVar("named_before_the_verb", default=None)


def operator(socket: Path | None, as_json: bool) -> Operator:
    """Whoever asks the gateway: at the socket named behind the verb, before it, or found."""
    from gateway.cli.live import asking, operating  # noqa: PLC0415  # asyncio, msgspec, rich

    return operating.Operator(asking.find_socket(socket or named_before_the_verb.get()), as_json)


def seconds_of(text: str) -> int:
    """Seconds of `30d`, `12 h`, `90min`; anything else is a usage error."""
    found = _SINCE.match(text)
    if found is None:
        raise typer.BadParameter(f"`{text}` is no length of time: write such as 30d, 12h or 90min")
    return max(1, round(float(found[1]) * _UNITS_S[found[2]]))
