"""How a process that the daemon starts writes its log: as the daemon does, and it outlives a full disk."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import TextIO

import structlog
from structlog.typing import EventDict

STYLE, LEVEL = "O3_LOG_STYLE", "O3_LOG_LEVEL"  # given by the daemon to its children
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


def log_as_parent(environ: Mapping[str, str] = os.environ, stream: TextIO | None = None) -> None:
    """Lines for people where the daemon writes such, else one JSON object a line.

    Where nothing says how the daemon writes, a terminal gets the first and all else the second. A line that
    cannot be written, to a full disk or to nobody, is lost; the process goes on.
    """
    out = stream if stream is not None else sys.stderr
    console = environ.get(STYLE, "console" if out.isatty() else "json") == "console"
    renderer = (
        structlog.dev.ConsoleRenderer(colors=out.isatty(), timestamp_key="at")
        if console
        else structlog.processors.JSONRenderer(serializer=_json)
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS.get(environ.get(LEVEL, ""), 20)),
        logger_factory=lambda *_: _Lossy(out),
    )


class _Lossy:
    """Writes lines as long as somebody can take them."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        try:
            self._stream.write(f"{line}\n")
            self._stream.flush()
        except (OSError, ValueError):  # a full disk, a closed pipe, a closed file
            return

    debug = info = warning = error = critical = exception = msg


def _json(event: EventDict, **_: object) -> str:
    return json.dumps(event, default=str, ensure_ascii=False, separators=(",", ":"))
