"""One proposal against one plan: interval pass, Z3 on every rule, witness re-evaluated exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import lcm
from operator import itemgetter
from typing import NamedTuple

import structlog

from gateway.core.decision import Finding, Holds, Unknown, Violated
from gateway.core.tag import TagId
from gateway.solver.checking.boxes import Boxes, choices
from gateway.solver.checking.condense import Duty, Plan, condense
from gateway.solver.checking.corners import corners
from gateway.solver.checking.hull import Asked
from gateway.solver.checking.misses import missed
from gateway.solver.checking.predict import Facts
from gateway.solver.checking.report import Shown, described, shown_point
from gateway.solver.checking.shelf import Shelf
from gateway.solver.checking.simulate import Replay, beginning
from gateway.solver.checking.table import Nearest, Table
from gateway.solver.checking.terms import Answer, Budget
from gateway.solver.language.affine import symbols
from gateway.solver.rules.interval import SETTLED, VACUOUS, Box, Scaled, Slack
from gateway.solver.rules.ruleset import Rule, RuleSet

log = structlog.get_logger().bind(component="solver")

_PLANS = 8  # pairs of times kept ready
_FARTHEST = 10**9  # in the list of findings: a rule without a limit
_WITH_PROPOSAL = ("new:", "rate:", "e", "b", "c", "u")  # kinds of symbols that another proposal changes


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What is known of one proposal. `undecided` says why nobody knows; then nothing else counts."""

    violated: tuple[Shown, ...] = ()  # critical and standard rules, worst first
    undecided: str = ""
    examined: tuple[tuple[int, Finding], ...] = ()  # what intervals do not show, with the order of its margin
    holding: Mapping[int, Nearest] = field(default_factory=dict)  # what they show, by rule
    told: Callable[[int, Nearest], tuple[int, Finding]] | None = None  # the finding of one of these

    @property
    def permitted(self) -> bool:
        """True only when every critical and standard rule is known to hold. Unknown is not a pass."""
        return not self.undecided and not self.violated and bool(self.examined or self.holding)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Of every rule; nearest limit first, violated ones before all."""
        found = list(self.examined)
        if self.told is not None:
            found += [self.told(index, near) for index, near in self.holding.items()]
        return tuple(finding for _, finding in sorted(found, key=itemgetter(0)))


class Worst(NamedTuple):
    """The duty of one rule that comes nearest to its limit, with its number among the rule's."""

    number: int
    slack: Slack
    duty: Duty
    scaled: Scaled


