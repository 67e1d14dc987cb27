"""What a module says of recorded decisions, beside what was decided: counts and examples of one stretch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gateway.core.margins import BINS, EDGES
from gateway.solver.backtest.evidence import Bools, Floats, Ints
from gateway.solver.backtest.sweep import UNKNOWN, VIOLATED, Sweep

EXAMPLES = 3  # of each constraint
NEWLY_REFUSED, NEWLY_PERMITTED, NOT_SHOWN, STILL_PERMITTED, STILL_REFUSED = (
    "newly_refused",
    "newly_permitted",
    "not_shown",
    "still_permitted",
    "still_refused",
)
KINDS = (NEWLY_REFUSED, NEWLY_PERMITTED, NOT_SHOWN, STILL_PERMITTED, STILL_REFUSED)


@dataclass(frozen=True, slots=True)
class Example:
    """One decision, by its row in the log; `margin` NaN where the constraint has none."""

    sequence: int
    decision: str
    at_ns: int
    margin: float
    proposed: bool  # what was proposed was judged, not what was let out


@dataclass(slots=True)
class Tally:
    """One constraint. `refused`: decisions that it newly refuses."""

    kind: str
    judged: int = 0
    violated: int = 0
    unknown: int = 0
    refused: int = 0
    least: float = float("inf")
    histogram: list[int] = field(default_factory=lambda: [0] * BINS)
    examples: list[Example] = field(default_factory=list)  # of what is newly refused, worst first

    def add(self, other: Tally) -> None:
        """Another stretch's of the same constraint."""
        self.judged, self.violated = self.judged + other.judged, self.violated + other.violated
        self.unknown, self.refused = self.unknown + other.unknown, self.refused + other.refused
        self.least = min(self.least, other.least)
        self.histogram = [a + b for a, b in zip(self.histogram, other.histogram, strict=True)]
        self.examples = _worst([*self.examples, *other.examples])


