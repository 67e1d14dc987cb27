from __future__ import annotations

import copy
import json
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.decision import (
    CheckRequest,
    CheckResult,
    Counterexample,
    DecisionId,
    DecisionRecord,
    Examination,
    Finding,
    Holds,
    InForce,
    Mode,
    Outcome,
    PassedOver,
    Permitted,
    PointId,
    Proposal,
    Refused,
    RegisterValue,
    Rejected,
    Repaired,
    Shortlist,
    StateInterval,
    StateSet,
    Undetermined,
    Unknown,
    Violated,
    WriteOutcome,
)
from gateway.core.errors import StorageError
from gateway.core.guidance import Decoding
from gateway.core.quality import StatusCode
from gateway.core.restraint import UNRESTRAINED, Restraint
from gateway.core.tag import TagId, TagValue
from gateway.storage.codec import certificate_digest, decode_record, encode_record, spell_ahead

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_number = st.fractions()
_moment = st.integers(0, 2**62)
_duration = st.floats(0, 1e7, allow_nan=False)
_numbers = st.dictionaries(_text, _number, max_size=3)
_registers = st.lists(st.builds(RegisterValue, _text.map(TagId), st.integers(), _number), max_size=3).map(
    tuple
)
_counterexample = st.builds(
    Counterexample,
    module=_text,
    constraint=_text,
    margin=st.none() | _number,
    assignment=_numbers,
    text=_text,
)
_outcome: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Permitted, _registers, _text),
    st.builds(Repaired, _registers, _counterexample, st.just("") | _text),
    st.builds(Refused, _counterexample),
    st.builds(Undetermined, _text),
    st.builds(Rejected, _text),
)
_finding: st.SearchStrategy[Finding] = st.one_of(
    st.builds(Holds, _text, _text, st.none() | _number),
    st.builds(Violated, _text, _text, _text, st.none() | _number, _numbers, _text, _text),
    st.builds(Unknown, _text, _text, _text),
)
_tag_value = st.builds(
    TagValue,
    value=st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _text,
    status=st.sampled_from(StatusCode),
    source_ts_ns=st.none() | _moment,
    server_ts_ns=_moment,
    confirmed_at=st.just(float("-inf")) | _duration,
)
_proposal = st.builds(
    Proposal, values=_registers, by=_text, model_digest=_text, confidence=st.none() | st.floats(0, 1)
)
_verdict = _outcome.filter(lambda o: not isinstance(o, Rejected))
_findings = st.lists(_finding, max_size=3).map(tuple)
_examination = st.builds(
    Examination,
    request=st.builds(
        CheckRequest,
        decision=_text.map(DecisionId),
        point=_text.map(PointId),
        generation=st.integers(0, 2**40),
        inputs=st.dictionaries(_text.map(TagId), _tag_value, max_size=2),
        taken_at=_duration,
        history=st.dictionaries(
            _text.map(TagId),
            st.lists(st.builds(InForce, _number, _duration), max_size=3).map(tuple),
            max_size=2,
        ),
        held_s=st.dictionaries(_text.map(TagId), _duration, max_size=2),
        proposal=st.none() | _proposal,
        carried=st.none()
        | st.builds(
            StateSet,
            at=_duration,
            intervals=st.dictionaries(_text, st.builds(StateInterval, _number, _number), max_size=2),
        ),
        repair=st.sampled_from(["segment", "nearest"]),
        restraint=st.just(UNRESTRAINED)
        | st.builds(
            Restraint,
            least_change=st.dictionaries(_text.map(TagId), _number, max_size=2),
            kept_back=st.dictionaries(_text.map(TagId), st.sampled_from([-1, 1]), max_size=2),
            margin=_number,
        ),
        hold_s=_duration,
        effect_delay_s=_duration,
        may_repair=st.booleans(),
    ),
    result=st.builds(
        CheckResult,
        verdict=_verdict,
        findings=_findings,
        generation=st.integers(0, 2**40),
        rule_set_digest=_text,
        timings_ms=st.dictionaries(_text, _duration, max_size=2),
        proposal=st.none() | _proposal,
        recovery=st.booleans(),
    ),
)
_shortlist = st.builds(
    Shortlist,
    length=st.integers(2, 8),
    rank=st.integers(1, 8),
    passed_over=st.lists(
        st.builds(
            PassedOver,
            rank=st.integers(1, 8),
            values=_registers,
            confidence=st.none() | st.floats(0, 1),
            counterexample=_counterexample,
        ),
        max_size=2,
    ).map(tuple),
)
records = st.builds(
    DecisionRecord,
    id=_text.map(DecisionId),
    point=_text.map(PointId),
    mode=st.sampled_from(Mode),
    requested_by=_text,
    received_utc_ns=_moment,
    outcome=_outcome,
    proposal=st.none() | _proposal,
    written=_registers,
    written_by=_text,
    findings=_findings,
    inputs=st.dictionaries(_text.map(TagId), _tag_value, max_size=3),
    generation=st.integers(0, 2**40),
    rule_set_digest=_text,
    model_digest=_text,
    timings_ms=st.dictionaries(_text, _duration, max_size=3),
    write_outcome=st.none() | st.sampled_from(WriteOutcome),
    certificate_digest=_text,
    examined=st.none() | _examination,
    fallback=st.none() | _examination,
    shadow=_findings,
    shortlist=st.none() | _shortlist,
)


