"""Reports kept beside the gateway's state, by the digest of what they say something about."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from gateway.core.durable import write_durably
from gateway.solver.analysis.findings import Report, from_plain
from gateway.solver.modules.module import Module

_VERSION = 1  # of the questions: another version's answers are not used
_MOST_KEPT = 500


def key(module: Module, active: Iterable[Module], *asked: object) -> str:
    """The same for the same bytes against the same set over the same tags, and the same further questions."""
    everything = (module, *sorted(active, key=lambda m: m.id))
    definitions = {
        str(v.tag): [str(v.definition.scale), str(v.definition.deadband), str(v.definition.raw_range)]
        for m in everything
        for v in m.variables.values()
    }
    content = [_VERSION, list(map(repr, asked)), [m.digest for m in everything], sorted(definitions.items())]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


class Sidecar:
    """A folder of reports. Methods block: call them in a thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, key: str) -> Report | None:
        """The report kept under a key; None where there is none to read, or one that left something open."""
        try:
            report = from_plain(json.loads((self._folder / f"{key}.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return None if report.unknown else report

    def keep(self, key: str, report: Report) -> None:
        """Keep a report; durable when this returns. Raises `OSError`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(report.plain(), indent=1, ensure_ascii=False)
        write_durably(self._folder / f"{key}.json", text.encode())
        kept = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in kept[:-_MOST_KEPT]:
            path.unlink(missing_ok=True)
