"""One proposal against one plan: interval pass, Z3 on every rule, witness re-evaluated exactly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from operator import itemgetter
from typing import NamedTuple

import structlog

from gateway.core.decision import Finding, Holds, Unknown, Violated
from gateway.core.tag import TagId
from gateway.solver.affine import symbols
from gateway.solver.boxes import Boxes, choices
from gateway.solver.condense import Duty, Plan, condense
from gateway.solver.hull import Asked
from gateway.solver.interval import SCALE, SETTLED, Box, Row, Scaled, Slack
from gateway.solver.misses import missed
from gateway.solver.predict import Facts
from gateway.solver.report import Shown, described, shown_point
from gateway.solver.ruleset import Rule, RuleSet
from gateway.solver.shelf import Shelf
from gateway.solver.simulate import beginning, violates
from gateway.solver.table import Table
from gateway.solver.terms import Answer, Budget

log = structlog.get_logger().bind(component="solver")

_PLANS = 8  # pairs of times kept ready
_FARTHEST = 10**9  # in the list of findings: a rule without a limit
_WITH_PROPOSAL = ("new:", "rate:", "e", "b")  # kinds of symbols that another proposal changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What is known of one proposal. `undecided` says why nobody knows; then nothing else counts."""

    findings: tuple[Finding, ...]  # nearest limit first, violated ones before all
    violated: tuple[Shown, ...]  # critical and standard rules, worst first
    undecided: str = ""

    @property
    def permitted(self) -> bool:
        """True only when every critical and standard rule is known to hold. Unknown is not a pass."""
        return not self.undecided and not self.violated and bool(self.findings)


class Worst(NamedTuple):
    """The duty of one rule that comes nearest to its limit."""

    slack: Slack
    duty: Duty
    scaled: Scaled


