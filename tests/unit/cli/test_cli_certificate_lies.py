"""Certificates that lie, each consistent with itself: whatever follows from the lie is made again from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from gateway.cli.certificate.checks import Wanted, verify
from gateway.cli.certificate.file import derive, digest_of, file_document
from gateway.core.decision import (
    Counterexample,
    DecisionRecord,
    Examination,
    Finding,
    Holds,
    Permitted,
    Refused,
    RegisterValue,
    Repaired,
    Verdict,
)
from gateway.solver.certificates.basis import Basis, canonical
from gateway.solver.workers.check import Checks
from gateway.storage.codec import certificate_document, parsed
from tests.unit.certificate_demo import (
    BACKUP,
    FALLEN,
    PERMITTED,
    REFUSED,
    REPAIRED,
    UNDETERMINED,
    decided,
    with_fallback,
    wrong,
)
from tests.unit.solver_demo import LEVEL, PATIENT, PUMP, Situation, good, proposal, register, rule_set

ASKED = Wanted(solvers=("z3",), solver_named=True)
RULES = rule_set()
BASIS = Basis.of(RULES)
TEXTS = {m.digest: m.text for m in RULES.modules}
PLAIN = decided(RULES, PERMITTED, "permitted")
REPAIR = decided(RULES, REPAIRED, "repaired")
REFUSAL = decided(RULES, REFUSED, "refused")
FELL_BACK = with_fallback(RULES, decided(RULES, FALLEN, "fallback"), BACKUP)
RECOVERING = Situation(level=3.56, inflow=30.0, pump="0", may_repair=False)

Document = dict[str, Any]


def nothing(_certificate: Document) -> None:
    """No further lie."""


def forged(record: DecisionRecord, edit: Callable[[Document], object] = nothing) -> bytes:
    """The file that the most careful forger makes of a record."""
    certificate = parsed(certificate_document(record, {1: BASIS.encoded}))
    edit(certificate)
    derived = derive(certificate, TEXTS)
    return canonical(file_document(certificate, TEXTS, derived, {"sequence": 1, "row": "00"}))


def checked(record: DecisionRecord, **changes: object) -> DecisionRecord:
    """The record with another answer of its check, which its own outcome follows."""
    assert record.examined is not None
    result = replace(record.examined.result, **changes)  # type: ignore[arg-type]  # fields of a result
    examined = replace(record.examined, result=result)
    return replace(record, examined=examined, outcome=result.verdict, findings=result.findings)


def asked(record: DecisionRecord, **changes: object) -> DecisionRecord:
    """The record with another question to its check."""
    assert record.examined is not None
    request = replace(record.examined.request, **changes)  # type: ignore[arg-type]  # fields of a request
    return replace(record, examined=replace(record.examined, request=request))


def pumped(values: tuple[RegisterValue, ...], percent: str) -> tuple[RegisterValue, ...]:
    return tuple(register(PUMP, percent) if v.tag == PUMP else v for v in values)


def easier(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return tuple(
        replace(f, margin=f.margin + 1000) if isinstance(f, Holds) and f.margin is not None else f
        for f in findings
    )


def retold(record: DecisionRecord, **changes: object) -> DecisionRecord:
    """The record with another counterexample."""
    verdict: Verdict | Any = record.outcome
    assert isinstance(verdict, Refused | Repaired)
    told: Counterexample = replace(verdict.counterexample, **changes)  # type: ignore[arg-type]  # its fields
    return checked(record, verdict=replace(verdict, counterexample=told))


def said_to_be(record: DecisionRecord, words: str) -> Verdict:
    assert isinstance(record.outcome, Repaired)
    return replace(record.outcome, said=words)


def fell_back_to(values: tuple[RegisterValue, ...]) -> DecisionRecord:
    """A backup that is said to have done something else, within every rule but its own."""
    fallback = FELL_BACK.fallback
    assert fallback is not None
    assert fallback.result.proposal is not None
    computed = replace(fallback.result.proposal, values=values)
    result = replace(fallback.result, verdict=Permitted(values), proposal=computed)
    return replace(FELL_BACK, fallback=replace(fallback, result=result), written=values)


def recovered(percent: str | None) -> DecisionRecord:
    """A recovery (S9), with another value than the backup's where one is given."""
    request = RECOVERING.request(None)
    result, _ = Checks(RULES, PATIENT).check(request)
    assert result.recovery
    assert result.proposal is not None
    if percent is not None:
        result = replace(
            result, proposal=replace(result.proposal, values=pumped(result.proposal.values, percent))
        )
    assert result.proposal is not None
    fallback = Examination(request=replace(request, decision=REFUSAL.id), result=result)
    return replace(REFUSAL, fallback=fallback, written=result.proposal.values, written_by="recovery")


