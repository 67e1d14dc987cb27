"""Bases, claims, scripts and bounds of certificates."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import z3
from hypothesis import HealthCheck, given, reject, settings

from gateway.core.decision import CheckRequest, DecisionRecord, Holds, Permitted, Refused, Repaired
from gateway.core.errors import StorageError
from gateway.recheck.bounds import misproved, violated
from gateway.recheck.source import read_source
from gateway.solver.certificates.basis import Basis, BasisStore
from gateway.solver.certificates.bounds import BY_SOLVER, bounds
from gateway.solver.certificates.claims import Scene, claims_of, scene_of
from gateway.solver.certificates.smtlib import script
from gateway.solver.certificates.smtlib_terms import NoTextError, Term, Writer, number_text, quoted
from gateway.solver.certificates.solvers import Answers, ask, expected_answers
from gateway.solver.errors import CertificateError
from gateway.solver.language import normal
from gateway.solver.language.evaluate import truth
from gateway.solver.language.parse import ExpressionError, parse
from gateway.solver.language.syntax import Expr
from gateway.solver.rules.ruleset import RuleSet
from tests.property.test_solver_judges import conditions, points
from tests.unit.certificate_demo import (
    BACKUP,
    FALLEN,
    PERMITTED,
    REFUSED,
    REPAIRED,
    UNDETERMINED,
    claimed,
    decided,
    with_fallback,
)
from tests.unit.solver_demo import LOWER_LEVEL, PUMP, module, rule_set


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return rule_set(module(), module(LOWER_LEVEL))


def texts(rules: RuleSet) -> dict[str, bytes]:
    return {m.digest: m.text.encode() for m in rules.modules}


def scenes(rules: RuleSet, record: DecisionRecord) -> list[Scene]:
    return [scene_of(claim, rules) for claim in claims_of(record)]


def test_a_rule_set_comes_back_from_its_basis_and_the_module_texts(rules: RuleSet) -> None:
    basis = Basis.read(json.loads(Basis.of(rules).encoded))

    again = basis.rules(texts(rules), rules.generation)

    assert (again.digest, again.proof_digest) == (rules.digest, rules.proof_digest)
    assert Basis.of(again).encoded == basis.encoded


def test_a_priority_given_by_a_person_comes_back_too() -> None:
    raised = rule_set(replace(module(), priority=3))

    again = Basis.of(raised).rules(texts(raised), 1)

    assert (again.digest, again.modules[0].priority) == (raised.digest, 3)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda d: d["modules"][0].update(revision=99), "`modules` differ"),
        (lambda d: d["assumptions"]["TK1.LT101"].update(error="0"), "`assumptions` differ"),
        (lambda d: d.update(disturbances={}), "`disturbances` differ"),
        (lambda d: d["modules"][0].update(digest="0" * 64), "is not there"),
        (lambda d: d["tags"].pop("TK1.LT101"), "TK1.LT101"),
        (lambda d: d.pop("budget"), "cannot be read"),
        (lambda d: d["budget"].update(rlimit=2e6), "cannot be read"),
        (lambda d: d["tags"]["TK1.LT101"].update(protected=0), "cannot be read"),
        (lambda d: d["tags"]["TK1.LT101"].update(raw_range=[]), "cannot be read"),
        (lambda d: d["tags"]["TK1.LT101"].update(scale="1e999999999"), "cannot be read"),
    ],
)
def test_a_basis_that_says_other_than_the_texts_is_refused(
    rules: RuleSet, change: Callable[[dict[str, Any]], object], problem: str
) -> None:
    document = json.loads(Basis.of(rules).encoded)
    change(document)

    with pytest.raises(CertificateError, match=problem):
        Basis.read(document).rules(texts(rules), 1)


def test_a_text_of_another_digest_is_refused(rules: RuleSet) -> None:
    wrong = {digest: text + b" " for digest, text in texts(rules).items()}

    with pytest.raises(CertificateError, match="not the one of digest"):
        Basis.of(rules).rules(wrong, 1)


def test_the_store_keeps_every_rule_set_for_good_and_finds_it_by_digest(
    tmp_path: Path, rules: RuleSet
) -> None:
    store, other = BasisStore(tmp_path), rule_set()
    kept, twice = store.keep(rules), store.keep(rules)
    store.keep(other)

    found = list(store.bases(rules.digest))

    assert [basis.encoded for basis in found] == [kept.encoded] == [twice.encoded]
    assert store.texts(found[0]) == texts(rules)
    assert [b.rule_set_digest for b in store.bases(other.digest)] == [other.digest]


def test_evidence_that_cannot_be_kept_is_an_error_that_names_the_folder(
    tmp_path: Path, rules: RuleSet
) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(StorageError, match="file/evidence"):
        BasisStore(tmp_path / "file" / "evidence").keep(rules)


def test_each_outcome_makes_the_claims_that_were_shown_and_no_more(rules: RuleSet) -> None:
    def made(request: CheckRequest) -> list[tuple[str, str]]:
        return [(c.says, c.of) for c in claims_of(decided(rules, request, "d"))]

    assert made(PERMITTED) == [("holds", "proposal")]
    assert made(REPAIRED) == [("violated", "proposal"), ("holds", "repaired proposal")]
    assert made(REFUSED) == [("violated", "proposal")]
    assert made(UNDETERMINED) == []


def test_s10_a_fallback_that_was_let_out_has_a_claim_of_its_own(rules: RuleSet) -> None:
    record = with_fallback(rules, decided(rules, FALLEN, "d"), BACKUP)

    claims = claims_of(record)

    assert [(c.says, c.of, c.as_backup) for c in claims] == [
        ("violated", "proposal", False),
        ("holds", "fallback `backup`", True),
    ]
    timed = {d.rule for d in scenes(rules, record)[1].duties}
    assert not any(rules.rules[i].constraint.id.endswith(".min_off") for i in timed if i < len(rules.rules))


@pytest.mark.parametrize("request_", [PERMITTED, REPAIRED, REFUSED])
def test_a_script_is_linear_names_everything_and_is_the_same_every_time(
    rules: RuleSet, request_: CheckRequest
) -> None:
    record = decided(rules, request_, "d")

    text, again = (script(["title"], scenes(rules, record)) for _ in range(2))

    assert text == again
    assert "(set-logic QF_LRA)" in text
    assert text.count("(check-sat)") == len(claims_of(record))
    assert all(":named |" in line for line in text.splitlines() if line.startswith("(assert"))
    assert expected_answers(text) == tuple(c.expected for c in claims_of(record))


@pytest.mark.parametrize("request_", [PERMITTED, REPAIRED, REFUSED])
def test_the_z3_program_repeats_every_claim(rules: RuleSet, request_: CheckRequest) -> None:
    text = script([], scenes(rules, decided(rules, request_, "d")))

    assert ask("z3", text).confirms(expected_answers(text))


def test_a_solver_that_is_silent_complains_or_says_unknown_confirms_nothing() -> None:
    assert not Answers(solver="z3", said=("unknown",)).confirms(("unsat",))
    assert not Answers(solver="z3", said=("sat", "unsat")).confirms(("sat",))
    assert not Answers(solver="z3").confirms(())
    complained = ask("z3", "(check-sat")
    assert "complains" in complained.problem
    assert not complained.confirms(("unsat",))


def test_a_solver_that_never_ends_is_ended() -> None:
    squares = " ".join(f"(declare-const x{i} Int)" for i in range(6))
    hard = f"{squares}(assert (= (+ (* x0 x0 x0) (* x1 x1 x1) (* x2 x2 x2)) 114))(check-sat)"

    assert "no answer within" in ask("z3", hard, within_s=0.3).problem


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(conditions(), points)
def test_a_condition_as_text_means_what_the_exact_judge_says(tree: Expr, point: dict[str, Fraction]) -> None:
    writer = Writer(lambda ref: Term(quoted(ref.key)))
    try:
        text = writer.truth(tree)
    except NoTextError:  # then its condensed form is what a script says
        try:
            text = writer.formula(normal.formula(tree))
        except ExpressionError:  # no module holds such a rule
            reject()
    facts = "".join(
        f"(declare-const {quoted(n)} Real)(assert (= {quoted(n)} {number_text(v)}))" for n, v in point.items()
    )
    solver = z3.SimpleSolver()
    solver.from_string(f"{facts}(assert {text})")

    assert (str(solver.check()) == "sat") is truth(tree, point)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("0", "0.0"),
        ("-3.6", "(- 3.6)"),
        ("0.000138889", "0.000138889"),
        ("1/3", "(/ 1.0 3.0)"),
        ("120", "120.0"),
    ],
)
def test_numbers_are_written_exactly(value: str, text: str) -> None:
    assert number_text(Fraction(value)) == text


def test_a_product_of_two_values_makes_the_script_nonlinear_and_a_constant_factor_does_not() -> None:
    def degree(text: str) -> int:
        writer = Writer(lambda ref: Term(quoted(ref.key)))
        writer.truth(parse(text))
        return writer.degree

    assert degree("a * b <= 3") == 2
    assert degree("(0.1 + 0.2) * (a - b) <= 3") == 1
    assert degree("a / 4 <= 3") == 1


def test_a_construct_without_a_text_says_so() -> None:
    with pytest.raises(NoTextError, match=r"^Sum$"):
        Writer(lambda ref: Term(ref.key)).truth(parse("1 + a"))


def test_every_duty_of_a_permitted_decision_has_a_bound_that_adds_up(rules: RuleSet) -> None:
    scene = scenes(rules, decided(rules, PERMITTED, "d"))[0]

    found = claimed(scene)

    assert len(found.lines) == len(scene.duties)
    assert all(line["proof"] != BY_SOLVER for line in found.lines)
    assert misproved([m.text for m in rules.modules], found) == []
    marked = ["\ufeff" + m.text for m in rules.modules]  # as an editor of another system saves them
    assert misproved(marked, found) == []


def _changed(
    lines: list[dict[str, Any]], change: Callable[[dict[str, Any]], bool]
) -> Iterator[list[dict[str, Any]]]:
    """The lines with one sum changed, for every sum."""
    places = sum(1 for _ in _sums([line["proof"] for line in lines]))
    for place in range(places):
        again = json.loads(json.dumps(lines))
        total = list(_sums([line["proof"] for line in again]))[place]
        if change(total):
            yield again


def _sums(proof: object) -> Iterator[dict[str, Any]]:
    if isinstance(proof, list):
        for part in proof:
            yield from _sums(part)
    elif isinstance(proof, dict):
        if "sum" in proof:
            yield proof["sum"]
        for part in proof.values():
            yield from _sums(part)


def test_a_bound_that_does_not_add_up_or_uses_ends_of_its_own_is_found(rules: RuleSet) -> None:
    scene = scenes(rules, decided(rules, PERMITTED, "d"))[0]
    said = [m.text for m in rules.modules]

    def better(total: dict[str, Any]) -> bool:
        total["worst"] = str(Fraction(total["worst"]) - 1)
        return True

    def nearer(total: dict[str, Any]) -> bool:
        for term in total["terms"]:
            term[2] = str(Fraction(term[2]) - Fraction(1, 1000))
        return bool(total["terms"])

    for change in (better, nearer):
        wrong = list(_changed(bounds(scene), change))
        assert len(wrong) > 40
        assert all(misproved(said, claimed(scene, lines), samples=0) for lines in wrong)


def test_s7_a_bound_of_another_form_than_the_modules_words_is_found(rules: RuleSet) -> None:
    """Consistent sums of a form with a smaller disturbance or another limit: only the module's words tell."""
    scene = scenes(rules, decided(rules, PERMITTED, "d"))[0]
    said = [m.text for m in rules.modules]

    lines = [line for line in bounds(scene) if "x:TK1.LT101" in json.dumps(line)]

    for line in lines:
        easier = json.loads(json.dumps(line))
        for total in _sums(easier["proof"]):  # every limit a tenth further away
            for key in ("constant", "worst"):
                total[key] = str(Fraction(total[key]) - Fraction(1, 10))
        problems = misproved(said, claimed(scene, [easier]), samples=24)
        assert any("says less than the module" in problem for problem in problems), line
    assert len(lines) > 20


