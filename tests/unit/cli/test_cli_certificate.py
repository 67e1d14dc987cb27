"""Export and verification of certificate files, without a gateway; and what may be done to them."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli.certificate import checks as certificate_checks
from gateway.cli.certificate.checks import Wanted, verify
from gateway.cli.certificate.export import export
from gateway.cli.certificate.file import certificate_of, derive, digest_of, file_document, record_of
from gateway.cli.certificate.signature import public_key, signed
from gateway.cli.main import app
from gateway.core.decision import DecisionRecord, Holds, Permitted, Refused
from gateway.solver.certificates.basis import Basis, BasisStore, canonical
from gateway.solver.errors import CertificateError
from gateway.solver.rules.ruleset import RuleSet
from gateway.storage.codec import certificate_document, parsed
from tests.unit.certificate_demo import (
    BACKUP,
    FALLEN,
    PERMITTED,
    REFUSED,
    REPAIRED,
    UNDETERMINED,
    Keys,
    State,
    again,
    decided,
    kept,
    new_keys,
    sealed,
    with_fallback,
    wrong,
)
from tests.unit.solver_demo import rule_set

NOBODY = Wanted(solvers=())  # the solvers have their own tests
NAMES = ("permitted", "repaired", "refused", "undetermined", "fallback")


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return rule_set()


@pytest.fixture(scope="module")
def records(rules: RuleSet) -> dict[str, DecisionRecord]:
    requests = dict(zip(NAMES, (PERMITTED, REPAIRED, REFUSED, UNDETERMINED), strict=False))
    made = {name: decided(rules, request, name) for name, request in requests.items()}
    return {**made, "fallback": with_fallback(rules, decided(rules, FALLEN, "fallback"), BACKUP)}


@pytest.fixture(scope="module")
def state(
    tmp_path_factory: pytest.TempPathFactory, rules: RuleSet, records: dict[str, DecisionRecord]
) -> State:
    return asyncio.run(kept(tmp_path_factory.mktemp("state"), rules, list(records.values())))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return new_keys(tmp_path_factory.mktemp("keys"))


@pytest.mark.parametrize("decision", NAMES)
def test_a_certificate_of_every_outcome_stands_up_to_every_look(state: State, decision: str) -> None:
    done = verify(export(state.folder, decision).data, replace(NOBODY, audit=state.audit))

    assert wrong(done) == []
    assert done.good
    assert done.decision == decision
    assert export(state.folder, decision).data == export(state.folder, decision).data


def test_s29_a_certificate_says_permitted_under_its_assumptions_margin_first_and_never_safe(
    state: State,
) -> None:
    said = {name: export(state.folder, name).words for name in NAMES}

    assert said["permitted"].startswith("margin ")
    assert said["permitted"].endswith("permitted by rule set 1 under its assumptions")
    assert said["repaired"].startswith("not permitted as asked: ")
    assert said["repaired"].endswith("repaired values permitted by rule set 1 under its assumptions")
    assert said["refused"].startswith("not permitted by rule set 1: ")
    assert said["undetermined"].startswith("undetermined under rule set 1, so nothing was permitted: ")
    assert said["fallback"].endswith("fallback `backup` permitted by rule set 1 under its assumptions")
    assert not any("safe" in words.replace("safe_set", "") or "proved" in words for words in said.values())


def test_everything_a_check_stood_on_is_in_the_certificate(
    state: State, records: dict[str, DecisionRecord]
) -> None:
    assert export(state.folder, "permitted").digest == records["permitted"].certificate_digest
    certificate = json.loads(export(state.folder, "permitted").data)["certificate"]
    decision, rules = certificate["decision"], certificate["rule_sets"]["1"]

    assert decision["inputs"]["TK1.LT101"]["status"] == 0
    assert {"confirmed_at", "value", "source_ts_ns"} <= decision["inputs"]["TK1.LT101"].keys()
    assert {"history", "held_s", "carried", "hold_s", "effect_delay_s", "taken_at"} <= decision[
        "examined"
    ].keys()
    assert decision["examined"]["history"]["TK1.P101.SP"][0] == ["40", "0.0"]
    assert decision["written"][0].keys() == {"raw", "tag", "value"}
    assert decision["model_digest"] == "sha256:model"
    assert rules["modules"][0].keys() == {"digest", "id", "priority", "revision", "source"}
    assert rules["assumptions"]["TK1.FT101"]["max_rate"] == "2"
    assert rules["assumptions"]["TK1.LT101"]["error"] == "0.01"
    assert rules["disturbances"]["leak"] == ["-0.00051", "0.00051"]
    assert rules["budget"] == {"rlimit": 2_000_000, "timeout_ms": 100}


def test_a_decision_that_is_not_there_and_a_state_that_is_not_there_are_named(
    state: State, tmp_path: Path
) -> None:
    with pytest.raises(CertificateError, match="holds no decision `d-99`"):
        export(state.folder, "d-99")
    outcome = CliRunner().invoke(app, ["certificate", "export", "d-1", "--state", str(tmp_path)])
    assert outcome.exit_code == 1
    assert "is not there" in outcome.output


def test_evidence_of_other_rules_gives_no_certificate(
    tmp_path: Path, records: dict[str, DecisionRecord]
) -> None:
    with pytest.raises(CertificateError, match="do not give its digest"):
        certificate_of(records["permitted"], BasisStore(tmp_path))


# --- what may be done to a file ---


def test_a_forged_verdict_is_found_by_both_judges(state: State, records: dict[str, DecisionRecord]) -> None:
    """The most careful forger: everything that follows from the lie is made again from it."""
    refused = records["refused"]
    assert refused.proposal is not None
    assert refused.examined is not None
    verdict = Permitted(refused.proposal.values)
    findings = tuple(Holds(f.module, f.constraint) for f in refused.findings)
    examined = replace(
        refused.examined, result=replace(refused.examined.result, verdict=verdict, findings=findings)
    )
    basis = next(BasisStore(state.folder / "evidence").bases(refused.rule_set_digest))
    lie = replace(
        refused, outcome=verdict, findings=findings, examined=examined, written=refused.proposal.values
    )
    data = forged(state, sealed(replace(lie, written_by="verdict"), basis), basis)

    done = verify(data, Wanted(solvers=("z3",), solver_named=True))

    found = wrong(done)
    assert {"judged again", "independent checker, proposal", "solver z3"} <= set(found)
    assert "digest" not in found
    assert "made again" not in found
    assert not done.good
    assert "does NOT hold" in done.sentences()[-2]


def forged(state: State, record: DecisionRecord, basis: Basis) -> bytes:
    certificate = parsed(certificate_document(record, {1: basis.encoded}))
    texts = {d: t.decode() for d, t in BasisStore(state.folder / "evidence").texts(basis).items()}
    derived = derive(certificate, texts)
    return canonical(file_document(certificate, texts, derived, {"sequence": 1, "row": "00"}))


def test_a_forged_witness_of_a_refusal_is_found(state: State, records: dict[str, DecisionRecord]) -> None:
    refused = records["refused"]
    assert isinstance(refused.outcome, Refused)
    told = refused.outcome.counterexample
    moved = {**told.assignment, "start:TK1.LT101": told.assignment["start:TK1.LT101"] - 1}
    outcome = replace(refused.outcome, counterexample=replace(told, assignment=moved))
    assert refused.examined is not None
    examined = replace(refused.examined, result=replace(refused.examined.result, verdict=outcome))
    basis = next(BasisStore(state.folder / "evidence").bases(refused.rule_set_digest))
    data = forged(state, sealed(replace(refused, outcome=outcome, examined=examined), basis), basis)

    done = verify(data, Wanted(solvers=("z3",), solver_named=True))

    assert {"independent checker, proposal", "solver z3"} <= set(wrong(done))


@pytest.mark.parametrize(
    ("change", "look"),
    [
        (lambda d: d.update(words=d["words"].replace("under its assumptions", "and proved")), "made again"),
        (lambda d: d.update(script=d["script"].replace("(check-sat)", "", 1)), "made again"),
        (lambda d: d["claims"][0].update(expected="sat"), "made again"),
        (lambda d: d["claims"][0]["bounds"].pop(), "made again"),
        (lambda d: d["claims"][0]["premises"].update({"x:TK1.LT101": ["2", "2"]}), "made again"),
        (lambda d: d.update(digest="sha256:" + "0" * 64), "digest"),
        (lambda d: d["certificate"]["decision"].update(mode="shadow"), "digest"),
        (lambda d: d["certificate"].update(format="o3-certificate/0"), "decision"),
        (lambda d: d["modules"].update({"0" * 64: "{}"}), "modules"),
        (lambda d: d["modules"].clear(), "modules"),
        (lambda d: d["anchor"].update(sequence=2), "anchor"),
        (lambda d: d.update(signature={"algorithm": "ed25519", "key": "00", "value": "00"}), "signature"),
        (lambda d: d.update(signature=7), "signature"),
        (lambda d: d.update(more=1), "schema"),
        (lambda d: d.pop("words"), "schema"),
        (lambda d: d.update(claims={}), "schema"),
    ],
)
def test_every_part_of_a_file_is_held_against_the_rest(
    state: State, change: Callable[[dict[str, Any]], object], look: str
) -> None:
    done = verify(again(state, "permitted", change), replace(NOBODY, audit=state.audit))

    assert look in wrong(done)


def test_a_finding_whose_margin_was_raised_is_found(state: State, records: dict[str, DecisionRecord]) -> None:
    """An unsigned, unanchored file all consistent in itself: judging once more tells."""
    permitted = records["permitted"]
    findings = tuple(
        replace(f, margin=f.margin + 1) if isinstance(f, Holds) and f.margin is not None else f
        for f in permitted.findings
    )
    assert permitted.examined is not None
    examined = replace(permitted.examined, result=replace(permitted.examined.result, findings=findings))
    basis = next(BasisStore(state.folder / "evidence").bases(permitted.rule_set_digest))
    data = forged(state, sealed(replace(permitted, findings=findings, examined=examined), basis), basis)

    assert wrong(verify(data, NOBODY)) == ["judged again"]


def test_another_spelling_of_the_same_is_not_the_certificate(state: State) -> None:
    document = json.loads(export(state.folder, "permitted").data)

    assert wrong(verify(json.dumps(document, indent=1).encode(), NOBODY)) == ["schema"]


def places(data: bytes, count: int, seed: int) -> list[int]:
    return random.Random(seed).sample(range(len(data)), min(count, len(data)))  # noqa: S311  # repeatable


def flipped(data: bytes, place: int, seed: int) -> bytes:
    bit = 1 << random.Random(seed * 7919 + place).randrange(8)  # noqa: S311  # repeatable
    return data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]


@pytest.mark.parametrize("decision", NAMES)
def test_any_changed_byte_of_a_signed_certificate_is_found(state: State, keys: Keys, decision: str) -> None:
    data = export(state.folder, decision, keys.private).data
    known = public_key(keys.public)
    assert certificate_checks.untouched(data, known)

    for place in places(data, 500, seed=1):
        assert not certificate_checks.untouched(flipped(data, place, 1), known), place


def shortened(part: Any) -> Any:  # noqa: ANN401  # plain data of any kind
    """Every key and every kind of value of a document, of long texts and lists only both ends."""
    if isinstance(part, dict):
        return {key: shortened(value) for key, value in part.items()}
    if isinstance(part, list):
        return [shortened(value) for value in (part if len(part) <= 2 else (part[0], part[-1]))]
    return part if not isinstance(part, str) or len(part) <= 24 else part[:12] + part[-12:]


@pytest.mark.nightly
@pytest.mark.parametrize("decision", NAMES)
def test_each_single_byte_of_a_signed_certificate_counts(state: State, keys: Keys, decision: str) -> None:
    """At every place of a file whose long texts and lists are short: nothing here depends on lengths."""
    whole = json.loads(export(state.folder, decision).data)
    data = canonical(signed(shortened(whole), keys.private))
    known = public_key(keys.public)
    assert json.loads(data).keys() == whole.keys()
    assert certificate_checks.untouched(data, known)

    for place in range(len(data)):
        assert not certificate_checks.untouched(flipped(data, place, 2), known), place


def test_the_whole_verification_finds_a_changed_byte_of_a_signed_certificate(
    state: State, keys: Keys
) -> None:
    data = export(state.folder, "refused", keys.private).data
    wanted = replace(NOBODY, key=public_key(keys.public))
    assert verify(data, wanted).good

    for place in places(data, 25, seed=3):
        assert not verify(flipped(data, place, 3), wanted).good, place


@pytest.mark.parametrize("decision", ["refused", "undetermined"])
def test_any_changed_byte_of_an_anchored_certificate_is_found(state: State, decision: str) -> None:
    data = export(state.folder, decision).data
    wanted = replace(NOBODY, audit=state.audit)
    assert verify(data, wanted).good

    for place in places(data, 40, seed=4):
        assert not verify(flipped(data, place, 4), wanted).good, place


def test_a_signature_of_somebody_else_is_not_yours(state: State, keys: Keys, tmp_path: Path) -> None:
    stranger = new_keys(tmp_path)
    data = export(state.folder, "permitted", stranger.private).data

    assert wrong(verify(data, NOBODY)) == []
    assert wrong(verify(data, replace(NOBODY, key=public_key(keys.public)))) == ["signature"]


def test_an_unsigned_file_fails_where_a_key_is_demanded(state: State, keys: Keys) -> None:
    data = export(state.folder, "permitted").data

    assert wrong(verify(data, replace(NOBODY, key=public_key(keys.public)))) == ["signature"]


def test_a_key_that_cannot_be_used_is_named(keys: Keys, tmp_path: Path, state: State) -> None:
    (tmp_path / "no.pem").write_text("not a key")

    for path in (tmp_path / "no.pem", tmp_path / "missing.pem", keys.public):
        with pytest.raises(CertificateError, match=path.name):
            export(state.folder, "permitted", path)
    with pytest.raises(CertificateError, match=r"no\.pem"):
        public_key(tmp_path / "no.pem")


def test_the_record_in_a_certificate_is_the_record_in_the_log(
    state: State, records: dict[str, DecisionRecord]
) -> None:
    document = json.loads(export(state.folder, "fallback").data)

    record, bases = record_of(document["certificate"])

    assert replace(record, timings_ms=records["fallback"].timings_ms) == replace(
        records["fallback"], certificate_digest=""
    )
    assert document["digest"] == digest_of(canonical(document["certificate"]))
    assert list(bases) == [1]