@given(records)
def test_every_record_comes_back_as_it_was_and_has_one_spelling(record: DecisionRecord) -> None:
    body = encode_record(record)

    again = decode_record(body)

    assert again == record
    assert {tag: type(v.value) for tag, v in again.inputs.items()} == {
        tag: type(v.value) for tag, v in record.inputs.items()
    }
    assert encode_record(again) == body
    as_others_would = json.dumps(
        json.loads(body), sort_keys=True, separators=(",", ":"), ensure_ascii=False
    ).encode()
    assert as_others_would == body


def a_record(**changes: object) -> DecisionRecord:
    record = DecisionRecord(
        id=DecisionId("d-1"),
        point=PointId("buffer-tank"),
        mode=Mode.ARMED,
        requested_by="period",
        received_utc_ns=1_700_000_000_000_000_000,
        outcome=Permitted((RegisterValue(TagId("TK1.P101.SP"), 125, Fraction(25, 2)),)),
        proposal=None,
        written=(),
        written_by="verdict",
        findings=(Holds("buffer-tank", "max-level", Fraction(1, 3)),),
        inputs={},
        generation=12,
        rule_set_digest="sha256:aa",
        model_digest="sha256:bb",
        timings_ms={"check": 1.25},
    )
    return replace(record, **changes)  # type: ignore[arg-type]  # each test names the field it changes


def test_a_record_of_an_older_version_without_its_checks_is_still_read() -> None:
    plain = json.loads(encode_record(a_record()))
    del plain["examined"], plain["fallback"], plain["shadow"]

    assert decode_record(json.dumps(plain).encode()) == a_record()


def test_what_modules_in_shadow_say_is_recorded_and_is_no_evidence() -> None:
    finding = Holds("trial", "max-level", Fraction(1, 3))
    record = a_record(shadow=(finding,))

    assert decode_record(encode_record(record)).shadow == (finding,)
    assert certificate_digest(record) == certificate_digest(a_record())


def test_what_else_a_model_proposed_is_recorded_and_is_no_evidence() -> None:
    cause = Counterexample(module="tank", constraint="no-overflow", margin=None, assignment={}, text="high")
    passed = PassedOver(rank=1, values=(), confidence=0.5, counterexample=cause)
    record = a_record(shortlist=Shortlist(length=3, rank=2, passed_over=(passed,)))

    assert decode_record(encode_record(record)).shortlist == record.shortlist
    assert certificate_digest(record) == certificate_digest(a_record())
    assert "shortlist" not in json.loads(encode_record(a_record()))


