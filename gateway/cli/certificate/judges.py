"""Judges of a certificate's claims: the gateway's own check, the independent checker, SMT solvers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from gateway.cli.certificate.file import Derived
from gateway.cli.certificate.looks import Verification
from gateway.cli.certificate.premises import over_the_claims_state, premises_of, premises_problem
from gateway.core.decision import (
    CheckRequest,
    CheckResult,
    Examination,
    Holds,
    Permitted,
    Proposal,
    Refused,
    Repaired,
    Undetermined,
    Unknown,
    Violated,
    outcome_name,
)
from gateway.core.override import phrase
from gateway.recheck.bounds import Bounds, misproved, violated
from gateway.recheck.check import Question, recheck
from gateway.recheck.language import LanguageError
from gateway.solver.certificates.bounds import BY_SOLVER, bounds
from gateway.solver.certificates.claims import Scene
from gateway.solver.certificates.smtlib import acting, script_symbols
from gateway.solver.certificates.solvers import SolverName, ask, expected_answers
from gateway.solver.checking import backup
from gateway.solver.checking.predict import observe
from gateway.solver.checking.report import described
from gateway.solver.checking.simulate import beginning, violates
from gateway.solver.checking.terms import Budget
from gateway.solver.language.affine import symbols
from gateway.solver.repairing.words import told as repair_in_words
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks

_SAMPLES = 64
_PATIENT = Budget(rlimit=50_000_000, timeout_ms=20_000)


def judged_again(done: Verification, derived: Derived) -> None:
    """The gateway's own check once more, with patience: the same verdict, values and margins."""
    for examination, rules in derived.examined:
        told = examination.result
        if isinstance(told.verdict, Undetermined):
            continue  # nothing was shown, so there is nothing to show again
        # A check cut short looks for no repair; one that refused is not asked to look longer now.
        refused = isinstance(told.verdict, Refused)
        again, _ = Checks(rules, _PATIENT).check(examination.request, late=partial(bool, refused))
        problem = _differs(again, examination, rules)
        under = f", {phrase(rules.overrides)}" if rules.overrides else ""
        said = f"{outcome_name(again.verdict)}, {len(told.findings)} margins the same{under}"
        done.add("judged again", problem, said)


def _differs(again: CheckResult, examination: Examination, rules: RuleSet) -> str:
    told, request = examination.result, examination.request
    verdict, before = outcome_name(again.verdict), outcome_name(told.verdict)
    if verdict != before:
        return f"the check says {verdict}, the certificate {before}"
    with_units = any(isinstance(f, Holds | Violated) and f.unit for f in told.findings)
    wrong = sorted(_margins(again, with_units=with_units) ^ _margins(told, with_units=with_units))
    if wrong:
        return f"the margin of {wrong[0][0]} comes out otherwise"
    if again.recovery != told.recovery or (told.recovery and again.proposal != told.proposal):
        return "the check lets another recovery out than the certificate, or none"
    if isinstance(told.verdict, Permitted):
        return _other_values(again, told.verdict, request, rules)
    if isinstance(told.verdict, Repaired) and told.verdict.said != _repair_said(again, told, request, rules):
        return "the repair comes out in other words"
    return ""


def _margins(result: CheckResult, *, with_units: bool) -> frozenset[tuple[str, str, str]]:
    """Without units for a record from before margins had one."""
    return frozenset(
        (
            f"{f.module}/{f.constraint}",
            type(f).__name__,
            "" if isinstance(f, Unknown) else f"{f.margin} {f.unit if with_units else ''}",
        )
        for f in result.findings
    )


def _other_values(again: CheckResult, told: Permitted, request: CheckRequest, rules: RuleSet) -> str:
    """Permitted are the values that the check permits now, or those as asked where it had less time.

    Where the backup was asked for, only what the backup does: nothing else is free of minimum times (S1).
    """
    if again.verdict == told:
        return ""
    asked = (
        [request.proposal] if request.proposal is not None else backup.actions(rules, observe(rules, request))
    )
    if not told.kept_back and any(one.values == told.setpoints for one in asked):
        return ""
    return "the check permits other values than the certificate"


def _repair_said(again: CheckResult, told: CheckResult, request: CheckRequest, rules: RuleSet) -> str:
    """What a repair to the values told would be said to be; with less time it may have come to others."""
    if not isinstance(again.verdict, Repaired) or not isinstance(told.verdict, Repaired):
        return ""
    if again.verdict.setpoints == told.verdict.setpoints or request.proposal is None:
        return again.verdict.said
    if request.repair == "segment":
        return ""
    broken = [f for f in told.findings if isinstance(f, Violated) and f.kind in {"critical", "standard"}]
    broken.sort(key=lambda f: (f.constraint.startswith("safe_set["), f.kind != "critical", f.margin or 0))
    permitted = Proposal(values=told.verdict.setpoints, by=request.proposal.by)
    return repair_in_words(rules, request.inputs, request.proposal, permitted, broken)


