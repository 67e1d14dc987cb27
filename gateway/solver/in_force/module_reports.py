"""What happened to a module file, told to people beside the file and to programs under the state folder."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import structlog

from gateway.core.durable import fresh_file

log = structlog.get_logger().bind(component="registry")

Kind = Literal["refused", "accepted", "pending"]
_KINDS: tuple[Kind, ...] = ("refused", "accepted", "pending")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleReport:
    """One outcome. `problems` are sentences that begin with file:line:column where they have a place."""

    kind: Kind
    file: str
    at_ns: int
    summary: str
    problems: Sequence[str] = ()
    todo: str = ""
    in_force: str = ""  # what holds now
    analysis: Sequence[str] = ()  # all that is known of the module; empty: not yet

    def text(self) -> str:
        """For people: what, where and why, what to do, what is in force."""
        at = datetime.fromtimestamp(self.at_ns // 1_000_000_000, tz=UTC)
        lines = [f"{self.file}: {self.kind} at {at:%Y-%m-%d %H:%M:%S} UTC", "", self.summary]
        lines += [f"  {problem}" for problem in self.problems]
        if self.todo:
            lines += ["", f"What to do: {self.todo}"]
        if self.in_force:
            lines += ["", f"In force: {self.in_force}"]
        if self.analysis:
            lines += ["", "Analysis:", *(f"  {line}" for line in self.analysis)]
        return "\n".join(lines) + "\n"


class ReportWriter:
    """Writes and clears reports. Methods block: call them in a thread."""

    def __init__(self, beside: Path, state: Path) -> None:
        self._beside = beside
        self._state = state

    def write(self, report: ModuleReport) -> None:
        """Leave exactly this report of the file; where a folder cannot be written, say so in the log."""
        self._clear(report.file, keep=report.kind)
        stem = _stem(report.file)
        with _logged(report.file):
            _replace(self._beside / f"{stem}.{report.kind}.txt", report.text())
        if report.kind != "accepted":
            with _logged(report.file):
                self._state.mkdir(parents=True, exist_ok=True)
                _replace(self._state / f"{stem}.json", json.dumps(asdict(report), indent=1) + "\n")

    def clear(self, file: str) -> None:
        """The file is gone, and nothing is left to say of it."""
        self._clear(file, keep=None)

    def _clear(self, file: str, keep: Kind | None) -> None:
        stem = _stem(file)
        for kind in _KINDS:
            if kind != keep:
                with _logged(file):
                    (self._beside / f"{stem}.{kind}.txt").unlink(missing_ok=True)
        if keep in {None, "accepted"}:
            with _logged(file):
                (self._state / f"{stem}.json").unlink(missing_ok=True)


def _replace(path: Path, text: str) -> None:
    """Put a text in the place of whatever bears the name: others may write into the folder.

    A link is replaced and never followed, and nothing waits for a reader of a pipe. Raises `OSError`.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with fresh_file(temporary, 0o644) as file:
        file.write(text.encode(errors="backslashreplace"))
    temporary.replace(path)


def _stem(file: str) -> str:
    """`tank` of `tank.json`; a compiled module keeps its suffix, for its source may lie beside it."""
    return file.removesuffix(".json")


class _logged(contextlib.AbstractContextManager[None]):  # noqa: N801  used like the functions of contextlib
    """A report that cannot be written is no reason to stop anything."""

    def __init__(self, file: str) -> None:
        self._file = file

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if isinstance(error, OSError):
            log.warning("module_report_failed", file=self._file, reason=error.strerror or str(error))
            return True
        return False