def test_the_honest_ones_hold() -> None:
    for record in (PLAIN, REPAIR, REFUSAL, FELL_BACK, decided(RULES, UNDETERMINED, "u"), recovered(None)):
        done = verify(forged(record), ASKED)
        assert wrong(done) == [], (record.id, done)
        assert done.good


LIES: Mapping[str, tuple[DecisionRecord, str]] = {
    "permitted though nobody checked": (
        replace(
            REFUSAL,
            outcome=Permitted(PLAIN.written),
            examined=None,
            findings=(),
            written=PLAIN.written,
            written_by="verdict",
        ),
        "one story",
    ),
    "other values let out than permitted": (
        replace(PLAIN, written=pumped(PLAIN.written, "99")),
        "one story",
    ),
    "nothing permitted, and written all the same": (
        replace(REFUSAL, written=PLAIN.written, written_by="verdict"),
        "one story",
    ),
    "greater margins told than checked": (replace(PLAIN, findings=easier(PLAIN.findings)), "one story"),
    "another reading told than judged": (
        replace(PLAIN, inputs={**PLAIN.inputs, LEVEL: good(1.0)}),
        "one story",
    ),
    "another rule set told than judged under": (replace(PLAIN, rule_set_digest="sha256:other"), "one story"),
    "another model told than proposed": (replace(PLAIN, model_digest="sha256:other"), "one story"),
    "another decision's check": (asked(PLAIN, decision="d-99"), "one story"),
    "another point's check": (asked(PLAIN, point="boiler"), "one story"),
    "another proposal told than checked": (replace(PLAIN, proposal=proposal("45")), "one story"),
    "a recovery that is none": (checked(PLAIN, recovery=True), "one story"),
    "a fallback of another name": (replace(FELL_BACK, written_by="value_in_force"), "one story"),
    "a fallback that nothing was written of": (replace(FELL_BACK, written=(), written_by=""), "one story"),
    "a margin of the counterexample": (retold(REFUSAL, margin=None), "one story"),
    "permitted values that nobody asked for": (
        replace(
            checked(PLAIN, verdict=Permitted(pumped(PLAIN.written, "41"))),
            written=pumped(PLAIN.written, "41"),
        ),
        "judged again",
    ),
    "words of a refusal": (
        retold(REFUSAL, text="the pump is broken, and everything else is permitted"),
        "in words, proposal",
    ),
    "words of why a repair was needed": (retold(REPAIR, text="nothing was wrong"), "in words, proposal"),
    "words of a repair": (
        checked(REPAIR, verdict=said_to_be(REPAIR, "asked for by nobody")),
        "judged again",
    ),
    "a backup that does something else": (fell_back_to(pumped(FELL_BACK.written, "64")), "judged again"),
    "a recovery that does something else": (recovered("55"), "judged again"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_found_however_consistent_the_file_is(lie: str) -> None:
    record, look = LIES[lie]

    done = verify(forged(record), ASKED)

    assert look in wrong(done), done
    assert "digest" not in wrong(done)
    assert "made again" not in wrong(done)
    assert not done.good


def other_error(certificate: Document) -> None:
    certificate["rule_sets"]["1"]["assumptions"]["TK1.LT101"]["error"] = "0"


def one_more_rule_set(certificate: Document) -> None:
    certificate["rule_sets"]["7"] = certificate["rule_sets"]["1"]


def another_name(certificate: Document) -> None:
    certificate["rule_sets"]["01"] = certificate["rule_sets"].pop("1")


def another_digest(certificate: Document) -> None:
    certificate["rule_sets"]["1"]["rule_set_digest"] = "0" * 64


# Of an undetermined decision nothing is claimed; what it stood on is evidence all the same.
@pytest.mark.parametrize("edit", [other_error, one_more_rule_set, another_name, another_digest])
@pytest.mark.parametrize("decision", ["permitted", "undetermined"])
def test_rule_sets_that_nothing_was_judged_under_or_that_are_others_are_refused(
    decision: str, edit: Callable[[Document], object]
) -> None:
    record = PLAIN if decision == "permitted" else decided(RULES, UNDETERMINED, "undetermined")
    document = json.loads(forged(record))
    edit(document["certificate"])
    document["digest"] = digest_of(canonical(document["certificate"]))

    assert "made again" in wrong(verify(canonical(document), ASKED))


# In Python 1 == True == 1.0: equal is not the same spelling, and any changed byte counts.
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'"as_backup":false', b'"as_backup":0'),
        (b'"generation":1,', b'"generation":true,'),
        (b'"what_if":false', b'"what_if":0'),
        (b'"drift":0', b'"drift":false'),
        (b'"may_repair":true', b'"may_repair":1'),
        (b'"may_repair":true', b'"may_repair":1.0'),
        (b'"recovery":false', b'"recovery":0'),
        (b'"received_utc_ns":1700000000000000000', b'"received_utc_ns":1.7e18'),
        (b'"server_ts_ns":0', b'"server_ts_ns":false'),
        (b'"source_ts_ns":null', b'"source_ts_ns":{}'),
    ],
)
def test_an_equal_value_of_another_kind_is_another_file(one: bytes, other: bytes) -> None:
    data = forged(PLAIN)
    assert one in data

    document = json.loads(data.replace(one, other))
    document["digest"] = digest_of(canonical(document["certificate"]))

    assert not verify(canonical(document), replace(ASKED, solvers=())).good


