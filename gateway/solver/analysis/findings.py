"""What an analysis has to say: findings of five levels, nearest trouble first, and tables of plain facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Level = Literal["refused", "unknown", "warning", "note", "fine"]
Question = Literal[
    "cases",
    "satisfiable",
    "conflicts",
    "safe set",
    "influence",
    "dead ends",
    "difference",
    "suggestion",
]

LEVELS: tuple[Level, ...] = ("refused", "unknown", "warning", "note", "fine")
NOT_KNOWN = "not known in the budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One answer. `subject` is a constraint or a tag, `where` its file and line.

    `example` is a point in plant terms, `story` a course of events, `todo` what its author can do.
    """

    question: Question
    level: Level
    said: str
    subject: str = ""
    where: str = ""
    todo: str = ""
    example: Mapping[str, str] = field(default_factory=dict)
    story: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()  # of JSON, to paste into the module


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRow:
    """How far a tag's value may be from the truth, in its unit (S4); texts, rounded up."""

    name: str
    tag: str
    unit: str
    error: str
    half_count: str
    deadband: str
    reading: str  # their sum: of a reading just taken
    drift: str  # max_rate x (max_age + max_skew); empty: not declared
    worst: str  # of the oldest reading that may be used
    after: str  # what is assumed of it once the reading is taken


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRow:
    """A bare number and the unit it took."""

    where: str
    subject: str
    number: str
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The analysis of one module file against what is in force."""

    file: str
    module: str
    revision: int
    digest: str  # of the module's bytes
    against: tuple[str, ...] = ()  # modules it was compared with: id, revision
    findings: tuple[Finding, ...] = ()
    errors: tuple[ErrorRow, ...] = ()
    units: tuple[UnitRow, ...] = ()
    times: tuple[tuple[str, float], ...] = ()  # until a proposal acts, seconds
    took_s: float = 0.0

    @property
    def refused(self) -> bool:
        """Whether something is refused."""
        return any(f.level == "refused" for f in self.findings)

    @property
    def unknown(self) -> bool:
        """Whether something was not answered; nobody may take that for an answer."""
        return any(f.level == "unknown" for f in self.findings)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": not self.refused and not self.unknown, "refused": self.refused, **asdict(self)}


def nearest_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The worst first; within a level as the questions were asked."""
    return tuple(sorted(findings, key=lambda f: LEVELS.index(f.level)))


def from_plain(document: Mapping[str, Any]) -> Report:
    """A report that `plain` made; raises `KeyError`, `TypeError` or `ValueError` where it is none."""
    kept = {k: v for k, v in document.items() if k not in {"ok", "refused"}}
    kept["findings"] = tuple(
        Finding(**{**f, "story": tuple(f["story"]), "lines": tuple(f["lines"])}) for f in kept["findings"]
    )
    kept["errors"] = tuple(ErrorRow(**row) for row in kept["errors"])
    kept["units"] = tuple(UnitRow(**row) for row in kept["units"])
    kept["times"] = tuple((str(name), float(seconds)) for name, seconds in kept["times"])
    kept["against"] = tuple(kept["against"])
    return Report(**kept)
