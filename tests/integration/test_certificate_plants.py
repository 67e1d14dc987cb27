"""Decisions under the shipped modules of other industries, repeated by z3 and cvc5 from scripts alone."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.certificate.checks import Wanted, verify
from gateway.cli.certificate.export import export
from gateway.core.decision import CheckRequest, DecisionId, PointId, Proposal, RegisterValue, outcome_name
from gateway.core.ports import InForce
from gateway.core.quality import StatusCode
from gateway.core.tag import TagId, TagValue
from gateway.recheck.bounds import misproved
from gateway.solver.certificates.bounds import BY_SOLVER, bounds
from gateway.solver.certificates.claims import claims_of, scene_of
from gateway.solver.certificates.smtlib import script
from gateway.solver.certificates.smtlib_terms import NoTextError, Term, Writer, number_text, quoted
from gateway.solver.certificates.solvers import SolverName, ask, command_of, expected_answers
from gateway.solver.language.syntax import Connective
from gateway.solver.modules.cases import case_point
from gateway.solver.modules.module import Case, Constraint, Module
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from tests.unit.certificate_demo import claimed, decided, kept
from tests.unit.solver_demo import PATIENT
from tests.unit.solver_modules import NAMES, shipped

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

NOW = 1_000.0
SOLVER_S = 600.0  # for one script: no machine is too slow
SOLVERS = [
    "z3",
    pytest.param(
        "cvc5",
        marks=pytest.mark.skipif(
            not command_of("cvc5"), reason="cvc5 is not installed: pip install 'o3-gateway[verify]'"
        ),
    ),
]


def asked(module: Module, rules: RuleSet, case: Case) -> CheckRequest:
    """A module's own case as a question: its values measured, proposed, and in force before."""
    inputs = {
        v.tag: TagValue(
            value=float(case.given[v.name]),
            status=StatusCode.Good,
            source_ts_ns=None,
            server_ts_ns=0,
            confirmed_at=NOW,
        )
        for v in module.variables.values()
        if not v.action
    }
    values: list[RegisterValue] = []
    history: dict[TagId, tuple[InForce, ...]] = {}
    held: dict[TagId, float] = {}
    for v in module.variables.values():
        if v.action:
            raw = v.definition.counts(case.given[v.name])
            values.append(RegisterValue(v.tag, raw, v.definition.engineering(raw)))
            history[v.tag] = (InForce(Fraction(case.previous.get(v.name, case.given[v.name])), 0.0),)
            held[v.tag] = float(case.held_s.get(v.name, 1_000))
    return CheckRequest(
        decision=DecisionId("d"),
        point=PointId("p"),
        generation=rules.generation,
        inputs=inputs,
        taken_at=NOW,
        history=history,
        held_s=held,
        proposal=Proposal(values=tuple(values), by="case"),
        carried=None,
        hold_s=1.2 * float(module.step),
        effect_delay_s=0.3 * float(module.step),
        may_repair=False,
    )


def questions(module: Module, checks: Checks) -> Iterator[CheckRequest]:
    """Every case, once fresh and once with what a check one step before left behind."""
    for case in module.cases:
        request = asked(module, checks.rules, case)
        yield request
        before = replace(
            request,
            taken_at=NOW - float(module.step),
            inputs={t: replace(v, confirmed_at=NOW - float(module.step)) for t, v in request.inputs.items()},
        )
        _, state = checks.check(before)
        yield replace(request, carried=state)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", NAMES)
def test_every_case_of_a_shipped_module_is_decided_alike_by_an_smt_solver(
    name: str, solver: SolverName
) -> None:
    module = shipped(name)
    rules = RuleSet.of([module], 1)
    checks = Checks(rules, PATIENT)
    outcomes: Counter[str] = Counter()

    for request in questions(module, checks):
        record = decided(rules, request, "d", checks=checks)
        outcomes[outcome_name(record.outcome)] += 1
        scenes = [scene_of(claim, rules) for claim in claims_of(record)]
        if scenes:
            text = script([], scenes)
            assert ask(solver, text, within_s=SOLVER_S).said == expected_answers(text), (
                record.outcome,
                text[-3000:],
            )

    assert outcomes["refused"] + outcomes["permitted"] > 0, outcomes


def words(rule: Constraint) -> str:
    """A rule as SMT-LIB: from its words, else from the forms that are made of them."""
    writer = Writer(lambda node: Term(quoted(node.key)))
    tree = rule.require if rule.when is None else Connective(0, "implies", rule.when, rule.require)
    try:
        return writer.truth(tree)
    except NoTextError:
        return writer.formula(rule.formula)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", NAMES)
