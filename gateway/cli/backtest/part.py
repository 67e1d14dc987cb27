"""One stretch of the audit log, judged: what a back-test's processes do. Module, log and counts meet here."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from gateway.core.decision import DecisionRecord, Permitted, Repaired
from gateway.core.errors import StorageError
from gateway.core.tag import TagDefinition, TagId
from gateway.solver.backtest.compare import Comparison, Judged, compared
from gateway.solver.backtest.evidence import Bools, Evidence, Ints, Listed
from gateway.solver.backtest.sweep import Asked, Sweeper
from gateway.solver.bytecode.accept import accepted
from gateway.solver.bytecode.signing import Trust
from gateway.solver.rules.margin_unit import margin_units
from gateway.solver.rules.ruleset import RuleSet
from gateway.storage.recorded import OUTCOMES, Batch, RecordedDecisions, Wanted, blamed

_SLOTS = 60  # of a timeline
_SHORTEST_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What every process is told once. `others`: modules it would be in force with. Bytes and file names."""

    log: Path
    module: tuple[bytes, str]
    others: tuple[tuple[bytes, str], ...]
    tags: Mapping[TagId, TagDefinition]
    point: str | None


class Stretcher:
    """Judges stretches of one log. Raises `ModuleRefusedError` and `StorageError`."""

    def __init__(self, job: Job) -> None:
        self.job = job
        module, *others = (accepted(*given, job.tags, Trust()) for given in (job.module, *job.others))
        self.module = module
        self.rules = RuleSet.of([module, *(m for m in others if m.id != module.id)], 1)
        self.sweeper = Sweeper(self.rules, module.id)
        self._log = RecordedDecisions(job.log)
        self._wanted = Wanted(
            measured=tuple(str(v.tag) for v in self.rules.reported),
            actions=tuple(str(v.tag) for v in self.rules.actions),
            carried=tuple(str(v.tag) for v in self.rules.measured),
        )
        self.margin_units = {
            name: margin_units(rule, self.rules.variables).only or ""
            for name, rule in self.sweeper.judged.items()
        }
        self._kinds = {name: (r.constraint.kind, r.binding) for name, r in self.sweeper.judged.items()}

    def close(self) -> None:
        """No more is asked."""
        self._log.close()

    def since(self, utc_ns: int) -> tuple[int, int]:
        """First and last row of the log from then on; the second is lower where there are none."""
        return self._log.since(utc_ns)

    def newest(self) -> int:
        """The last row of the log, 0 while it is empty."""
        return self._log.newest()

    def slot_ns(self, first: int, last: int) -> int:
        """How long a slot of the timeline of those rows is."""
        return max(_SHORTEST_NS, -(-self._log.span_ns(first, last) // _SLOTS))

    def stretch(self, first: int, last: int, slot_ns: int) -> Comparison:
        """Rows `first` to `last` of the log; the timeline in slots of `slot_ns`."""
        batch = self._log.batch(first, last, self.job.point, self._wanted)
        seen = _evidence(batch)
        let_out = batch.outcome <= OUTCOMES.index("repaired")
        found = self._compared(batch, seen, np.arange(len(seen)), let_out, slot_ns)
        repaired = np.flatnonzero(batch.outcome == OUTCOMES.index("repaired"))
        if len(repaired):  # what was proposed is another question than what was let out
            asked = replace(seen.part(repaired), proposed={t: c[repaired] for t, c in batch.proposed.items()})
            again = self._compared(batch, asked, repaired, np.zeros(len(repaired), dtype=np.bool_), slot_ns)
            again.decisions, again.cannot = 0, Counter()
            found.add(again)
        found.decisions += sum(batch.left_out.values())
        found.cannot.update(batch.left_out)
        return found

    def asked(self, sequence: int, *, proposed: bool) -> Asked:
        """One decision as the exact judge asks for it; raises `StorageError`."""
        record = self._log.record(sequence)
        if record.examined is None:
            raise StorageError(f"the record of `{record.id}` does not hold what was examined")
        return record.examined.request, judged_values(record, proposed=proposed)

    def _compared(
        self, batch: Batch, seen: Evidence, rows: Ints, permitted: Bools, slot_ns: int
    ) -> Comparison:
        sweep = self.sweeper.sweep(
            seen, lambda row: self.asked(int(batch.sequence[rows[row]]), proposed=not permitted[row])
        )
        judged = Judged(
            sequence=batch.sequence[rows],
            ids=[batch.ids[row] for row in rows],
            at_ns=batch.at_ns[rows],
            permitted=permitted,
            others=lambda row: bool(blamed(batch.findings[int(rows[row])]) - {self.module.id}),
        )
        return compared(sweep, judged, self._kinds, slot_ns)


def judged_values(record: DecisionRecord, *, proposed: bool) -> Mapping[TagId, Fraction]:
    """What a decision let out by its verdict, or what was proposed to it."""
    if not proposed and isinstance(record.outcome, Permitted | Repaired):
        return {v.tag: v.value for v in record.outcome.setpoints}
    return {} if record.proposal is None else record.proposal.engineering()


def _evidence(batch: Batch) -> Evidence:
    count = len(batch.ids)
    return Evidence(
        taken_at=batch.taken_at,
        hold_s=batch.hold_s,
        effect_delay_s=batch.effect_delay_s,
        value=batch.value,
        status=batch.status,
        confirmed_at=batch.confirmed_at,
        in_force={tag: Listed(values, ago, row, count) for tag, (values, ago, row) in batch.history.items()},
        held_s=batch.held_s,
        carried_at=batch.carried_at,
        carried=batch.carried,
        proposed=batch.let_out,
    )


_stretcher: Stretcher | None = None  # of this worker process


def begin(job: Job) -> None:
    """The first thing a worker does."""
    global _stretcher  # noqa: PLW0603  a process pool's initialiser has no other place
    _stretcher = Stretcher(job)
    # Records come and go by the million and hold no cycles.
    gc.collect()
    gc.freeze()
    gc.disable()


def judge_stretch(first: int, last: int, slot_ns: int) -> Comparison:
    """One stretch, in a worker."""
    assert _stretcher is not None, "`begin` came first"  # noqa: S101
    return _stretcher.stretch(first, last, slot_ns)