class _Part:
    """Some duties of some rules."""

    def __init__(self, duties: Mapping[int, list[tuple[Duty, Scaled]]]) -> None:
        self._duties = duties
        self._table = _table(list(duties.values()))

    def slacks(self, within: Box, unit: int) -> dict[int, int]:
        """By rule, its least slack in units of 1 / `unit`, a multiple of every formula's own."""
        found: dict[int, int] = {}
        for (rule, duties), least in zip(self._duties.items(), self._table.least(within), strict=True):
            if least is not None:
                found[rule] = least[1].value * (unit // duties[least[0]][1].unit)
        return found


class Prepared:
    """A plan with its whole-number rows and its Z3 query."""

    def __init__(self, rules: RuleSet, shelf: Shelf, delay: Fraction, hold: Fraction, budget: Budget) -> None:
        self.rules = rules
        self.plan: Plan = condense(rules, delay, hold, shelf.duties)
        self._boxes = Boxes(rules, self.plan)
        self.query = Asked(rules, self.plan, shelf, budget)
        self._staged: tuple[Facts, dict[str, tuple[int, int]]] | None = None
        self._known: tuple[Facts, dict[str, tuple[int, int]]] | None = None
        self._duties: list[list[tuple[Duty, Scaled]]] = [[] for _ in self.plan.rules]
        parts = self.query.parts
        for duty in self.plan.duties:
            mine = self._duties[duty.rule]
            mine.append((duty, parts[duty.rule].scaled[len(mine)]))
        self._table = _table(self._duties)
        self.unit = lcm(1, *(formula.unit for duties in self._duties for _, formula in duties))
        self.timed = frozenset(
            index
            for index, rule in enumerate(self.plan.rules)
            if any(n.startswith(("kept_on(", "may_rise(")) for n in symbols(rule.formula))
        )
        self.informational = frozenset(i for i, rule in enumerate(self.plan.rules) if not rule.binding)
        self.changing = frozenset(n for n in self.plan.symbols if n.startswith(_WITH_PROPOSAL))
        self._common = tuple(n for n in self.plan.symbols if n not in self.changing)
        self.binding = tuple(i for i in range(len(self.plan.rules)) if i not in self.informational)
        movable: dict[int, list[tuple[Duty, Scaled]]] = {}
        of_the_state: dict[int, list[tuple[Duty, Scaled]]] = {}
        fixed: list[tuple[Duty, Scaled]] = []
        for index in self.binding:
            for duty, formula in self._duties[index]:
                if formula.symbols & self.changing:
                    movable.setdefault(index, []).append((duty, formula))
                    if not all(name.startswith(SETTLED) for name in formula.symbols):
                        of_the_state.setdefault(index, []).append((duty, formula))
                else:
                    fixed.append((duty, formula))
        self._movable, self._of_the_state = _Part(movable), _Part(of_the_state)
        self._fixed = _table([fixed])

    def box(self, facts: Facts, new: Mapping[TagId, Fraction]) -> dict[str, tuple[int, int]]:
        """The premises of one proposal."""
        return {**self.stage(facts), **self._boxes.box(facts, new, self.changing)}

    def known(self, facts: Facts) -> dict[str, tuple[int, int]]:
        """The part of a box that no proposal changes; Z3 is not told."""
        if self._known is None or self._known[0] is not facts:
            self._known = facts, self._boxes.box(facts, {}, self._common)
        return self._known[1]

    def stage(self, facts: Facts) -> dict[str, tuple[int, int]]:
        """State once, for all proposals on the same facts, the premises that no proposal changes."""
        if self._staged is None or self._staged[0] is not facts:
            common = self.known(facts)
            self._staged = None
            self.query.stage(common)
            self._staged = facts, common
        return self._staged[1]

    def worsts(self, within: Box) -> list[Worst | None]:
        """By rule, its nearest limit over a box; None where it demands nothing."""
        return [
            None if found is None else Worst(found[1], *duties[found[0]])
            for duties, found in zip(self._duties, self._table.least(within), strict=True)
        ]

    def slacks(self, within: Box, rules: Iterable[int]) -> dict[int, Fraction]:
        """Least slack of each of some rules, in its own unit."""
        worsts = self.worsts(within)
        return {i: Fraction(w.slack.value, w.scaled.unit) for i in rules if (w := worsts[i]) is not None}

    def movable_slacks(self, within: Box) -> dict[int, int]:
        """Least slack of each critical and standard rule, as far as a proposal can change it.

        In units of 1 / `unit`.
        """
        return self._movable.slacks(within, self.unit)

    def state_slacks(self, within: Box) -> dict[int, int]:
        """The same of those rules that are about the plant's state as well."""
        return self._of_the_state.slacks(within, self.unit)

    def hopeless(self, within: Box) -> bool:
        """Whether intervals cannot show what no proposal can change."""
        least = self._fixed.least(within)[0]
        return least is not None and not least[1].holds

    def changed(self, facts: Facts, new: Mapping[TagId, Fraction], before: Box) -> dict[str, tuple[int, int]]:
        """The premises of another proposal, from those of one before."""
        return {**before, **self._boxes.box(facts, new, self.changing)}

    def duties(self, index: int) -> list[Duty]:
        """Everything one rule demands."""
        return [duty for duty, _ in self._duties[index]]


class Judge:
    """All plans of one rule set. They may share a shelf with those of other sets; one thread."""

    def __init__(self, rules: RuleSet, budget: Budget, shelf: Shelf | None = None) -> None:
        self.rules = rules
        self._budget = budget
        self._shelf = shelf if shelf is not None else Shelf()
        self._prepared: dict[tuple[Fraction, Fraction], Prepared] = {}

    def prepare(self, delay: Fraction, hold: Fraction) -> Prepared:
        """The plan for two times, built at most once while in use."""
        key = (delay, hold)
        if key not in self._prepared:
            if len(self._prepared) >= _PLANS:
                self._prepared.pop(next(iter(self._prepared)))
            self._prepared[key] = Prepared(self.rules, self._shelf, delay, hold, self._budget)
        return self._prepared[key]

    @property
    def outlines(self) -> dict[str, bool]:
        """By key of a rule's part whether it has an outline; those of which Z3 did not say are left out."""
        every = (part for prepared in self._prepared.values() for part in prepared.query.parts)
        return {p.key: p.outline.formula is not None for p in every if p.outline is not None}

    def judge(
        self, prepared: Prepared, facts: Facts, new: Mapping[TagId, Fraction], *, as_backup: bool = False
    ) -> Judgement:
        """What is known of a proposal; the backup alone need not keep minimum times (S1)."""
        within = prepared.box(facts, new)
        exempt = prepared.timed if as_backup else frozenset[int]()
        query = prepared.query
        try:
            own = {name: within[name] for name in prepared.changing}
            if not query.open(own, choices(self.rules, prepared.plan, facts, within)):
                return Judgement(
                    findings=(), violated=(), undecided="broken assumption: the premises cannot be met"
                )
            return self._judged(prepared, within, exempt)
        finally:
            query.close()

    def _judged(self, prepared: Prepared, within: Box, exempt: AbstractSet[int]) -> Judgement:
        holding: dict[int, Worst] = {}
        failing: dict[int, Worst] = {}
        for index, worst in enumerate(prepared.worsts(within)):
            if worst is not None and index not in exempt:
                (holding if worst.slack.holds else failing)[index] = worst
        answer = prepared.query.any_of(holding)
        if answer is Answer.SAT:
            log.error("judges_disagreed", said="z3 finds a violation that the interval pass excludes")
            return Judgement(findings=(), violated=(), undecided="the solver and the exact judge disagree")
        if answer is Answer.UNKNOWN:
            return Judgement(findings=(), violated=(), undecided="the solver gave no answer in its budget")
        findings: list[tuple[int, Finding]] = []  # with the margin in units of 1 / `Prepared.unit`
        violated: list[Shown] = []
        undecided = ""
        for index, worst in failing.items():
            finding, shown, reason = self._examined(prepared, within, index, worst)
            binding = index not in prepared.informational
            undecided = undecided or (reason if binding else "")
            if shown is not None and binding:
                violated.append(shown)
            margin = (finding.margin if isinstance(finding, Violated) else None) or Fraction(0)
            findings.append((int(margin * prepared.unit), finding))
        for index, worst in holding.items():
            rule = prepared.plan.rules[index]
            order, least = (
                worst.scaled.margin_in(worst.slack, prepared.unit),
                worst.scaled.margin(worst.slack),
            )
            order = _FARTHEST * prepared.unit if order is None else order
            findings.append((order, Holds(rule.module, rule.constraint.id, least)))
        findings.sort(key=itemgetter(0))
        violated.sort(key=_telling)
        return Judgement(
            findings=tuple(f for _, f in findings), violated=tuple(violated), undecided=undecided
        )

    def _examined(
        self, prepared: Prepared, within: Box, index: int, worst: Worst
    ) -> tuple[Finding, Shown | None, str]:
        """A rule that intervals cannot show to hold: proved by Z3 alone (S8), violated, or unknown."""
        rule = prepared.plan.rules[index]
        if worst.slack.row is not None:
            witness = corner(within, worst.slack.row)
            point = violates(self.rules, prepared.plan, worst.duty, witness)
            said = Answer.UNKNOWN if point is None else prepared.query.at(index, witness)
            if point is not None and said is Answer.SAT:
                return self._violated(prepared, rule, worst.duty, witness, point, worst, within)
            if said is Answer.UNSAT:
                return self._disagreed(rule, "z3 finds the rule kept where the exact judge finds it violated")
        answer = prepared.query.one(index)
        if answer is Answer.UNSAT:
            return Holds(rule.module, rule.constraint.id), None, ""
        if answer is Answer.UNKNOWN:
            reason = f"`{rule.constraint.id}`: the solver gave no answer in its budget"
            return Unknown(rule.module, rule.constraint.id, reason), None, reason
        model = prepared.query.witness()
        for duty in prepared.duties(index):
            point = violates(self.rules, prepared.plan, duty, model)
            if point is not None:
                return self._violated(prepared, rule, duty, model, point, worst, within)
        return self._disagreed(rule, "the witness violates nothing")

    def _disagreed(self, rule: Rule, said: str) -> tuple[Finding, None, str]:
        log.error("judges_disagreed", constraint=rule.constraint.id, said=said)
        reason = f"`{rule.constraint.id}`: the solver and the exact judge disagree"
        return Unknown(rule.module, rule.constraint.id, reason), None, reason

    def _violated(
        self,
        prepared: Prepared,
        rule: Rule,
        duty: Duty,
        witness: Mapping[str, Fraction],
        point: Mapping[str, Fraction],
        worst: Worst,
        within: Box,
    ) -> tuple[Finding, Shown, str]:
        start = beginning(self.rules, witness)
        assignment = shown_point(self.rules, prepared.plan, duty, witness, point, start)
        finding = Violated(
            rule.module,
            rule.constraint.id,
            rule.constraint.told_as,
            missed(self.rules, worst.scaled, within),
            assignment,
            rule.constraint.message,
            rule.where,
        )
        return finding, Shown(finding, described(self.rules, rule, point, start, prepared.plan, duty)), ""


def _table(duties: Iterable[list[tuple[Duty, Scaled]]]) -> Table:
    return Table([[formula for _, formula in mine] for mine in duties])


def _telling(shown: Shown) -> tuple[bool, bool, Fraction]:
    """What a person should read first: a plain critical rule before a part of the safe set, worst first."""
    finding = shown.finding
    margin = finding.margin or Fraction(0)
    return finding.constraint.startswith("safe_set["), finding.kind != "critical", margin


def corner(within: Box, row: Row) -> dict[str, Fraction]:
    """A point of the box that is worst for one row."""
    found = {
        name: Fraction(low if name.startswith(SETTLED) else (low + high) // 2, SCALE)
        for name, (low, high) in within.items()
    }
    found.update({name: Fraction(value, SCALE) for name, value in row.worst(within).items()})
    return found
