"""Rule sets played for a few cycles, and everything that the second judge has against what was decided."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from gateway.cli.certificate.judges import claimed_bounds
from gateway.core.decision import (
    CheckRequest,
    CheckResult,
    DecisionId,
    Examination,
    InForce,
    Permitted,
    PointId,
    Proposal,
    Refused,
    RegisterValue,
    Repaired,
    StateSet,
    Undetermined,
    outcome_name,
)
from gateway.core.quality import StatusCode
from gateway.core.tag import TagId, TagValue
from gateway.recheck.bounds import misproved, violated
from gateway.recheck.check import recheck
from gateway.recheck.evidence import recorded_of
from gateway.recheck.exactly import VIOLATED, recheck_exactly
from gateway.recheck.forms import NotLinearError
from gateway.recheck.recorded import premises, question
from gateway.solver.certificates.claims import Claim, scene_of
from gateway.solver.certificates.smtlib import acting
from gateway.solver.checking.terms import Budget
from gateway.solver.language.evaluate import moved
from gateway.solver.modules.module import Module, Variable
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from tests.unit.whole_modules import REST, TAGS

_PATIENT = Budget(timeout_ms=10_000)
_START = 1_000.0
_HELD = (0.0, 2.0, 1_000.0)


@dataclass
class Loop:
    """A plant that moves as its modules say, with sensors as bad as they may be and now and then worse."""

    modules: Sequence[Module]
    dice: random.Random
    exactly: bool = False  # the exact judge, too
    tally: Counter[str] = field(default_factory=Counter)
    against: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rules = RuleSet.of(self.modules, 1)
        self._checks = Checks(self.rules, _PATIENT)
        names = {v.tag: v.name for m in self.modules for v in m.variables.values()}
        self._truth = {str(v.tag): REST.get(names[v.tag], Fraction(0)) for v in self.rules.measured}
        first = {str(v.tag): self._any(v) for v in self.rules.actions}
        self._history = {tag: [InForce(value, 0.0)] for tag, value in first.items()}
        self._held = {tag: self.dice.choice(_HELD) for tag in first}
        self._carried: StateSet | None = None
        self._at = _START

    @property
    def texts(self) -> list[str]:
        return [m.text for m in self.modules]

    def run(self, cycles: int) -> None:
        for cycle in range(cycles):
            seconds = self.dice.choice([1.0] * 8 + [0.9, 1.2, 0.5, 3.0])
            self._live(seconds)
            request = self._request()
            result, state = self._checks.check(request)
            self.tally[outcome_name(result.verdict)] += 1
            found = list(self._opinions(request, result, state))
            self.against += [f"cycle {cycle}, {outcome_name(result.verdict)}: {said}" for said in found]
            self._carried = state if state is not None else self._carried
            self._write(result, seconds)

    # ---- the plant ----

    def _any(self, v: Variable) -> Fraction:
        if v.labels is not None:
            return Fraction(self.dice.choice(list(v.labels.values())))
        return Fraction(self.dice.randrange(2) if v.sort == "bool" else 2)

    def _live(self, seconds: float) -> None:
        self._at += seconds
        left, step = Fraction(str(seconds)), self.modules[0].step
        acting_now = {tag: past[0].value for tag, past in self._history.items()}
        while left > 0:
            part = min(left, step)
            left -= part
            band = {
                name: low + (high - low) * Fraction(self.dice.randrange(11), 10)
                for name, (low, high) in self.rules.disturbances.items()
            }
            point = {**self._truth, **acting_now, **band}
            self._truth.update(moved(self.rules.dynamics, point, part / step))
        for v in self.rules.measured:
            if v.tag not in self.rules.dynamics:
                self._truth[v.tag] = self._drifted(v, Fraction(str(seconds)))

    def _drifted(self, v: Variable, seconds: Fraction) -> Fraction:
        value = self._truth[v.tag]
        if v.labels is not None or v.sort == "bool":
            return self._any(v) if self.dice.random() < 0.3 else value
        if v.sort == "int":
            way = self.dice.choice([-1, 0, 0, 1])
            return max(Fraction(0), min(Fraction(6), value + way))
        low, high = v.physical or v.range
        way_ = Fraction(self.dice.randrange(-4, 5), 10) * (seconds if v.max_rate is not None else 1)
        return min(high - Fraction(1, 2), max(low + Fraction(1, 2), value + way_))

    # ---- the decision ----

    def _request(self) -> CheckRequest:
        delay = self.dice.choice([0.0, 0.3, 0.5, 1.0])
        wanted = {v.tag: self._wanted(v) for v in self.rules.actions}
        values = tuple(RegisterValue(t, TAGS[t].counts(v), v) for t, v in wanted.items())
        backup = self.rules.backup and self.dice.random() < 0.2
        return CheckRequest(
            decision=DecisionId("d"),
            point=PointId("p"),
            generation=1,
            inputs=self._inputs(),
            taken_at=self._at,
            history={TagId(tag): tuple(past) for tag, past in self._history.items()},
            held_s={TagId(tag): seconds for tag, seconds in self._held.items()},
            proposal=None if backup else Proposal(values=values, by="x"),
            carried=self._carried,
            hold_s=delay + self.dice.choice([1.0, 1.2, 2.0]),
            effect_delay_s=delay,
            may_repair=self.dice.random() < 0.3,
        )

    def _wanted(self, v: Variable) -> Fraction:
        old = self._history[v.tag][0].value
        if self.dice.random() < 0.5:
            return old
        if v.sort != "real":
            return Fraction(self.dice.randrange(5)) if v.sort == "int" else self._any(v)
        return max(Fraction(0), min(Fraction(8), old + Fraction(self.dice.randrange(-20, 21), 10)))

    def _inputs(self) -> dict[TagId, TagValue]:
        spoilt = self.dice.choice(self.rules.reported).tag if self.dice.random() < 0.2 else None
        return {v.tag: self._reading(v, spoilt=v.tag == spoilt) for v in self.rules.reported}

    def _reading(self, v: Variable, *, spoilt: bool) -> TagValue:
        value: float | bool = int(self._truth[v.tag])
        if v.sort == "bool":
            value = bool(value)
        if v.sort == "real":
            off = v.error * Fraction(self.dice.randrange(-9, 10), 10)
            scale = v.definition.scale
            value = float(round((self._truth[v.tag] + off) / scale) * scale)
        good = TagValue(
            value=value, status=StatusCode.Good, source_ts_ns=None, server_ts_ns=0, confirmed_at=self._at
        )
        if not spoilt:
            return good
        return self.dice.choice(
            [
                replace(good, value=None),
                replace(good, status=StatusCode.Bad),
                replace(good, status=StatusCode.Uncertain),
                replace(good, confirmed_at=self._at - 1.5),
                replace(good, confirmed_at=self._at - 2.5),
            ]
        )

    def _write(self, result: CheckResult, seconds: float) -> None:
        written = _written(result)
        for tag, past in self._history.items():
            aged = [replace(e, ceased_s_ago=e.ceased_s_ago + seconds) if e.ceased_s_ago else e for e in past]
            if written.get(tag, aged[0].value) == aged[0].value:
                self._history[tag] = aged
                self._held[tag] += seconds
                continue
            unconfirmed = self.dice.random() < 0.1
            before = replace(aged[0], ceased_s_ago=0.0 if unconfirmed else seconds)
            older = [entry for entry in aged[1:] if entry.ceased_s_ago]
            self._history[tag] = [InForce(written[tag], 0.0), before, *older][:4]
            self._held[tag] = 0.0

    # ---- the second judge ----

    def _opinions(self, request: CheckRequest, result: CheckResult, state: StateSet | None) -> Sequence[str]:
        verdict = result.verdict
        if isinstance(verdict, Undetermined):
            return [verdict.reason] if "disagree" in verdict.reason else []
        found: list[str] = []
        if isinstance(verdict, Permitted | Repaired):
            found += self._of_what_is_let_out(request, result, state)
            found += self._of_the_bounds(request, result)
        if isinstance(verdict, Refused | Repaired) and request.proposal is not None:
            found += self._of_the_witness(request, result, verdict)
        return found

    def _of_what_is_let_out(
        self, request: CheckRequest, result: CheckResult, state: StateSet | None
    ) -> Sequence[str]:
        kept = None if state is None else {t: (i.low, i.high) for t, i in state.intervals.items()}
        told = recorded_of(request, _written(result), as_backup=request.proposal is None, kept=kept)
        known = premises(self.texts, told)
        found = [*known.unusable, *(f"the state leaves out values of {tag}" for tag in known.left_out)]
        if known.contradict:  # its narrower reading may contradict itself: then it has nothing to say
            return found
        asked = question(told, known)
        report = recheck(self.texts, asked, samples=12, seed=round(self._at))
        found += [*report.undetermined, *(f"{name} can be violated" for name in sorted(report.violated))]
        if self.exactly:
            self.tally["exactly"] += 1
            try:
                worst = recheck_exactly(self.texts, asked)
            except NotLinearError:
                return found
            found += [f"{name} is violated, exactly" for name, w in worst.items() if w.says == VIOLATED]
        return found

    def _of_the_bounds(self, request: CheckRequest, result: CheckResult) -> Sequence[str]:
        action = {TagId(tag): value for tag, value in _written(result).items()}
        examination = Examination(request=request, result=result)
        backup = request.proposal is None
        claim = Claim(says="holds", of="p", examination=examination, action=action, as_backup=backup)
        scene = scene_of(claim, self.rules)
        told = recorded_of(request, _written(result), as_backup=backup, kept=None)
        known = premises(self.texts, told)
        asked = None if known.contradict else question(told, known)
        return misproved(self.texts, replace(claimed_bounds(scene), asked=asked), samples=8)

    def _of_the_witness(
        self, request: CheckRequest, result: CheckResult, verdict: Refused | Repaired
    ) -> Sequence[str]:
        assert request.proposal is not None
        told = verdict.counterexample
        claim = Claim(
            says="violated",
            of="p",
            examination=Examination(request=request, result=result),
            action=request.proposal.engineering(),
            counterexample=told,
        )
        scene = scene_of(claim, self.rules)
        name, values = f"{told.module}/{told.constraint}", [acting(duty) for duty in scene.duties]
        fails = violated(
            self.texts, claimed_bounds(scene), name, scene.duties[0].instant, values, scene.witness
        )
        return [] if fails else [f"the witness does not violate {name}"]


def _written(result: CheckResult) -> Mapping[str, Fraction]:
    verdict = result.verdict
    if not isinstance(verdict, Permitted | Repaired):
        return {}
    return {str(v.tag): v.value for v in verdict.setpoints}
