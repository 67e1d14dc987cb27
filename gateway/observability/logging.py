"""One chain for every log line of a process: filter, mask, stamp, write.

Loggers are bound when modules are imported, which is before any configuration is known. They all share
structlog's default list of processors, so that list is replaced in place: earlier loggers obey too.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Literal, Protocol, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

Style = Literal["auto", "console", "json", "journald"]

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_METHODS = {"warn": "warning", "exception": "error", "fatal": "critical", "msg": "info"}
_PRIORITY = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}  # syslog(3)
_SECRET_WORDS = frozenset(
    {"password", "passwd", "passphrase", "secret", "token", "credential", "authorization", "cookie", "pin"}
)
_SECRET_NAMES = ("private_key", "api_key", "signing_key")
_IN_URL = re.compile(r"(\w+://[^\s/:@]*:)[^\s/@]+@")
_MASK = "***"


class JournalSend(Protocol):
    """`systemd.journal.send` of systemd-python."""

    def __call__(self, MESSAGE: str, **fields: object) -> object:  # noqa: N803  # its own name
        """Hand one entry to journald."""
        ...


def configure_logging(
    style: Style = "auto",
    level: str = "info",
    *,
    stream: TextIO | None = None,
    environ: Mapping[str, str] = os.environ,
    journal: Callable[[], JournalSend | None] | None = None,
) -> Style:
    """Send every log line of this process one way; the way taken.

    `json` is one JSON object a line, or the same facts as journald fields where the stream is the journal and
    systemd-python is installed; `auto` is a coloured console on a terminal, else as `json`. Lines go to
    standard error unless `stream` says otherwise.
    """
    out = stream if stream is not None else sys.stderr
    send = (journal or journal_send)()
    if style == "auto":
        style = "console" if out.isatty() else "json"
    if style == "json" and send is not None and _is_journal(out, environ):
        style = "journald"
    if style == "journald" and send is None:
        style = "json"
    render: list[Processor]
    if style == "journald" and send is not None:
        render = [structlog.processors.format_exc_info, to_journal(send)]
    elif style == "console":
        plain = structlog.dev.plain_traceback
        console = structlog.dev.ConsoleRenderer(
            colors=out.isatty(), exception_formatter=plain, timestamp_key="at"
        )
        render = [console, to_stream(out)]
    else:
        render = [structlog.processors.format_exc_info, as_json, to_stream(out)]
    chain: list[Processor] = [
        at_least(level),
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        without_secrets,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        *render,
    ]
    cast("list[Processor]", structlog.get_config()["processors"])[:] = chain
    _carry_library_lines()
    return style


def at_least(level: str) -> Processor:
    """Drops what is below `level`."""
    lowest = _LEVELS[level]

    def filtered(_: WrappedLogger, method: str, event: EventDict) -> EventDict:
        if _LEVELS[_METHODS.get(method, method)] < lowest:
            raise structlog.DropEvent
        return event

    return filtered


def without_secrets(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Masks values whose key names a credential, at any depth, and passwords inside URLs."""
    return cast("EventDict", _masked(event))


def as_json(_: WrappedLogger, __: str, event: EventDict) -> str:
    """One JSON object a line; what JSON cannot say becomes text."""
    return json.dumps(event, default=str, ensure_ascii=False, separators=(",", ":"))


def to_stream(stream: TextIO) -> Processor:
    """Writes the finished line and ends the chain. A reader that went away never stops the gateway."""
    lock = threading.Lock()

    def write(_: WrappedLogger, __: str, line: object) -> EventDict:
        with lock, contextlib.suppress(OSError, ValueError):  # closed pipe, closed file
            stream.write(f"{line}\n")
            stream.flush()
        raise structlog.DropEvent

    return cast("Processor", write)


def to_journal(send: JournalSend) -> Processor:
    """Hands the event to journald with one field per fact (`O3_TAG=`, `O3_DECISION=`) and ends the chain."""

    def write(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        facts = {key: value for key, value in event.items() if key not in {"event", "level", "at"}}
        text = " ".join([str(event.get("event", "")), *(f"{k}={v}" for k, v in facts.items())])
        fields = {_journal_field(key): str(value) for key, value in facts.items()}
        priority = _PRIORITY[str(event.get("level", "info"))]
        with contextlib.suppress(OSError):  # journald restarts; the gateway goes on
            send(text, PRIORITY=priority, O3_EVENT=str(event.get("event", "")), **fields)
        raise structlog.DropEvent

    return write


def journal_send() -> JournalSend | None:
    """systemd-python's `journal.send`, or None where it is not installed."""
    try:
        journal = importlib.import_module("systemd.journal")
    except ImportError:
        return None
    return cast("JournalSend", journal.send)


class _LibraryHandler(logging.Handler):
    """Carries lines of libraries that use the standard library's logging into the one chain."""

    def emit(self, record: logging.LogRecord) -> None:
        level = max((n for n in _LEVELS if _LEVELS[n] <= max(record.levelno, 10)), key=_LEVELS.__getitem__)
        write = cast("Callable[..., None]", getattr(structlog.get_logger(), level))
        try:
            text = record.getMessage()
        except (TypeError, ValueError):  # a library's own format mistake must not become ours
            text = str(record.msg)
        write("library_logged", component=record.name, text=text, exc_info=record.exc_info)


def _carry_library_lines() -> None:
    root = logging.getLogger()
    root.handlers = [h for h in root.handlers if not isinstance(h, _LibraryHandler)]
    root.addHandler(_LibraryHandler(logging.WARNING))


def _masked(value: object) -> object:
    if isinstance(value, Mapping):
        masked: MutableMapping[Any, object] = {}
        for key, inner in value.items():
            masked[key] = _MASK if _names_a_secret(str(key)) else _masked(inner)
        return masked
    if isinstance(value, list | tuple):
        return [_masked(inner) for inner in value]
    if isinstance(value, str) and "://" in value:
        return _IN_URL.sub(rf"\1{_MASK}@", value)
    return value


def _names_a_secret(key: str) -> bool:
    lower = key.lower().replace("-", "_")
    return not _SECRET_WORDS.isdisjoint(lower.split("_")) or any(name in lower for name in _SECRET_NAMES)


def _journal_field(key: str) -> str:
    return "O3_" + re.sub(r"[^A-Z0-9_]", "_", key.upper())


def _is_journal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """True when `stream` is the very socket systemd connected to the journal (systemd.exec(5))."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