@dataclass(slots=True)
class Comparison:
    """Everything counted so far. `kinds` by `KINDS`; `timeline` by slot of time, then by kind."""

    decisions: int = 0
    cannot: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    asked: int = 0  # of the exact judge
    timeline: dict[int, Counter[str]] = field(default_factory=dict)
    constraints: dict[str, Tally] = field(default_factory=dict)
    permitted: list[Example] = field(default_factory=list)
    not_shown: list[tuple[Example, str]] = field(default_factory=list)  # with the rule
    first_ns: int = 0
    last_ns: int = 0

    def add(self, other: Comparison) -> None:
        """Another stretch's, later or earlier."""
        self.decisions, self.asked = self.decisions + other.decisions, self.asked + other.asked
        self.cannot.update(other.cannot)
        self.kinds.update(other.kinds)
        for slot, counts in other.timeline.items():
            self.timeline.setdefault(slot, Counter()).update(counts)
        for name, tally in other.constraints.items():
            if name in self.constraints:
                self.constraints[name].add(tally)
            else:
                self.constraints[name] = tally
        self.permitted = _earliest([*self.permitted, *other.permitted])
        self.not_shown = sorted([*self.not_shown, *other.not_shown], key=lambda e: e[0].sequence)[:EXAMPLES]
        known = [ns for ns in (self.first_ns, other.first_ns) if ns]
        self.first_ns, self.last_ns = min(known, default=0), max(self.last_ns, other.last_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Decisions as decided, row for row those of a sweep.

    `permitted`: what is judged was let out by a verdict. `others` tells of a row whether rules of other
    modules were violated then; it is asked only where that matters.
    """

    sequence: Ints
    ids: Sequence[str]
    at_ns: Ints
    permitted: Bools
    others: Callable[[int], bool]


def compared(sweep: Sweep, judged: Judged, rules: Mapping[str, tuple[str, bool]], slot_ns: int) -> Comparison:
    """Counts of one stretch; `rules` gives each constraint's kind and whether it refuses."""
    usable = sweep.reason < 0
    by_kind = _by_kind(sweep, judged, [name for name, (_, binding) in rules.items() if binding], usable)
    found = Comparison(decisions=len(usable), asked=int(sweep.asked.sum()))
    for number, reason in enumerate(sweep.reasons):
        found.cannot[reason] += int((sweep.reason == number).sum())
    slots = judged.at_ns // slot_ns
    for kind, rows in by_kind.items():
        found.kinds[kind] = int(rows.sum())
        for slot, count in zip(*np.unique(slots[rows], return_counts=True), strict=True):
            found.timeline.setdefault(int(slot), Counter())[kind] += int(count)
    if len(usable):
        found.first_ns, found.last_ns = int(judged.at_ns.min()), int(judged.at_ns.max())
    found.permitted = [
        _example(judged, int(row), float("nan"))
        for row in np.flatnonzero(by_kind[NEWLY_PERMITTED])[:EXAMPLES]
    ]
    for row in np.flatnonzero(by_kind[NOT_SHOWN])[:EXAMPLES]:
        name = next(n for n, (_, binding) in rules.items() if binding and sweep.verdict[n][row] == UNKNOWN)
        found.not_shown.append((_example(judged, int(row), float("nan")), name))
    for name, (kind, binding) in rules.items():
        if name in sweep.verdict:
            found.constraints[name] = _tally(kind, name, sweep, judged, usable & binding, usable)
    return found


def _by_kind(sweep: Sweep, judged: Judged, binding: Sequence[str], usable: Bools) -> dict[str, Bools]:
    """Which decisions each of `KINDS` holds; `binding` are the rules that refuse."""
    fails, unknown, others = (np.zeros(len(usable), dtype=np.bool_) for _ in range(3))
    for name in binding:
        fails |= sweep.verdict[name] == VIOLATED
        unknown |= sweep.verdict[name] == UNKNOWN
    unknown &= ~fails
    fine = ~fails & ~unknown
    for row in np.flatnonzero(usable & ~judged.permitted & fine):
        others[row] = judged.others(int(row))
    return {
        NEWLY_REFUSED: usable & judged.permitted & fails,
        NOT_SHOWN: usable & unknown,
        NEWLY_PERMITTED: usable & ~judged.permitted & fine & ~others,
        STILL_PERMITTED: usable & judged.permitted & fine,
        STILL_REFUSED: usable & ~judged.permitted & (fails | (fine & others)),
    }


def _tally(kind: str, name: str, sweep: Sweep, judged: Judged, refusing: Bools, usable: Bools) -> Tally:
    verdict, margin = sweep.verdict[name], sweep.margin[name]
    violated = usable & (verdict == VIOLATED)
    refused = violated & judged.permitted & refusing
    known = usable & (verdict != UNKNOWN) & ~np.isnan(margin)
    tally = Tally(
        kind,
        judged=int((usable & (verdict != UNKNOWN)).sum()),
        violated=int(violated.sum()),
        unknown=int((usable & (verdict == UNKNOWN)).sum()),
        refused=int(refused.sum()),
        least=float(margin[known].min(initial=np.inf)),
        histogram=_histogram(margin[known]),
    )
    rows = np.flatnonzero(refused)
    nearest = rows[np.argsort(np.nan_to_num(margin[rows], nan=0.0), kind="stable")[:EXAMPLES]]
    tally.examples = [_example(judged, int(row), float(margin[row])) for row in nearest]
    return tally


def _histogram(margins: Floats) -> list[int]:
    counts = np.bincount(np.searchsorted(EDGES, margins, side="right"), minlength=BINS)
    return [int(count) for count in counts]


def _example(judged: Judged, row: int, margin: float) -> Example:
    return Example(
        int(judged.sequence[row]),
        judged.ids[row],
        int(judged.at_ns[row]),
        margin,
        not bool(judged.permitted[row]),
    )


def _worst(examples: list[Example]) -> list[Example]:
    return sorted(examples, key=lambda e: (0.0 if math.isnan(e.margin) else e.margin, e.sequence))[:EXAMPLES]


def _earliest(examples: list[Example]) -> list[Example]:
    return sorted(examples, key=lambda e: e.sequence)[:EXAMPLES]