def test_an_smt_solver_finds_exactly_the_rules_that_each_point_violates(
    name: str, solver: SolverName
) -> None:
    module = shipped(name)
    rules = [rule for rule in module.rules if rule.kind != "informational"]
    points = [case_point(module, case) for case in module.cases]
    lines = ["(set-logic QF_NRA)", *(f"(declare-const {quoted(key)} Real)" for key in points[0])]
    lines += [f"(define-fun {quoted(rule.id + '?')} () Bool {words(rule)})" for rule in rules]
    for point in points:
        stated = [f"(assert (= {quoted(key)} {number_text(value)}))" for key, value in point.items()]
        lines += ["(push 1)", *stated]
        for rule in rules:
            lines += ["(push 1)", f"(assert (not {quoted(rule.id + '?')}))", "(check-sat)", "(pop 1)"]
        lines.append("(pop 1)")

    answers = ask(solver, "\n".join([*lines, "(exit)", ""]), within_s=SOLVER_S)

    assert not answers.problem
    said = iter(answers.said)
    found = [frozenset(rule.id for rule in rules if next(said) == "sat") for _ in points]
    assert found == [case.violated for case in module.cases]
    assert set(answers.said) == {"sat", "unsat"}


@pytest.mark.parametrize("name", NAMES)
def test_s7_where_the_independent_checker_cannot_read_a_module_a_solver_must_answer(
    name: str, tmp_path: Path
) -> None:
    module = shipped(name)
    rules = RuleSet.of([module], 1)
    checks = Checks(rules, PATIENT)
    made = (decided(rules, q, f"d-{i}", checks=checks) for i, q in enumerate(questions(module, checks)))
    records = [record for record in made if claims_of(record)]
    state = asyncio.run(kept(tmp_path, rules, records))

    for record in records[:: max(1, len(records) // 4)]:
        data = export(state.folder, record.id).data
        solved = verify(data, Wanted(solvers=("z3",), audit=state.audit))
        assert solved.good, solved
        alone = verify(data, Wanted(solvers=(), audit=state.audit))
        read = all(look.good for look in alone.looks if look.name.startswith("independent checker"))
        left_open = any(look.needs_solver for look in alone.looks)
        assert alone.good is not left_open
        assert read or left_open


# Labels, switches and sequences have bounds as any rule: one left out or easier than the words is found.
@pytest.mark.parametrize("name", ["chlorination", "junction-interlocking", "level-crossing"])
def test_s7_a_bound_that_is_left_out_or_easier_than_the_words_is_found(name: str) -> None:
    module = shipped(name)
    rules = RuleSet.of([module], 1)
    checks = Checks(rules, PATIENT)
    records = (decided(rules, request, "d", checks=checks) for request in questions(module, checks))
    scene = next(s for r in records for c in claims_of(r) if (s := scene_of(c, rules)).claim.says == "holds")
    lines = bounds(scene)
    found = claimed(scene, lines)

    assert misproved([module.text], found) == []
    for index, line in enumerate(lines):
        without = replace(found, lines=[*lines[:index], *lines[index + 1 :]])
        missed = misproved([module.text], without, samples=0)
        assert any(told.startswith(line["rule"]) for told in missed), line
    # a switch is either on or off: no point is outside its range
    switches = {f"{module.id}/{v.name}.range" for v in module.variables.values() if v.sort == "bool"}
    easier = [line for line in map(_easier, lines) if line is not None and line["rule"] not in switches]
    told = [misproved([module.text], replace(found, lines=[line]), samples=300) for line in easier]
    assert len(easier) >= 5
    assert all(any("says less than the module" in problem for problem in problems) for problems in told)


def _easier(line: dict[str, Any]) -> dict[str, Any] | None:
    """A line whose limit is moved so far that anything would do; None where a solver answers for it."""
    if line["proof"] == BY_SOLVER:
        return None
    changed: dict[str, Any] = json.loads(json.dumps(line))
    sums = [changed["proof"]]
    while sums:
        part = sums.pop()
        if "sum" in part:
            for key in ("constant", "worst"):
                part["sum"][key] = str(Fraction(part["sum"][key]) - 100_000)
        sums += part.get("all", [])
        sums += [part["of"]] if "of" in part else []
    return changed
