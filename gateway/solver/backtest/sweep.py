"""A module beside recorded decisions, thousands at a time: what a module in shadow would have said of each.

The worst case over error, age, disturbance, carried state and horizon by intervals, as `shadow.Trial` finds
it one by one. Whatever floats cannot tell is asked of that exact judge, record by record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from gateway.core.decision import CheckRequest, Finding, Holds, Unknown, Violated
from gateway.core.tag import TagId
from gateway.solver.backtest.evidence import Bools, Evidence, Floats, Ints
from gateway.solver.backtest.motions import Motions
from gateway.solver.backtest.premises import observe
from gateway.solver.backtest.rows import Scales, Sheet
from gateway.solver.backtest.symbols import Symbols, untold
from gateway.solver.checking.condense import Plan, condense
from gateway.solver.checking.shadow import Trial
from gateway.solver.rules.interval import Scaled, scaled
from gateway.solver.rules.ruleset import Rule, RuleSet
from gateway.solver.workers.check import millis_up

HOLDS, VIOLATED, UNKNOWN = 0, 1, 2
NO_DISTANCE = 1e-12  # a rule about switches fails by nothing
_CHUNK = 8192  # decisions at a time: their columns stay in the cache

Asked = tuple[CheckRequest, Mapping[TagId, Fraction]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What a module says of `n` decisions. `verdict` and `margin` by rule; a margin of NaN: it has none.

    `reason` indexes `reasons`, -1 where the decision could be judged. `asked` were judged by the exact judge.
    """

    verdict: Mapping[str, Ints]
    margin: Mapping[str, Floats]
    reason: Ints
    reasons: tuple[str, ...]
    asked: Bools


class Sweeper:
    """One module, alone or with the others it would be in force with, for any number of decisions."""

    def __init__(self, rules: RuleSet, module: str) -> None:
        self.rules, self._module = rules, module
        self.trial = Trial(rules, RuleSet.of([m for m in rules.modules if m.id != module], rules.generation))
        self._motions = Motions(rules)
        self._scales = Scales(rules.modules[0].step)
        self._plans: dict[tuple[Fraction, Fraction], _Prepared] = {}
        every = (*rules.rules, *rules.safe_set, *rules.terminal)
        self.judged: Mapping[str, Rule] = {r.constraint.id: r for r in every if r.module == module}

    @property
    def one_by_one(self) -> str:
        """Why every decision is asked of the exact judge, which takes longer; empty where not."""
        if self.rules.terminal:
            return "it has a `terminal` set, and the backup's course towards it is followed one by one"
        if self.rules.remembered or self.rules.rows:
            return "it asks what was before (`prev`, `rate` or `for` of what is measured)"
        return ""

    def sweep(self, seen: Evidence, exactly: Callable[[int], Asked]) -> Sweep:
        """Judge them; `exactly` gives the whole record of one row, for the exact judge."""
        count = len(seen)
        found = _Found(count, tuple(self.judged))
        times = np.stack([seen.effect_delay_s, seen.hold_s], axis=1)
        for pair in np.unique(times, axis=0) if count else ():
            rows = np.flatnonzero((times == pair).all(axis=1))
            key = (millis_up(float(pair[0])), millis_up(float(pair[1])))
            for start in range(0, len(rows), _CHUNK):
                self._chunk(seen, rows[start : start + _CHUNK], key, found, exactly)
        return found.sweep()

    def exact(self, asked: Asked) -> tuple[Finding, ...]:
        """What the exact judge says of one decision."""
        request, values = asked
        return self.trial.findings(
            request, values, millis_up(request.effect_delay_s), millis_up(request.hold_s)
        )

    def _prepared(self, key: tuple[Fraction, Fraction]) -> _Prepared:
        if key not in self._plans:
            self._plans[key] = _Prepared.of(condense(self.rules, *key), self._module)
        return self._plans[key]

    def _chunk(
        self,
        seen: Evidence,
        rows: Ints,
        key: tuple[Fraction, Fraction],
        found: _Found,
        exactly: Callable[[int], Asked],
    ) -> None:
        prepared = self._prepared(key)
        if self.one_by_one or prepared.untold:
            found.ask(rows, self.exact, exactly)
            return
        part = seen.part(rows)
        with np.errstate(invalid="ignore", over="ignore"):
            premises = observe(self.rules, self._motions, part)
            sheet = Sheet(Symbols(self.rules, prepared.plan, part, premises), self._scales)
            doubtful = premises.reasons.doubtful.copy()
            for name, formulas in prepared.formulas.items():
                verdict, margin, open_ = _judged(sheet, formulas)
                found.verdict[name][rows], found.margin[name][rows] = verdict, margin
                doubtful |= open_
        found.excuse(rows, premises.reasons.of, premises.reasons.texts)
        unusable = (premises.reasons.of >= 0) & ~premises.reasons.doubtful
        found.ask(rows[doubtful & ~unusable], self.exact, exactly)


