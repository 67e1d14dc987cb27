"""How a process that the daemon starts writes its log: as the daemon does, and it outlives a full disk."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

STYLE, LEVEL = "O3_LOG_STYLE", "O3_LOG_LEVEL"  # given by the daemon to its children
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_METHODS = {"warn": "warning", "exception": "error", "fatal": "critical", "msg": "info"}


def log_as_parent(environ: Mapping[str, str] = os.environ, stream: TextIO | None = None) -> None:
    """Lines for people where the daemon writes such, else one JSON object a line.

    Where nothing says how the daemon writes, a terminal gets the first and all else the second. A line that
    cannot be written, to a full disk or to nobody, is lost; the process goes on. Loggers that were bound
    before obey too: they share structlog's list of processors, which is replaced in place.
    """
    out = stream if stream is not None else sys.stderr
    console = environ.get(STYLE, "console" if out.isatty() else "json") == "console"
    render: list[Processor] = (
        [structlog.dev.ConsoleRenderer(colors=out.isatty(), timestamp_key="at")]
        if console
        else [structlog.processors.format_exc_info, _json]
    )
    cast("list[Processor]", structlog.get_config()["processors"])[:] = [
        _at_least(_LEVELS.get(environ.get(LEVEL, ""), _LEVELS["info"])),
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        *render,
        _written(out),
    ]


def _at_least(lowest: int) -> Processor:
    def filtered(_: WrappedLogger, method: str, event: EventDict) -> EventDict:
        if _LEVELS[_METHODS.get(method, method)] < lowest:
            raise structlog.DropEvent
        return event

    return filtered


def _json(_: WrappedLogger, __: str, event: EventDict) -> str:
    return json.dumps(event, default=str, ensure_ascii=False, separators=(",", ":"))


def _written(stream: TextIO) -> Processor:
    """Ends the chain: a line is written where somebody can take it."""

    def write(_: WrappedLogger, __: str, line: object) -> EventDict:
        try:
            stream.write(f"{line}\n")
            stream.flush()
        except (OSError, ValueError):  # a full disk, a closed pipe, a closed file
            raise structlog.DropEvent from None
        raise structlog.DropEvent

    return cast("Processor", write)