def test_s7_a_requirement_without_a_bound_is_missed(rules: RuleSet) -> None:
    scene = scenes(rules, decided(rules, PERMITTED, "d"))[0]
    said = [m.text for m in rules.modules]
    lines = bounds(scene)

    for index, line in enumerate(lines):
        without = [*lines[:index], *lines[index + 1 :]]
        missed = misproved(said, claimed(scene, without), samples=0)
        assert any(problem.startswith(line["rule"]) for problem in missed), line


def test_a_witness_counts_only_inside_the_premises_and_only_where_it_fails_the_rule(rules: RuleSet) -> None:
    scene = scenes(rules, decided(rules, REFUSED, "d"))[0]
    said = [m.text for m in rules.modules]
    told = scene.claim.counterexample
    assert told is not None
    name, instant = f"{told.module}/{told.constraint}", scene.duties[0].instant
    known = claimed(scene, [])

    assert violated(said, known, name, instant, ["new"], scene.witness)
    lower = {**scene.witness, "x:TK1.LT101": known.premises["x:TK1.LT101"][0] - 1}
    assert not violated(said, known, name, instant, ["new"], lower)
    assert not violated(said, known, "buffer-tank/no-dry-fire", instant, ["new"], scene.witness)
    assert not violated(said, known, name, instant, ["new"], {**scene.witness, "made up": Fraction(0)})


