"""All questions about one module, in turn, within one budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from gateway.solver.analysis import (
    cases,
    coefficients,
    conflicts,
    dead_ends,
    difference,
    effective,
    influence,
    invariance,
    satisfiable,
    suggest,
)
from gateway.solver.analysis.asking import Allowance
from gateway.solver.analysis.effective import Times
from gateway.solver.analysis.findings import Finding, Report, nearest_first
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.in_force.weakening import weakens
from gateway.solver.modules.module import Module
from gateway.solver.rules.ruleset import RuleSet

Progress = Callable[[str, int, int], None]  # the question at hand, how much of it is done, of how much

_PROOF = 0.6  # of the time that is left, for the proof of the safe set


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to analyse, against what, and how deeply."""

    module: Module
    active: Sequence[Module] = ()
    times: Times = field(default_factory=Times)
    silence_s: float = 0.0  # the longest hold of S11; 0: not known
    proved: Collection[str] = ()  # proof digests that were shown before
    suggest: bool = False


def analyze(
    wanted: Wanted, allowance: Allowance, progress: Progress = lambda _question, _done, _of: None
) -> Report:
    """The report; what is over budget is in it as not known."""
    started = time.monotonic()
    module = wanted.module
    found = list(_findings(wanted, allowance, progress))
    rules = _together(wanted)
    return Report(
        file=module.source,
        module=module.id,
        revision=module.revision,
        digest=module.digest,
        against=tuple(f"{m.id} {m.revision}" for m in wanted.active),
        findings=nearest_first(found),
        errors=tuple(row for row in effective.errors(rules, wanted.times) if row.tag in module.tags.values()),
        units=tuple(coefficients.units(module)),
        times=wanted.times.until_effect,
        took_s=round(time.monotonic() - started, 3),
    )


def _findings(wanted: Wanted, allowance: Allowance, progress: Progress) -> Iterator[Finding]:
    module, alone = wanted.module, RuleSet.of([wanted.module], 0)
    progress("cases", 0, 1)
    yield from cases.examine(alone, allowance)
    yield from _counted("satisfiable", alone, allowance, progress)
    progress("conflicts", 0, 1)
    yield from conflicts.examine(module, wanted.active, allowance)
    yield from _in_time(wanted, allowance, progress)
    progress("difference", 0, 1)
    yield from _difference(wanted, allowance)
    if wanted.suggest:
        yield suggest.examine(
            _together(wanted), module, allowance, lambda done, of: progress("suggestion", done, of)
        )
    progress("done", 1, 1)


def _counted(name: str, rules: RuleSet, allowance: Allowance, progress: Progress) -> Iterator[Finding]:
    done = 0

    def one_more() -> None:
        nonlocal done
        done += 1
        progress(name, done, len(rules.rules))

    yield from satisfiable.examine(rules, allowance, one_more)


def _in_time(wanted: Wanted, allowance: Allowance, progress: Progress) -> Iterator[Finding]:
    """What becomes of the plant: asked of all modules together, where they fit."""
    rules = _together(wanted)
    finding, proved = invariance.examine(
        rules,
        allowance.part(_PROOF),
        lambda done, of: progress("safe set", done, of),
        wanted.proved,
    )
    yield finding
    if (long_enough := invariance.horizon(rules, wanted.silence_s)) is not None:
        yield long_enough
    progress("influence", 0, 1)
    yield from (f for f in influence.examine(rules, only=wanted.module.id))
    progress("dead ends", 0, 1)
    dead_end = dead_ends.examine(rules, allowance.part(_PROOF), proved=proved)
    if dead_end is not None:
        yield dead_end


def _difference(wanted: Wanted, allowance: Allowance) -> Iterator[Finding]:
    old = next((m for m in wanted.active if m.id == wanted.module.id), None)
    if old is None or old.digest == wanted.module.digest:
        return
    why = weakens(
        _in_force(wanted.active),
        old,
        wanted.module,
        lambda before, after, around: difference.unkept(before, after, allowance, around),
    )
    yield from difference.examine(old, wanted.module, [why] if why else [], allowance)


def _in_force(active: Sequence[Module]) -> RuleSet | None:
    """None where they do not fit each other."""
    try:
        return RuleSet.of(active, 0)
    except ModuleRefusedError:
        return None


def _together(wanted: Wanted) -> RuleSet:
    """The module with the others in force; alone where they do not fit."""
    others = [m for m in wanted.active if m.id != wanted.module.id]
    try:
        return RuleSet.of([*others, wanted.module], 0)
    except ModuleRefusedError:
        return RuleSet.of([wanted.module], 0)