@dataclass(frozen=True, slots=True)
class _Prepared:
    plan: Plan
    formulas: Mapping[str, list[Scaled]]  # by constraint, in the order of the plan
    untold: bool

    @staticmethod
    def of(plan: Plan, module: str) -> _Prepared:
        formulas: dict[str, list[Scaled]] = {}
        for duty in plan.duties:
            rule = plan.rules[duty.rule]
            if rule.module == module:
                mine = formulas.setdefault(rule.constraint.id, [])
                formula = scaled(duty.formula)
                if formula not in mine:
                    mine.append(formula)
        return _Prepared(plan, formulas, untold(plan))


def _judged(sheet: Sheet, formulas: list[Scaled]) -> tuple[Ints, Floats, Bools]:
    """Verdict and margin of one rule, and where floats cannot tell them. The first that fails decides."""
    worsts = [sheet.worst(formula) for formula in formulas]
    count = len(worsts[0].value)
    verdict = np.full(count, HOLDS)
    open_ = np.zeros(count, dtype=np.bool_)
    least = np.full(count, np.inf)
    for formula, worst in zip(formulas, worsts, strict=True):
        undecided = verdict == HOLDS
        open_ |= undecided & worst.doubtful
        fails = undecided & (worst.value < 0)
        verdict[fails] = VIOLATED
        unsure = np.flatnonzero(fails & ~worst.sure & ~worst.doubtful)
        if len(unsure):
            violates, doubtful = sheet.at_corners(formula, unsure, worst.row[unsure])
            verdict[unsure[~violates]] = UNKNOWN
            open_[unsure[doubtful]] = True
        least = np.minimum(least, worst.value)
    failed = verdict != HOLDS
    margin = np.where(np.isfinite(least), least, np.nan)
    margin = np.where(failed, np.minimum(margin, 0.0), np.maximum(margin, 0.0))
    margin = np.where((failed & (margin > -NO_DISTANCE)) | (verdict == UNKNOWN), np.nan, margin)
    return verdict, margin, open_


class _Found:
    """A sweep in the making."""

    def __init__(self, count: int, names: tuple[str, ...]) -> None:
        self.verdict = {name: np.zeros(count, dtype=np.int64) for name in names}
        self.margin = {name: np.full(count, np.nan) for name in names}
        self._reason = np.full(count, -1)
        self._texts: list[str] = []
        self._asked = np.zeros(count, dtype=np.bool_)

    def excuse(self, rows: Ints, reasons: Ints, texts: list[str]) -> None:
        """Decisions that nobody could judge."""
        for number, text in enumerate(texts):
            these = rows[reasons == number]
            self._reason[these] = self._number(text)
            for name in self.verdict:
                self.verdict[name][these] = UNKNOWN
                self.margin[name][these] = np.nan

    def ask(
        self, rows: Ints, judge: Callable[[Asked], tuple[Finding, ...]], exactly: Callable[[int], Asked]
    ) -> None:
        """The exact judge's word, in place of what was found so far."""
        for row in rows:
            self._asked[row], self._reason[row] = True, -1
            for finding in judge(exactly(int(row))):
                if isinstance(finding, Unknown) and finding.constraint == "*":
                    self.excuse(np.array([row]), np.array([0]), [_plain(finding.reason)])
                    break
                self._keep(int(row), finding)

    def _keep(self, row: int, finding: Finding) -> None:
        verdict = {Holds: HOLDS, Violated: VIOLATED, Unknown: UNKNOWN}[type(finding)]
        margin = None if isinstance(finding, Unknown) else finding.margin
        self.verdict[finding.constraint][row] = verdict
        value = np.nan if margin is None else float(margin)
        if verdict == VIOLATED and value > -NO_DISTANCE:
            value = np.nan
        self.margin[finding.constraint][row] = value

    def _number(self, text: str) -> int:
        if text not in self._texts:
            self._texts.append(text)
        return self._texts.index(text)

    def sweep(self) -> Sweep:
        """As it is now."""
        return Sweep(
            verdict=self.verdict,
            margin=self.margin,
            reason=self._reason,
            reasons=tuple(self._texts),
            asked=self._asked,
        )


def _plain(reason: str) -> str:
    """A reason without the numbers of one record, so that alike ones are counted together."""
    return reason.split(" (", maxsplit=1)[0].split(" between ", maxsplit=1)[0]
