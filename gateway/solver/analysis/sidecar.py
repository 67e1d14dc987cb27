"""Reports kept beside the gateway's state, by the digest of what they say something about.

Nothing is decided by them alone: a weakening is judged anew, and a safe set has its own proofs. Where a key
is given they are signed, and what it did not sign is not used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gateway.core.durable import write_durably
from gateway.solver.analysis.findings import Report, from_plain
from gateway.solver.bytecode.signing import Seal
from gateway.solver.modules.module import Module

_VERSION = 2  # of the questions: another version's answers are not used
_MOST_KEPT = 2_000
_OFTEN = 64  # answers kept between two looks at how many there are


@dataclass(frozen=True, slots=True)
class Key:
    """What a report is about: a module over certain tags and further questions, and what it was among."""

    own: str
    among: str

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.own}-{self.among}"


def key(module: Module, active: Iterable[Module], *asked: object) -> Key:
    """The same for the same bytes among the same set over the same tags, and the same further questions.

    Another version of the gateway or of Z3 may answer otherwise, and has other keys.
    """
    others = sorted(active, key=lambda m: (m.id, m.revision))
    own = [_VERSION, _versions(), list(map(repr, asked)), module.digest, module.priority, _tags([module])]
    return Key(_digest(own), _digest([[[m.digest, m.priority] for m in others], _tags(others)]))


class Sidecar:
    """A folder of reports. Methods block: call them in a thread."""

    def __init__(self, folder: Path, seal: Seal | None = None) -> None:
        self._folder, self._seal = folder, seal
        self._kept = 0

    def read(self, key: Key, budget_s: float = 0.0) -> Report | None:
        """The report kept under a key; None where there is none to read.

        One that left something open counts only where it had at least `budget_s`, if that is given.
        """
        return self._read(key.name, budget_s)

    def latest(self, key: Key, budget_s: float = 0.0) -> Report | None:
        """The newest report about the same module, whatever it was among."""
        try:
            found = sorted(self._folder.glob(f"{key.own}-*.json"), key=lambda path: path.stat().st_mtime)
        except OSError:
            return None
        return next((r for path in reversed(found) if (r := self._read(path.stem, budget_s))), None)

    def keep(self, key: Key, report: Report, budget_s: float = 0.0) -> None:
        """Keep a report; durable when this returns. Raises `OSError`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        content = {"about": key.name, "budget_s": budget_s, "report": report.plain()}
        signed = self._seal.signature(_canonical(content)) if self._seal is not None else ""
        text = json.dumps(content | {"signature": signed}, indent=1, ensure_ascii=False)
        write_durably(self._folder / f"{key.name}.json", text.encode())
        if self._kept % _OFTEN == 0:
            self._sweep()
        self._kept += 1

    def _read(self, name: str, budget_s: float) -> Report | None:
        try:
            content = json.loads((self._folder / f"{name}.json").read_text(encoding="utf-8"))
            signature = content.pop("signature")
            if content["about"] != name or not self._vouched(content, signature):
                return None
            report, had_s = from_plain(content["report"]), float(content["budget_s"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return None if report.unknown and not 0 < budget_s <= had_s else report

    def _vouched(self, content: dict[str, Any], signature: object) -> bool:
        return self._seal is None or self._seal.fits(_canonical(content), str(signature))

    def _sweep(self) -> None:
        kept = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in kept[:-_MOST_KEPT]:
            path.unlink(missing_ok=True)


@cache
def _versions() -> list[str]:
    return [version("o3-gateway"), version("z3-solver")]


def _tags(modules: Iterable[Module]) -> list[tuple[str, list[str]]]:
    """What the tags of these modules are defined as."""
    found = {
        str(v.tag): [str(v.definition.scale), str(v.definition.deadband), str(v.definition.raw_range)]
        for m in modules
        for v in m.variables.values()
    }
    return sorted(found.items())


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