def independent(done: Verification, scene: Scene, texts: Sequence[str]) -> None:
    """The checker that shares no code with the solver (S7)."""
    name = f"independent checker, {scene.claim.of}"
    try:
        found, asked = premises_of(scene, texts)
        done.add(
            f"independent premises, {scene.claim.of}",
            premises_problem(found),
            "the state stood on holds all that readings, ages and the state carried in allow",
        )
        if scene.claim.says == "violated":
            _look_at_witness(done, name, scene, texts)
        else:
            _play_through(done, name, scene, texts, asked)
    except LanguageError as exc:
        said = f"it cannot read a module, so a solver must answer: {exc}"
        done.pass_over(name, said, needs_solver=True)
    except (KeyError, TypeError, ValueError, ArithmeticError) as exc:
        done.add(name, f"it cannot judge: {exc!r}", "")


def _play_through(done: Verification, name: str, scene: Scene, texts: Sequence[str], asked: Question) -> None:
    wider = over_the_claims_state(asked, scene)
    report = recheck(texts, wider, samples=_SAMPLES, overridden=overridden(scene))
    if report.undetermined:  # it has judged nothing, which is no consent
        why = "; ".join(report.undetermined)
        done.pass_over(name, f"it is told too little, so a solver must answer: {why}", needs_solver=True)
        return
    breaches = sorted(report.violated)
    problem = f"it found {breaches[0]} violated inside the assumptions" if breaches else ""
    done.add(name, problem, f"no violation in {report.runs} courses of events")
    claimed = replace(claimed_bounds(scene), asked=asked)
    wrong = misproved(texts, claimed)
    summed = sum(line["proof"] != BY_SOLVER for line in claimed.lines)
    said = f"{summed} of {len(claimed.lines)} duties shown by sums, added up again exactly"
    left = summed < len(claimed.lines)
    said += "; a solver must answer for the others" if left else ""
    done.add(f"interval bounds, {scene.claim.of}", wrong[0] if wrong else "", said, needs_solver=left)


def _look_at_witness(done: Verification, name: str, scene: Scene, texts: Sequence[str]) -> None:
    told = scene.claim.counterexample
    rule = f"{told.module}/{told.constraint}" if told is not None else ""
    values = [acting(duty) for duty in scene.duties]
    fails = violated(texts, claimed_bounds(scene), rule, scene.duties[0].instant, values, scene.witness)
    problem = "" if fails else f"the witness does not violate {rule} inside the assumptions"
    done.add(name, problem, f"the witness violates {rule}")


def in_words(done: Verification, scene: Scene) -> None:
    """The sentence of a counterexample is the one that its witness gives."""
    told = scene.claim.counterexample
    if told is None:
        return
    start = beginning(scene.rules, scene.witness)
    for duty in scene.duties:
        point = violates(scene.rules, scene.plan, duty, scene.witness)
        if point is None:
            continue
        if told.text == described(scene.rules, scene.rule(duty), point, start, scene.plan, duty):
            done.add(f"in words, {scene.claim.of}", "", "the sentence is what the witness shows")
            return
    done.add(f"in words, {scene.claim.of}", "the sentence tells otherwise than the witness shows", "")


def overridden(scene: Scene) -> tuple[str, ...]:
    """Names of what was overridden when the claim was made."""
    return tuple(override.name for override in scene.rules.overrides)


def claimed_bounds(scene: Scene) -> Bounds:
    """What the independent checker is asked of a claim."""
    named = {n for duty in scene.duties for n in symbols(duty.formula)}
    return Bounds(
        premises=scene.premises(script_symbols(scene) | named),
        lines=bounds(scene) if scene.claim.says == "holds" else [],
        hold_s=scene.plan.hold,
        effect_delay_s=scene.plan.delay,
        as_backup=scene.claim.as_backup,
        overridden=overridden(scene),
    )


def solver_asked(
    done: Verification, solver: SolverName, derived: Derived, *, within_s: float, by_name: bool
) -> None:
    """What a solver says to the script; a missing one is a failure only where it was asked `by_name`."""
    expected = expected_answers(derived.script)
    if not expected:
        done.pass_over(f"solver {solver}", "nothing is claimed, so nothing is asked")
        return
    answers = ask(solver, derived.script, within_s=within_s)
    if answers.missing and not by_name:
        done.pass_over(f"solver {solver}", answers.problem)
        return
    problem = answers.problem
    if not problem and not answers.confirms(expected):
        said = ", ".join(answers.said) or "nothing"
        problem = f"it says {said} where the certificate needs {', '.join(expected)}"
    done.solver(solver, problem, f"says {', '.join(answers.said)}, as the certificate needs")
