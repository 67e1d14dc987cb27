"""Modules in shadow: judged on every decision, exactly and without Z3, to no effect (S27)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from gateway.core.decision import Finding, Holds, Unknown, Violated
from gateway.core.ports import CheckRequest
from gateway.core.tag import TagId
from gateway.solver.checking.boxes import Boxes
from gateway.solver.checking.condense import Duty, Plan, condense
from gateway.solver.checking.corners import corner
from gateway.solver.checking.predict import UnusableError, observe
from gateway.solver.checking.report import shown_point
from gateway.solver.checking.simulate import beginning, violates
from gateway.solver.rules.interval import Box, Scaled, scaled
from gateway.solver.rules.margin_unit import MarginUnits, margin_units
from gateway.solver.rules.ruleset import Rule, RuleSet

_PLANS = 8  # pairs of times kept ready
_NOT_SHOWN = "intervals cannot show it, and Z3 is not asked for modules in shadow"


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A plan, and of each shadow rule everything that it demands."""

    plan: Plan
    boxes: Boxes
    duties: Mapping[int, list[tuple[Duty, Scaled]]]  # by index of the plan's rules


class Trial:
    """The rules in force with the shadow modules among them. What it finds is told and changes nothing."""

    def __init__(self, rules: RuleSet, in_force: RuleSet) -> None:
        active = {module.id: module.digest for module in in_force.modules}
        self._rules = rules
        self._shadow = {m.id for m in rules.modules if active.get(m.id) != m.digest}
        self._plans: dict[tuple[Fraction, Fraction], _Prepared] = {}
        self._units: dict[tuple[str, str], MarginUnits] = {}

    def warm(self, delay: Fraction, hold: Fraction) -> None:
        """Build the plan for two times before the first decision needs it."""
        self._prepared(delay, hold)

    def findings(
        self, request: CheckRequest, values: Mapping[TagId, Fraction], delay: Fraction, hold: Fraction
    ) -> tuple[Finding, ...]:
        """What the shadow modules say of these setpoints, violated first; unknown is said, too."""
        missing = next((v.name for v in self._rules.actions if v.tag not in values), "")
        try:
            facts = observe(self._rules, request)
        except UnusableError as exc:
            return self._unknown(str(exc))
        if facts.past.missing or missing:
            return self._unknown(facts.past.missing or f"the decision has no value for `{missing}`")
        prepared = self._prepared(delay, hold)
        within = prepared.boxes.box(facts, values)
        found = [self._finding(prepared.plan, index, d, within) for index, d in prepared.duties.items()]
        return tuple(sorted(found, key=_telling))

    def _unknown(self, reason: str) -> tuple[Finding, ...]:
        return tuple(Unknown(module, "*", reason) for module in sorted(self._shadow))

    def _prepared(self, delay: Fraction, hold: Fraction) -> _Prepared:
        key = (delay, hold)
        if key not in self._plans:
            if len(self._plans) >= _PLANS:
                self._plans.pop(next(iter(self._plans)))
            plan = condense(self._rules, delay, hold)
            duties: dict[int, list[tuple[Duty, Scaled]]] = {}
            for duty in plan.duties:
                if plan.rules[duty.rule].module in self._shadow:
                    duties.setdefault(duty.rule, []).append((duty, scaled(duty.formula)))
            self._plans[key] = _Prepared(plan, Boxes(self._rules, plan), duties)
        return self._plans[key]

    def _finding(self, plan: Plan, index: int, duties: list[tuple[Duty, Scaled]], within: Box) -> Finding:
        """One rule: shown to hold, violated at a point that says so exactly, or not known."""
        rule = plan.rules[index]
        margins: list[tuple[Fraction, str]] = []
        units = self._measured(rule)
        for duty, formula in duties:
            slack = formula.slack(within)
            margin = formula.margin(slack)
            if slack.holds:
                if margin is not None and slack.row is not None:
                    margins.append((margin, units.of(formula, slack.row)))
                continue
            if slack.row is None:
                return Unknown(rule.module, rule.constraint.id, _NOT_SHOWN)
            witness = corner(within, slack.row)
            point = violates(self._rules, plan, duty, witness)
            if point is None:
                return Unknown(rule.module, rule.constraint.id, _NOT_SHOWN)
            finding = self._violated(plan, rule, duty, witness, point, margin)
            return replace(finding, unit=units.of(formula, slack.row)) if margin is not None else finding
        return Holds(rule.module, rule.constraint.id, *min(margins, default=(None, "")))

    def _measured(self, rule: Rule) -> MarginUnits:
        key = rule.module, rule.constraint.id
        if key not in self._units:
            self._units[key] = margin_units(rule, self._rules.variables)
        return self._units[key]

    def _violated(
        self,
        plan: Plan,
        rule: Rule,
        duty: Duty,
        witness: Mapping[str, Fraction],
        point: Mapping[str, Fraction],
        margin: Fraction | None,
    ) -> Violated:
        start = beginning(self._rules, witness)
        return Violated(
            rule.module,
            rule.constraint.id,
            rule.constraint.told_as,
            None if margin is None else min(margin, Fraction(0)),
            shown_point(self._rules, plan, duty, witness, point, start),
            rule.constraint.message,
            rule.where,
        )


def _telling(finding: Finding) -> tuple[int, Fraction]:
    match finding:
        case Violated(margin=margin):
            return 0, margin or Fraction(0)
        case Unknown():
            return 1, Fraction(0)
        case Holds(margin=None):
            return 3, Fraction(0)
        case Holds(margin=margin):
            return 2, margin or Fraction(0)