def test_an_unsafe_proposal_said_to_be_permitted_is_contradicted_by_the_script(
    rules: RuleSet,
) -> None:
    refused = decided(rules, REFUSED, "d")
    assert refused.proposal is not None
    assert refused.examined is not None
    verdict = Permitted(refused.proposal.values)
    said = replace(refused.examined, result=replace(refused.examined.result, verdict=verdict))
    lie = replace(refused, outcome=verdict, examined=said)

    scene = scenes(rules, lie)[0]
    answers = ask("z3", script([], [scene]))

    assert answers.said == ("sat",)
    assert any(line["proof"] == BY_SOLVER for line in bounds(scene))


def test_several_values_in_force_are_alternatives_in_the_script(rules: RuleSet) -> None:
    two = {PUMP: (PERMITTED.history[PUMP][0], replace(PERMITTED.history[PUMP][1], ceased_s_ago=0.0))}
    request = replace(PERMITTED, history={**PERMITTED.history, **two})
    record = decided(rules, request, "d")

    text = script([], scenes(rules, record))

    assert f"(assert (! (or (= |old:{PUMP}| 40.0) (= |old:{PUMP}| 38.0)) :named |one of old:{PUMP}|))" in text
    assert ask("z3", text).confirms(expected_answers(text))


def test_s5_a_rule_that_is_only_watched_refuses_nothing_for_the_independent_checker_either() -> None:
    text = module().text.replace(
        '"kind": "standard", "require"', '"kind": "standard", "monitor": true, "require"'
    )

    binding = {r.id: r.binding for r in read_source(text).requirements}

    assert not binding["pump-ramp"]
    assert binding["no-overflow"]


def test_the_demo_decisions_are_what_their_names_say(rules: RuleSet) -> None:
    outcomes = [type(decided(rules, r, "d").outcome) for r in (PERMITTED, REPAIRED, REFUSED)]

    assert outcomes == [Permitted, Repaired, Refused]
    assert any(isinstance(f, Holds) for f in decided(rules, PERMITTED, "d").findings)