class _Part:
    """Some duties of some rules. Slacks are in units of 1 / `unit`, a multiple of every formula's own."""

    def __init__(self, duties: Mapping[int, list[tuple[Duty, Scaled]]], unit: int, fixed: Box) -> None:
        self._duties, self._unit, self._ends = duties, unit, fixed

    @cached_property
    def _table(self) -> Table:
        return _table(list(self._duties.values()), self._ends)

    def slacks(self, within: Box) -> dict[int, int]:
        """By rule, its least slack."""
        found: dict[int, int] = {}
        for (rule, duties), near in zip(self._duties.items(), self._table.nearest(within), strict=True):
            if near is not None:
                found[rule] = near[1] * (self._unit // duties[near[0]][1].unit)
        return found

    def names(self, rules: Iterable[int]) -> frozenset[str]:
        """What a few rules are about."""
        mine = (formula.symbols for rule in rules for _, formula in self._duties.get(rule, ()))
        return frozenset[str]().union(*mine)

    def slacks_of(self, rules: Iterable[int], within: Box) -> dict[int, int]:
        """The same of a few rules, those that have duties here."""
        return {
            rule: min(formula.slack(within).value * (self._unit // formula.unit) for _, formula in duties)
            for rule in rules
            if (duties := self._duties.get(rule))
        }


@dataclass(frozen=True, slots=True)
class Look:
    """The interval pass over one proposal."""

    within: Box
    nearest: list[Nearest | None]  # by rule


class Prepared:
    """A plan with its whole-number rows and its Z3 query."""

    def __init__(self, rules: RuleSet, shelf: Shelf, delay: Fraction, hold: Fraction, budget: Budget) -> None:
        self.rules = rules
        self.plan: Plan = condense(rules, delay, hold, shelf.duties)
        self.replay = Replay(rules, self.plan)
        self._boxes = Boxes(rules, self.plan)
        self.query = Asked(rules, self.plan, shelf, budget)
        self.margins = shelf.margins(rules, self.plan.rules)
        self._told_in: dict[tuple[int, int, int], str] = {}  # by rule, duty and row; found when asked for
        self._staged: tuple[Facts, dict[str, tuple[int, int]]] | None = None
        self._known: tuple[Facts, dict[str, tuple[int, int]]] | None = None
        self._looked: tuple[Facts, Mapping[TagId, Fraction], Look] | None = None
        self._duties: list[list[tuple[Duty, Scaled]]] = [[] for _ in self.plan.rules]
        parts = self.query.parts
        for duty in self.plan.duties:
            mine = self._duties[duty.rule]
            mine.append((duty, parts[duty.rule].scaled[len(mine)]))
        always = self._boxes.fixed()
        self._table = _table(self._duties, always)
        self.unit = lcm(1, *(formula.unit for duties in self._duties for _, formula in duties))
        self._units = [[(f.unit, self.unit // f.unit) for _, f in duties] for duties in self._duties]
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
        self.movable = _Part(movable, self.unit, always)  # critical and standard, where a proposal counts
        self.of_the_state = _Part(of_the_state, self.unit, always)  # of them those about the state as well
        self._fixed = _table([fixed], always)

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

    def look(self, facts: Facts, new: Mapping[TagId, Fraction]) -> Look:
        """Its premises and, by rule, the nearest limit; of the proposal looked at last they are kept."""
        if self._looked is None or self._looked[0] is not facts or self._looked[1] != new:
            within = self.box(facts, new)
            self._looked = facts, dict(new), Look(within, self._table.nearest(within))
        return self._looked[2]

    def worst(self, rule: int, near: Nearest) -> Worst:
        """The duty that a look found nearest to its limit."""
        number, value, row = near
        slack = Slack(value, self._table.rows[row] if row >= 0 else None)
        return Worst(number, slack, *self._duties[rule][number])

    def holds(self, rule: int, near: Nearest) -> tuple[int, Finding]:
        """What is told of a rule that a look shows to hold, with its margin in units of 1 / `unit`."""
        number, value, row = near
        constraint = self.plan.rules[rule]
        if row < 0 or value >= VACUOUS:
            return _FARTHEST * self.unit, Holds(constraint.module, constraint.constraint.id)
        unit, multiple = self._units[rule][number]
        value += self._table.rows[row].strict
        name = constraint.constraint.id
        told_in = self.margins[rule].only
        if told_in is None:
            told_in = self._told_in.get((rule, number, row))
            if told_in is None:
                told_in = self.margins[rule].of(self._duties[rule][number][1], self._table.rows[row])
                self._told_in[rule, number, row] = told_in
        return value * multiple, Holds(constraint.module, name, Fraction(value, unit), told_in)

    def slacks(self, within: Box, rules: Iterable[int]) -> dict[int, Fraction]:
        """Least slack of each of some rules, in its own unit."""
        nearest = self._table.nearest(within)
        return {i: Fraction(near[1], self._units[i][near[0]][0]) for i in rules if (near := nearest[i])}

    def hopeless(self, within: Box) -> bool:
        """Whether intervals cannot show what no proposal can change."""
        least = self._fixed.least(within)[0]
        return least is not None and not least[1].holds

    def changed(
        self, facts: Facts, new: Mapping[TagId, Fraction], before: Box, names: AbstractSet[str] | None = None
    ) -> dict[str, tuple[int, int]]:
        """The premises of another proposal, from those of one before; of all symbols, or right for some."""
        changing = self.changing if names is None else self.changing & names
        return {**before, **self._boxes.box(facts, new, changing)}

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
        prepared.stage(facts)
        look = prepared.look(facts, new)
        exempt = prepared.timed if as_backup else frozenset[int]()
        query = prepared.query
        try:
            own = {name: look.within[name] for name in prepared.changing}
            if not query.open(own, choices(self.rules, prepared.plan, facts, look.within)):
                return Judgement(undecided="broken assumption: the premises cannot be met")
            return self._judged(prepared, look, exempt)
        finally:
            query.close()

    def _judged(self, prepared: Prepared, look: Look, exempt: AbstractSet[int]) -> Judgement:
        holding: dict[int, Nearest] = {}
        failing: dict[int, Nearest] = {}
        for index, near in enumerate(look.nearest):
            if near is not None and index not in exempt:
                (holding if near[1] >= 0 else failing)[index] = near
        answer = prepared.query.any_of(holding)
        if answer is Answer.SAT:
            log.error("judges_disagreed", said="z3 finds a violation that the interval pass excludes")
            return Judgement(undecided="the solver and the exact judge disagree")
        if answer is Answer.UNKNOWN:
            return Judgement(undecided="the solver gave no answer in its budget")
        examined: list[tuple[int, Finding]] = []
        violated: list[Shown] = []
        undecided = ""
        for index, near in failing.items():
            worst = prepared.worst(index, near)
            finding, shown, reason = self._examined(prepared, look.within, index, worst)
            binding = index not in prepared.informational
            undecided = undecided or (reason if binding else "")
            if shown is not None and binding:
                violated.append(shown)
            margin = (finding.margin if isinstance(finding, Violated) else None) or Fraction(0)
            examined.append((int(margin * prepared.unit), finding))
        violated.sort(key=_telling)
        return Judgement(
            violated=tuple(violated),
            undecided=undecided,
            examined=tuple(examined),
            holding=holding,
            told=prepared.holds,
        )

    def _examined(
        self, prepared: Prepared, within: Box, index: int, worst: Worst
    ) -> tuple[Finding, Shown | None, str]:
        """A rule that intervals cannot show to hold: proved by Z3 alone (S8), violated, or unknown."""
        rule = prepared.plan.rules[index]
        for witness in corners(within, worst.scaled, worst.slack.row):
            point = prepared.replay.violates(worst.duty, witness) if prepared.query.may_be(witness) else None
            if point is None:
                continue
            said = prepared.query.at(index, worst.number, witness)
            if said is Answer.SAT:
                return self._violated(prepared, index, worst.duty, witness, point, worst, within)
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
            point = prepared.replay.violates(duty, model)
            if point is not None:
                return self._violated(prepared, index, duty, model, point, worst, within)
        return self._disagreed(rule, "the witness violates nothing")

    def _disagreed(self, rule: Rule, said: str) -> tuple[Finding, None, str]:
        log.error("judges_disagreed", constraint=rule.constraint.id, said=said)
        reason = f"`{rule.constraint.id}`: the solver and the exact judge disagree"
        return Unknown(rule.module, rule.constraint.id, reason), None, reason

    def _violated(
        self,
        prepared: Prepared,
        index: int,
        duty: Duty,
        witness: Mapping[str, Fraction],
        point: Mapping[str, Fraction],
        worst: Worst,
        within: Box,
    ) -> tuple[Finding, Shown, str]:
        rule, start = prepared.plan.rules[index], beginning(self.rules, witness)
        miss = missed(self.rules, worst.scaled, within)
        assignment = shown_point(self.rules, prepared.plan, duty, witness, point, start)
        finding = Violated(
            rule.module,
            rule.constraint.id,
            rule.constraint.told_as,
            None if miss is None else miss[0],
            assignment,
            rule.constraint.message,
            rule.where,
            "" if miss is None else prepared.margins[index].of(worst.scaled, miss[1]),
        )
        return finding, Shown(finding, described(self.rules, rule, point, start, prepared.plan, duty)), ""


def _table(duties: Iterable[list[tuple[Duty, Scaled]]], fixed: Box) -> Table:
    return Table([[formula for _, formula in mine] for mine in duties], fixed)


def _telling(shown: Shown) -> tuple[bool, bool, Fraction]:
    """What a person should read first: a plain critical rule before a part of the safe set, worst first."""
    finding = shown.finding
    margin = finding.margin or Fraction(0)
    return finding.constraint.startswith("safe_set["), finding.kind != "critical", margin