HOSTILE: Mapping[str, tuple[bytes, bytes]] = {
    "half a character": (b'"row":"00"', b'"row":"\\ud800"'),
    "an anchor that is a number": (b'"anchor":{"row":"00","sequence":1}', b'"anchor":7'),
    "a long exponent": (b'"held_s":{"TK1.H101.CMD":"1000.0"', b'"held_s":{"TK1.H101.CMD":"1e99999"'),
    "a value nobody can carry": (b'["40","0.0"]', b'["1e999999999","0.0"]'),
    "a division by nothing": (b'["40","0.0"]', b'["1/0","0.0"]'),
    "no number of seconds": (b'["40","0.0"]', b'["40","nan"]'),
    "endless seconds": (b'["38","0.4"]', b'["38","inf"]'),
    "a hold for ever": (b'"hold_s":"1.2"', b'"hold_s":"inf"'),
    "a hold of a thousand years": (b'"hold_s":"1.2"', b'"hold_s":"30000000000.0"'),
    "an effect after a thousand years": (b'"effect_delay_s":"0.3"', b'"effect_delay_s":"30000000000.0"'),
    "a scale nobody can carry": (b'"scale":"0.001"', b'"scale":"1e999999999"'),
    "a range that is none": (b'"eu_range":null', b'"eu_range":"7"'),
    "a history that is none": (b'["40","0.0"]', b'["40"]'),
    "a budget that is none": (b'"rlimit":2000000', b'"rlimit":"many"'),
    "a key twice": (b'"mode":"armed"', b'"mode":"armed","mode":"armed"'),
    "no JSON number": (b'"sequence":1', b'"sequence":NaN'),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_a_sentence_and_in_time(name: str) -> None:
    one, other = HOSTILE[name]
    data = forged(PLAIN)
    assert one in data
    changed = data.replace(one, other)
    if b'"anchor":7' not in changed and b"twice" not in name.encode() and b"NaN" not in changed:
        try:
            document = json.loads(changed)
            document["digest"] = digest_of(canonical(document["certificate"]))
            changed = canonical(document)
        except UnicodeEncodeError:
            pass

    done = verify(changed, ASKED)

    assert not done.good
    assert any(look.good is False and look.said for look in done.looks)
