"""One check, from inputs to verdict, inside a worker."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

from gateway.core.decision import (
    CheckResult,
    Finding,
    Permitted,
    Proposal,
    Refused,
    Repaired,
    Undetermined,
    Verdict,
)
from gateway.core.guidance import Guidance, Refusal
from gateway.core.ports import CheckRequest, ProvedBand, StateSet
from gateway.core.tag import TagId
from gateway.solver.checking import backup, repair
from gateway.solver.checking.judge import Judge, Judgement, Prepared
from gateway.solver.checking.predict import Facts, UnusableError, observe, same_premises
from gateway.solver.checking.proved import Bands
from gateway.solver.checking.restrain import as_proposal, resolved
from gateway.solver.checking.shelf import Shelf
from gateway.solver.checking.terms import Budget
from gateway.solver.decoding.permitted_next import NotKnown, PermittedNext
from gateway.solver.rules.ruleset import RuleSet

if TYPE_CHECKING:
    from gateway.solver.repairing.nearest import Nearest
    from gateway.solver.workers.outlook import Guide

_MILLI = 1000


@dataclass(frozen=True, slots=True)
class _Ready:
    """What follows from the premises of one request, whatever is proposed."""

    request: CheckRequest
    facts: Facts
    prepared: Prepared
    proved: Mapping[TagId, ProvedBand]
    took_ms: float


class Checks:
    """The checker of one rule set; one thread."""

    def __init__(self, rules: RuleSet, budget: Budget | None = None, shelf: Shelf | None = None) -> None:
        """`shelf`: what other sets of this thread have prepared, and what is prepared for the next ones."""
        self.rules = rules
        self._judge = Judge(rules, budget or Budget(), shelf)
        self._bands = Bands(rules)
        self._guide: Guide | None = None
        self._nearest: Nearest | None = None
        self._ready: _Ready | None = None

    def warm(self, hold_s: float, effect_delay_s: float) -> None:
        """Build the plan for two times before the first check needs it."""
        if self.rules.modules:
            self._prepared(hold_s, effect_delay_s)

    @property
    def outlines(self) -> dict[str, bool]:
        """What Z3 said of the rules' outlines, for a worker that loads the same set."""
        return self._judge.outlines

    def check(
        self, request: CheckRequest, late: Callable[[], bool] = lambda: False
    ) -> tuple[CheckResult, StateSet | None]:
        """The result and the state to carry; `late` ends the search for a repair."""
        started = time.perf_counter()
        timings: dict[str, float] = {}
        ready: _Ready | None = None
        try:
            ready = self._ready_for(request)
            timings["ready"] = ready.took_ms
            result = self._judged(ready, request, late)
        except UnusableError as exc:
            result = self._result(request, Undetermined(str(exc)), ())
        timings["check"] = (time.perf_counter() - started) * _MILLI
        if ready is None:
            return replace(result, timings_ms=timings), None
        return replace(result, timings_ms=timings, proved=ready.proved), ready.facts.carry

    def prepare(self, request: CheckRequest, order: Sequence[TagId] = ()) -> None:
        """Work out ahead what every check on these premises needs; nothing is decided.

        With an `order` of all outputs what `permitted_next` and `guidance` need instead; Z3 comes later.
        """
        with contextlib.suppress(UnusableError):  # the check finds that again, and tells it
            if order and self._governs(order):
                ready = self._read(request)
                self._guiding().outlook(ready.prepared, ready.facts, order)
            else:
                self._ready_for(request)

    def permitted_next(
        self, request: CheckRequest, order: Sequence[TagId], fixed: Sequence[int]
    ) -> PermittedNext:
        """The counts of the output after those fixed that can still lead to a permitted decision.

        `order` is every output of the rule set once, else `ValueError`. What is proposed does not matter.
        """
        try:
            ready = self._read(request)
        except UnusableError as exc:
            return NotKnown(str(exc))
        outlook = self._guiding().outlook(ready.prepared, ready.facts, order)
        return outlook if isinstance(outlook, NotKnown) else outlook.after(fixed)

    def guidance(
        self, request: CheckRequest, order: Sequence[TagId], refusals: tuple[Refusal, ...]
    ) -> Guidance | NotKnown:
        """`permitted_next` for whatever will be fixed, as plain data, less what was refused already.

        What is proposed in `request` does not matter. Where `order` is not every output: `NotKnown`.
        """
        if not self._governs(order):
            governed = ", ".join(f"`{v.tag}`" for v in self.rules.actions)
            return NotKnown(f"the model's outputs are not those the modules in force govern: {governed}")
        try:
            ready = self._read(request)
        except UnusableError as exc:
            return NotKnown(str(exc))
        return self._guiding().guidance(ready.prepared, ready.facts, order, refusals)

    def _guiding(self) -> Guide:
        """Made for the first who asks: most workers guide nobody, and are spared what it rests on."""
        if self._guide is None:
            from gateway.solver.workers.outlook import Guide  # noqa: PLC0415  # see there

            self._guide = Guide(self.rules)
        return self._guide

    def _repairing(self) -> Nearest:
        """Made for the first whose repairs may leave the way to the values in force."""
        if self._nearest is None:
            from gateway.solver.repairing.nearest import Nearest  # noqa: PLC0415  # see `_guiding`

            self._nearest = Nearest(self.rules)
        return self._nearest

    def _governs(self, order: Sequence[TagId]) -> bool:
        """Whether an order names every output of the rule set once."""
        return sorted(order) == sorted(v.tag for v in self.rules.actions)

    def _ready_for(self, request: CheckRequest) -> _Ready:
        """The premises of a request, told to Z3 as well."""
        ready = self._read(request)
        if not ready.facts.past.missing:  # else nothing is judged on them
            ready.prepared.stage(ready.facts)
            if request.repair == "nearest":
                self._repairing().warm(ready.prepared)
        return ready

    def _read(self, request: CheckRequest) -> _Ready:
        """The premises of a request; those of the one before where nothing differs but what is judged."""
        if self._ready is None or not same_premises(self._ready.request, request):
            self._ready = None
            started = time.perf_counter()
            facts = observe(self.rules, request)
            prepared = self._prepared(request.hold_s, request.effect_delay_s)
            proved = self._bands.of(facts, millis_up(request.effect_delay_s))
            took_ms = (time.perf_counter() - started) * _MILLI
            self._ready = _Ready(request, facts, prepared, proved, took_ms)
        return self._ready

    def _judged(self, ready: _Ready, request: CheckRequest, late: Callable[[], bool]) -> CheckResult:
        if ready.facts.past.missing:  # the state is carried on, so that the next check knows
            return self._result(request, Undetermined(ready.facts.past.missing), ())
        if request.proposal is None:
            return self._backup(ready.prepared, ready.facts, request)
        self._whole(request.proposal)
        return self._proposal(ready.prepared, ready.facts, request, request.proposal, late)

    def _prepared(self, hold_s: float, effect_delay_s: float) -> Prepared:
        return self._judge.prepare(millis_up(effect_delay_s), millis_up(hold_s))

    def _whole(self, proposal: Proposal) -> None:
        """The whole block and nothing else, in exact register values."""
        given = {v.tag for v in proposal.values}
        for variable in self.rules.actions:
            if variable.tag not in given:
                msg = f"the proposal has no value for `{variable.tag}`"
                raise UnusableError(msg)
        for value in proposal.values:
            known = self.rules.variables.get(value.tag)
            if known is None or not known.action:
                msg = f"no module in force governs `{value.tag}`"
                raise UnusableError(msg)
            low, high = known.definition.raw_range or (value.raw, value.raw)
            if known.definition.engineering(value.raw) != value.value or not low <= value.raw <= high:
                msg = f"the value proposed for `{value.tag}` is not what its register would hold"
                raise UnusableError(msg)

    def _proposal(
        self,
        prepared: Prepared,
        facts: Facts,
        request: CheckRequest,
        proposal: Proposal,
        late: Callable[[], bool],
    ) -> CheckResult:
        wanted = self._resolved(facts, request, proposal)
        judged = self._judge.judge(prepared, facts, _values(wanted))
        if judged.permitted:
            return self._permitted(prepared, facts, request, wanted, judged)
        if wanted.values != proposal.values:  # holding still is not permitted: perhaps what was asked is
            judged = self._judge.judge(prepared, facts, _values(proposal))
        if judged.undecided:
            return self._result(request, Undetermined(judged.undecided), judged.findings)
        if judged.permitted:
            return self._moved_enough(prepared, facts, request, proposal, judged)
        counterexample = judged.violated[0].counterexample()
        if request.may_repair and request.repair == "nearest":
            return self._nearest_to(prepared, facts, request, proposal, judged, late)
        if request.may_repair:
            for candidate in repair.candidates(self.rules, prepared, facts, proposal, request.restraint):
                if late():
                    break
                again = self._judge.judge(prepared, facts, _values(candidate))
                if again.permitted:
                    verdict = Repaired(candidate.values, counterexample)
                    return self._result(request, verdict, judged.findings, proposal=candidate)
        return self._result(request, Refused(counterexample), judged.findings)

    def _nearest_to(
        self,
        prepared: Prepared,
        facts: Facts,
        request: CheckRequest,
        proposal: Proposal,
        judged: Judgement,
        late: Callable[[], bool],
    ) -> CheckResult:
        """Repaired wherever that is nearest; undetermined where search and judge contradict each other."""
        from gateway.solver.repairing.nearest import Disagreed, Question  # noqa: PLC0415  # see `_guiding`
        from gateway.solver.repairing.words import told  # noqa: PLC0415  # see `_guiding`

        worst = judged.violated[0]
        found = self._repairing().repaired(
            Question(
                prepared=prepared,
                facts=facts,
                proposal=proposal,
                restraint=request.restraint,
                refused=judged,
                judge=lambda one: self._judge.judge(prepared, facts, _values(one)),
                late=late,
            )
        )
        match found:
            case None:
                return self._result(request, Refused(worst.counterexample()), judged.findings)
            case Disagreed(reason):
                return self._result(request, Undetermined(reason), judged.findings)
        broken = [shown.finding for shown in judged.violated]
        said = told(self.rules, request.inputs, proposal, found, broken)
        verdict = Repaired(found.values, worst.counterexample(), said)
        return self._result(request, verdict, judged.findings, proposal=found)

    def _permitted(
        self, prepared: Prepared, facts: Facts, request: CheckRequest, wanted: Proposal, judged: Judgement
    ) -> CheckResult:
        """Permitted, though what is kept back may go less far than asked (S12)."""
        less = repair.released(self.rules, prepared, facts, wanted, request.restraint)
        if less is not None:
            candidate, why = less
            again = self._judge.judge(prepared, facts, _values(candidate))
            if again.permitted:
                return self._result(request, Permitted(candidate.values, why), again.findings)
        return self._result(request, Permitted(wanted.values), judged.findings)

    def _resolved(self, facts: Facts, request: CheckRequest, proposal: Proposal) -> Proposal:
        """The proposal with changes too small to write left out: what is written is what is checked."""
        wanted = {v.tag: v for v in proposal.values}
        held = next(resolved(self.rules, facts, wanted, request.restraint))
        return as_proposal(proposal, held)

    def _moved_enough(
        self, prepared: Prepared, facts: Facts, request: CheckRequest, proposal: Proposal, judged: Judgement
    ) -> CheckResult:
        """A small change that must be made: made large enough to write, where that is permitted."""
        wanted = {v.tag: v for v in proposal.values}
        for values in list(resolved(self.rules, facts, wanted, request.restraint))[1:]:
            candidate = as_proposal(proposal, values)
            again = self._judge.judge(prepared, facts, _values(candidate))
            if again.permitted:
                why = "the values in force are not permitted, and a smaller change is not written"
                return self._result(request, Permitted(candidate.values, why), again.findings)
        return self._result(request, Permitted(proposal.values), judged.findings)

    def _backup(self, prepared: Prepared, facts: Facts, request: CheckRequest) -> CheckResult:
        """The backup's own action, permitted; or the one that may be written to recover (S9); or neither."""
        refused: list[tuple[Proposal, Judgement]] = []
        undecided = "no module in force declares a backup"
        for candidate in backup.actions(self.rules, facts):
            judged = self._judge.judge(prepared, facts, _values(candidate), as_backup=True)
            if judged.permitted:
                return self._result(request, Permitted(candidate.values), judged.findings, proposal=candidate)
            if judged.undecided:
                undecided = judged.undecided
            else:
                refused.append((candidate, judged))
        for candidate, judged in refused:
            if self._no_worse(prepared, facts, candidate):
                verdict = Refused(judged.violated[0].counterexample())
                return self._result(request, verdict, judged.findings, proposal=candidate, recovery=True)
        if refused:
            judged = refused[0][1]
            return self._result(request, Refused(judged.violated[0].counterexample()), judged.findings)
        return self._result(request, Undetermined(undecided), ())

    def _no_worse(self, prepared: Prepared, facts: Facts, candidate: Proposal) -> bool:
        """Whether no worst-case violation grows against the values in force (S9)."""
        present = backup.in_force(self.rules, facts)
        if present is None:
            return False
        binding = [index for index in prepared.binding if index not in prepared.timed]
        then = prepared.slacks(prepared.box(facts, _values(candidate)), binding)
        for values in present:
            now = prepared.slacks(prepared.box(facts, _values(values)), binding)
            if any(slack < 0 and slack < now[rule] for rule, slack in then.items()):
                return False
        return True

    def _result(
        self,
        request: CheckRequest,
        verdict: Verdict,
        findings: tuple[Finding, ...],
        *,
        proposal: Proposal | None = None,
        recovery: bool = False,
    ) -> CheckResult:
        return CheckResult(
            verdict=verdict,
            findings=findings,
            generation=request.generation,
            rule_set_digest=self.rules.digest,
            proposal=proposal,
            recovery=recovery,
            overrides=self.rules.overrides,
        )


def _values(proposal: Proposal) -> dict[TagId, Fraction]:
    return proposal.engineering()


def millis_up(value: float) -> Fraction:
    """Seconds rounded up to a millisecond: few different plans."""
    return Fraction(ceil(round(value * _MILLI, 6)), _MILLI)
