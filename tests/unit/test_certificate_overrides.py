"""Certificates of decisions under an override: both judges, the script and the words agree on it (S25)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.certificate.checks import Wanted, verify
from gateway.cli.certificate.export import export
from gateway.cli.certificate.file import words
from gateway.core.decision import DecisionRecord, Permitted, Refused, Repaired
from gateway.core.errors import GatewayError
from gateway.core.override import Override, phrase, plain
from gateway.solver.certificates.basis import Basis
from gateway.solver.errors import CertificateError
from gateway.solver.rules.ruleset import RuleSet
from gateway.storage.codec import decode_record, encode_record
from tests.unit.certificate_demo import BACKUP, FALLEN, State, again, decided, kept, with_fallback, wrong
from tests.unit.solver_demo import Situation, proposal, rule_set

RAMP = Override(
    module="buffer-tank",
    constraint="pump-ramp",
    reason="valve test",
    requested_by="anna",
    confirmed_by="bert",
    since_ns=1_764_424_800_000_000_000,
    until_ns=1_764_425_100_000_000_000,
)
UNDER = "with `buffer-tank/pump-ramp` overridden until 2025-11-29 14:05:00 UTC by anna, confirmed by bert"
JUMP = Situation(pump="40", may_repair=False).request(proposal("70"))
TOO_HIGH = Situation(level=3.56, inflow=30.0, pump="0", may_repair=False).request(proposal("0"))
HOT = Situation(level=2.5).request(proposal("80", heater=1))


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return RuleSet.of(rule_set().modules, 1, (RAMP,))


@pytest.fixture(scope="module")
def jump(rules: RuleSet) -> DecisionRecord:
    return decided(rules, JUMP, "jump")


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory, rules: RuleSet, jump: DecisionRecord) -> State:
    high = decided(rules, TOO_HIGH, "high")
    records = [
        jump,
        high,
        with_fallback(rules, decided(rules, FALLEN, "fallback"), BACKUP),
        decided(rules, HOT, "hot"),
    ]
    return asyncio.run(kept(tmp_path_factory.mktemp("state"), rules, records))


def test_a_decision_that_only_the_override_permits_is_verified_by_both_judges_and_z3_s25(
    state: State, jump: DecisionRecord
) -> None:
    assert isinstance(jump.outcome, Permitted)
    assert isinstance(decided(rule_set(), JUMP, "without").outcome, Refused)

    done = verify(export(state.folder, "jump").data, Wanted(solvers=("z3",), audit=state.audit))

    assert done.good, [look for look in done.looks if look.good is False]
    assert UNDER in done.words
    assert any(UNDER in look.said for look in done.looks if look.name == "judged again")


def test_a_refusal_by_a_critical_rule_is_verified_under_an_override_s25(state: State) -> None:
    done = verify(export(state.folder, "high").data, Wanted(solvers=("z3",)))

    assert done.good, [look for look in done.looks if look.good is False]
    assert f"not permitted by rule set 1, {UNDER}: " in done.words


def test_a_fallback_under_an_override_is_verified_and_says_so_s25(state: State) -> None:
    done = verify(export(state.folder, "fallback").data, Wanted(solvers=("z3",)))

    assert done.good, [look for look in done.looks if look.good is False]
    assert done.words.endswith(f"fallback `backup` permitted by rule set 1 under its assumptions, {UNDER}")


def test_a_repair_is_none_for_the_overridden_rule_s25(state: State) -> None:
    assert isinstance(decided(rule_set(), HOT, "without").outcome, Repaired)

    done = verify(export(state.folder, "hot").data, Wanted(solvers=("z3",)))

    assert done.good, [look for look in done.looks if look.good is False]
    assert done.words.endswith(f"permitted by rule set 1 under its assumptions, {UNDER}")


def forget_in_the_rule_set(document: dict[str, Any]) -> None:
    del document["certificate"]["rule_sets"]["1"]["overrides"]


def forget_in_the_decision(document: dict[str, Any]) -> None:
    del document["certificate"]["decision"]["overrides"]


def by_one_person(document: dict[str, Any]) -> None:
    for said in (document["certificate"]["decision"], document["certificate"]["rule_sets"]["1"]):
        said["overrides"][0]["confirmed_by"] = "anna"


def of_a_critical_rule(document: dict[str, Any]) -> None:
    for said in (document["certificate"]["decision"], document["certificate"]["rule_sets"]["1"]):
        said["overrides"][0]["constraint"] = "no-overflow"


def of_nothing(document: dict[str, Any]) -> None:
    document["certificate"]["rule_sets"]["1"]["overrides"] = [7]


@pytest.mark.parametrize(
    "change",
    [forget_in_the_rule_set, forget_in_the_decision, by_one_person, of_a_critical_rule, of_nothing],
)
def test_a_certificate_that_tells_otherwise_of_its_override_does_not_hold_s25(
    state: State, change: Callable[[dict[str, Any]], None]
) -> None:
    done = verify(again(state, "jump", change), Wanted(solvers=()))

    assert not done.good
    assert "made again" in wrong(done)


def test_a_rule_set_is_built_again_only_with_overrides_that_may_be_s25(rules: RuleSet) -> None:
    basis = Basis.of(rules)
    texts = {m.digest: m.text.encode() for m in rules.modules}
    assert basis.rules(texts, 1).overrides == (RAMP,)
    forged = {**basis.document, "overrides": [{**plain([RAMP])[0], "constraint": "no-overflow"}]}
    with pytest.raises(CertificateError, match="a critical constraint is never overridden"):
        Basis.read(forged).rules(texts, 1)


def test_a_record_keeps_what_was_overridden_and_says_nothing_where_nothing_was(
    jump: DecisionRecord,
) -> None:
    again_ = decode_record(encode_record(jump))
    assert again_ == jump
    assert again_.overrides == (RAMP,)
    assert again_.examined is not None
    assert again_.examined.result.overrides == (RAMP,)
    assert words(again_).endswith(f"permitted by rule set 1 under its assumptions, {UNDER}")
    assert phrase(again_.overrides) == UNDER
    bare = decided(rule_set(), TOO_HIGH, "bare")
    assert b"overrid" not in encode_record(bare)
    assert "overridden" not in words(bare)


def test_the_evidence_of_a_rule_set_without_overrides_is_spelled_as_before() -> None:
    assert b"overrid" not in Basis.of(rule_set()).encoded


def test_no_certificate_is_made_where_the_rule_set_under_the_override_was_not_kept(
    tmp_path: Path, jump: DecisionRecord
) -> None:
    state = asyncio.run(kept(tmp_path, rule_set(), [jump]))
    with pytest.raises(GatewayError):
        export(state.folder, "jump")