def test_numbers_are_written_as_exact_decimal_text_or_as_a_quotient() -> None:
    plain = json.loads(encode_record(a_record()))

    assert plain["outcome"]["setpoints"][0] == {"tag": "TK1.P101.SP", "raw": "125", "value": "12.5"}
    assert plain["findings"][0]["margin"] == "1/3"
    assert plain["timings_ms"] == {"check": "1.25"}


def test_a_record_that_differs_in_one_part_from_the_one_before_is_written_as_it_is() -> None:
    record = a_record()
    first = json.loads(encode_record(record))

    digested = json.loads(encode_record(replace(record, certificate_digest="sha256:1")))
    other = json.loads(encode_record(replace(record, certificate_digest="sha256:1", written_by="backup")))

    assert digested == first | {"certificate_digest": "sha256:1"}
    assert other == digested | {"written_by": "backup"}
    assert json.loads(encode_record(record)) == first


def test_a_record_says_the_same_when_parts_of_it_were_spelt_ahead_of_it() -> None:
    pump = TagId("TK1.P101.SP")
    request = CheckRequest(
        decision=DecisionId("d-1"),
        point=PointId("buffer-tank"),
        generation=12,
        inputs={TagId("A"): _sample(1.0)},
        taken_at=10.25,
        history={pump: (InForce(Fraction(25, 2), 0.0), InForce(Fraction(1, 3), 0.5))},
        held_s={pump: 4.5},
        proposal=None,
        carried=StateSet(at=9.5, intervals={"A": StateInterval(Fraction(1, 2), Fraction(2, 3))}),
        hold_s=1.2,
        effect_delay_s=0.3,
    )
    verdict = Permitted((RegisterValue(pump, 125, Fraction(25, 2)),))
    record = a_record(inputs=request.inputs, outcome=verdict)
    result = CheckResult(
        verdict=verdict,
        findings=record.findings,
        generation=12,
        rule_set_digest="sha256:aa",
    )
    record = replace(record, examined=Examination(request=request, result=result))
    of_itself = copy.deepcopy(record)

    spell_ahead(request, request.inputs)

    assert encode_record(record) == encode_record(of_itself)
    assert decode_record(encode_record(record)) == record


def test_the_certificate_covers_the_evidence_and_not_what_came_after() -> None:
    before = certificate_digest(a_record())

    after = a_record(
        write_outcome=WriteOutcome.CONFIRMED, timings_ms={"write": 3.0}, certificate_digest=before
    )
    assert certificate_digest(after) == before
    for other in ({"generation": 13}, {"mode": Mode.SHADOW}, {"inputs": {TagId("A"): _sample(1.0)}}):
        assert certificate_digest(a_record(**other)) != before


def test_an_integer_and_the_same_number_as_a_real_are_different_evidence() -> None:
    one, real = a_record(inputs={TagId("A"): _sample(1)}), a_record(inputs={TagId("A"): _sample(1.0)})

    assert certificate_digest(one) != certificate_digest(real)


def test_a_number_no_decimal_can_spell_is_a_storage_error() -> None:
    with pytest.raises(StorageError, match="`d-1`"):
        encode_record(a_record(timings_ms={"check": float("nan")}))


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"id":1}', encode_record(a_record())[:-1]])
def test_what_is_not_a_record_is_a_storage_error(body: bytes) -> None:
    with pytest.raises(StorageError):
        decode_record(body)


def _sample(value: float) -> TagValue:
    return TagValue(value=value, status=StatusCode.Good, source_ts_ns=None, server_ts_ns=1, confirmed_at=1.0)


def test_how_the_model_decoded_is_on_record_and_nothing_of_it_is_in_the_certificate() -> None:
    told = Decoding(guided=True, because="`x` is left out", attempts=2, masked_out={TagId("P"): 0.125})
    plain, guided = a_record(), a_record(decoding=told)

    assert decode_record(encode_record(guided)).decoding == told
    assert decode_record(encode_record(plain)).decoding is None
    assert certificate_digest(guided) == certificate_digest(plain)
