"""What a certificate claims of which action, and each claim's scene: premises, instants, duties."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

from gateway.core.decision import (
    CheckRequest,
    Counterexample,
    DecisionRecord,
    Examination,
    Permitted,
    Refused,
    RegisterValue,
    Repaired,
)
from gateway.core.tag import TagId
from gateway.solver.checking.boxes import Boxes, choices
from gateway.solver.checking.condense import Duty, Plan, condense
from gateway.solver.checking.predict import Facts, UnusableError, observe
from gateway.solver.errors import CertificateError
from gateway.solver.language.affine import symbols
from gateway.solver.rules.interval import SCALE
from gateway.solver.rules.ruleset import Rule, RuleSet
from gateway.solver.workers.check import millis_up

Range = tuple[Fraction, Fraction]
_TIMED = ("kept_on(", "may_rise(")  # minimum times: the backup need not keep them (S1)
_MOST_STEPS = 1_000  # that anyone plans over; a forged time could hold up whoever looks for ever


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """`holds`: every critical and standard rule; `violated`: the counterexample fails its rule."""

    says: Literal["holds", "violated"]
    of: str  # people's words for the action
    examination: Examination
    action: Mapping[TagId, Fraction]
    as_backup: bool = False
    counterexample: Counterexample | None = None

    @property
    def expected(self) -> str:
        """What an SMT solver must say of the premises and the goal."""
        return "unsat" if self.says == "holds" else "sat"

    @property
    def generation(self) -> int:
        """The rule set it was judged under."""
        return self.examination.request.generation


def claims_of(record: DecisionRecord) -> tuple[Claim, ...]:
    """Everything a decision claims, in the order it came about; nothing where nobody knew."""
    found: list[Claim] = []
    if record.examined is not None:
        found += _of_proposal(record, record.examined)
    fallback = record.fallback
    if fallback is not None and isinstance(fallback.result.verdict, Permitted):
        found.append(
            Claim(
                says="holds",
                of=f"fallback `{record.written_by}`",
                examination=fallback,
                action=_action(fallback.result.verdict.setpoints),
                as_backup=fallback.request.proposal is None,
            )
        )
    return tuple(found)


def _of_proposal(record: DecisionRecord, examined: Examination) -> Iterable[Claim]:
    verdict, proposal = record.outcome, examined.request.proposal
    if proposal is not None and isinstance(verdict, Refused | Repaired):
        yield Claim(
            says="violated",
            of="proposal",
            examination=examined,
            action=proposal.engineering(),
            counterexample=verdict.counterexample,
        )
    if isinstance(verdict, Permitted | Repaired):
        yield Claim(
            says="holds",
            of="proposal" if isinstance(verdict, Permitted) else "repaired proposal",
            examination=examined,
            action=_action(verdict.setpoints),
        )


def _action(values: Iterable[RegisterValue]) -> dict[TagId, Fraction]:
    return {v.tag: v.value for v in values}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One claim set up: what may be assumed, and what must hold when and where."""

    claim: Claim
    rules: RuleSet
    plan: Plan
    facts: Facts
    duties: tuple[Duty, ...]  # of a `violated` claim only the rule's at its instant
    witness: Mapping[str, Fraction] = field(default_factory=dict)  # by symbol

    def rule(self, duty: Duty) -> Rule:
        """The rule of a duty."""
        return self.plan.rules[duty.rule]

    def premises(self, names: Iterable[str]) -> dict[str, Range]:
        """Intervals of symbols, rounded outward as in the check.

        Also of some that no duty of the plan asks for: what a rule's words name may cancel out in its forms.
        """
        wanted = sorted(names)
        plan = self.plan
        if not set(wanted) <= set(plan.symbols):
            plan = replace(plan, symbols=tuple(sorted({*plan.symbols, *wanted})))
        found = Boxes(self.rules, plan).box(self.facts, self.claim.action, wanted)
        return {name: (Fraction(low, SCALE), Fraction(high, SCALE)) for name, (low, high) in found.items()}

    def choices(self) -> dict[str, tuple[Fraction, ...]]:
        """Symbols that have one of a few exact values and not those in between."""
        within = Boxes(self.rules, self.plan).box(self.facts, self.claim.action)
        found = choices(self.rules, self.plan, self.facts, within)
        return {name: values for name, values in found.items() if len(values) > 1}


def scene_of(claim: Claim, rules: RuleSet) -> Scene:
    """The scene of a claim; raises `CertificateError` where its record cannot carry it."""
    request = claim.examination.request
    playable(request, rules)
    try:
        facts = observe(rules, request)
    except UnusableError as exc:
        raise CertificateError(f"the recorded inputs carry no claim: {exc}") from exc
    except (KeyError, ValueError, ArithmeticError) as exc:
        raise CertificateError(f"the recorded facts do not fit the rule set: {exc!r}") from exc
    missing = [v.tag for v in rules.actions if v.tag not in claim.action]
    if missing or len(claim.action) != len(rules.actions):
        raise CertificateError(f"the claim is not about the whole block of outputs: {missing or 'too many'}")
    plan = condense(rules, millis_up(request.effect_delay_s), millis_up(request.hold_s))
    if claim.says == "holds":
        duties = tuple(d for d in plan.duties if _binds(plan.rules[d.rule], as_backup=claim.as_backup))
        return Scene(claim=claim, rules=rules, plan=plan, facts=facts, duties=duties)
    return _violated(claim, rules, plan, facts)


def playable(request: CheckRequest, rules: RuleSet) -> None:
    """Raises `CertificateError` where a check's times are none that anyone could play through."""
    longest = _MOST_STEPS * float(rules.modules[0].step) if rules.horizon else math.inf
    for name, seconds in (("hold_s", request.hold_s), ("effect_delay_s", request.effect_delay_s)):
        if not (math.isfinite(seconds) and 0 <= seconds <= longest):
            raise CertificateError(f"`{name}` is {seconds:g} s, which is not within 0 to {_MOST_STEPS} steps")


def _binds(rule: Rule, *, as_backup: bool) -> bool:
    return rule.binding and not (as_backup and any(name.startswith(_TIMED) for name in symbols(rule.formula)))


def _violated(claim: Claim, rules: RuleSet, plan: Plan, facts: Facts) -> Scene:
    told = claim.counterexample
    assignment = told.assignment if told is not None else {}
    at = assignment.get("at_s")
    duties = tuple(
        d
        for d in plan.duties
        if told is not None
        and (plan.rules[d.rule].module, plan.rules[d.rule].constraint.id) == (told.module, told.constraint)
        and plan.instant(d.instant) == at
    )
    if not duties:
        raise CertificateError("the counterexample names no rule and instant of the check")
    witness = {name: value for name, value in assignment.items() if ":" in name and name[:6] != "start:"}
    witness |= {f"x:{name[6:]}": value for name, value in assignment.items() if name[:6] == "start:"}
    for variable in rules.measured:
        tag, instant = str(variable.tag), max(duties[0].drift, duties[0].instant)
        name = f"p{instant}:{tag}"
        if instant and name in plan.symbols and tag in assignment:  # of others nothing is asked
            witness[name] = assignment[tag]
    return Scene(claim=claim, rules=rules, plan=plan, facts=facts, duties=duties, witness=witness)
