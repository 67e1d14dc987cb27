"""What a back-test found, as data: counts, constraints, examples with their values."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gateway.cli.backtest.part import Job, Stretcher
from gateway.core.decision import Finding, Violated
from gateway.core.errors import StorageError
from gateway.core.margins import BINS, ends_of
from gateway.core.tag import decimal_text
from gateway.solver.backtest.compare import KINDS, Comparison, Example, Tally

JUDGES = (
    "judged as a module in shadow is: the worst case by intervals over sensor error, age, disturbance and "
    "horizon, on the readings, values in force and carried state of each record; without Z3: what intervals "
    "cannot show is counted as not shown, never as permitted"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One example with its values; `margin` is empty where the rule has no distance."""

    decision: str
    at_ns: int
    constraint: str
    margin: str
    judged: str  # `let out` or `proposed`
    values: Mapping[str, str]  # by tag: the point that violates it, or what was read and judged
    where: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One constraint."""

    id: str
    kind: str
    judged: int
    violated: int
    not_shown: int
    newly_refused: int
    least_margin: float | None
    margin_unit: str  # empty where nobody can tell, or where its comparisons differ in it
    margins: list[tuple[float | None, float | None, int]]  # bins that are not empty
    examples: list[Told]


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestReport:
    """A whole back-test."""

    file: str
    module: str
    revision: int
    against: list[str]
    log: str
    since_ns: int
    first_ns: int
    last_ns: int
    slot_ns: int
    decisions: int
    kinds: dict[str, int]
    cannot: dict[str, int]
    asked_exactly: int
    one_by_one: str
    constraints: list[Row]
    newly_permitted: list[Told]
    timeline: list[tuple[int, dict[str, int]]]  # start of a slot, UTC ns
    took_s: float
    assumed_tags: bool

    @property
    def judged(self) -> int:
        """Decisions that could be judged."""
        return self.decisions - sum(self.cannot.values())

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {"judges": JUDGES, "judged": self.judged, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Ran:
    """How a back-test was run: from when on, its slots of time, how long it took, and on whose tags."""

    begins_ns: int
    slot_ns: int
    took_s: float
    assumed_tags: bool


def report_of(job: Job, stretcher: Stretcher, found: Comparison, ran: Ran) -> BacktestReport:
    """The report with its examples looked at by the exact judge."""
    names = [name for name in stretcher.sweeper.judged if name in found.constraints]
    rows = [_row(stretcher, name, found.constraints[name]) for name in names]
    rows.sort(key=lambda r: (-r.newly_refused, -r.violated))
    return BacktestReport(
        file=job.module[1],
        module=stretcher.module.id,
        revision=stretcher.module.revision,
        against=[m.id for m in stretcher.rules.modules if m.id != stretcher.module.id],
        log=str(job.log),
        since_ns=ran.begins_ns,
        first_ns=found.first_ns,
        last_ns=found.last_ns,
        slot_ns=ran.slot_ns,
        decisions=found.decisions,
        kinds={kind: found.kinds[kind] for kind in KINDS},
        cannot=dict(found.cannot.most_common()),
        asked_exactly=found.asked,
        one_by_one=stretcher.sweeper.one_by_one,
        constraints=rows,
        newly_permitted=[told_of(stretcher, example, "") for example in found.permitted],
        timeline=[(slot * ran.slot_ns, dict(counts)) for slot, counts in sorted(found.timeline.items())],
        took_s=ran.took_s,
        assumed_tags=ran.assumed_tags,
    )


def _row(stretcher: Stretcher, name: str, tally: Tally) -> Row:
    return Row(
        id=name,
        kind=tally.kind,
        judged=tally.judged,
        violated=tally.violated,
        not_shown=tally.unknown,
        newly_refused=tally.refused,
        least_margin=None if tally.least == float("inf") else tally.least,
        margin_unit=stretcher.margin_units.get(name, ""),
        margins=[
            (*ends_of(number), tally.histogram[number]) for number in range(BINS) if tally.histogram[number]
        ],
        examples=[told_of(stretcher, example, name) for example in tally.examples],
    )


def told_of(stretcher: Stretcher, example: Example, constraint: str) -> Told:
    """An example with the exact judge's own point and margin."""
    finding: Finding | None = None
    values: dict[str, str] = {}
    with contextlib.suppress(StorageError):  # the counts stand; a record that is gone has no values
        asked = stretcher.asked(example.sequence, proposed=example.proposed)
        request, judged = asked
        values = {tag: str(sample.value) for tag, sample in request.inputs.items()}
        values |= {str(tag): decimal_text(value) for tag, value in judged.items()}
        finding = next((f for f in stretcher.sweeper.exact(asked) if f.constraint == constraint), None)
    margin = "" if math.isnan(example.margin) else f"{example.margin:.6g}"
    where, unit = "", ""
    if isinstance(finding, Violated):
        unit = finding.unit
        known = {str(tag) for tag in stretcher.rules.variables}
        values |= {tag: decimal_text(v) for tag, v in finding.witness.items() if tag in known}
        where = finding.where
    return Told(
        decision=example.decision,
        at_ns=example.at_ns,
        constraint=constraint,
        margin=margin,
        judged="proposed" if example.proposed else "let out",
        values=values,
        where=where,
        unit=unit,
    )
