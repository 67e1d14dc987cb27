"""Canonical JSON of a decision record: one record, one byte string, and back without loss.

Canonical means: sorted keys, no white space, UTF-8, every number that matters as exact decimal text. What a
digest covers must not depend on who wrote it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, assert_never

import msgspec

from gateway.core.decision import (
    Counterexample,
    DecisionId,
    DecisionRecord,
    Finding,
    Holds,
    Mode,
    Outcome,
    Permitted,
    PointId,
    Proposal,
    Refused,
    RegisterValue,
    Rejected,
    Repaired,
    Undetermined,
    Unknown,
    Violated,
    WriteOutcome,
    outcome_name,
)
from gateway.core.errors import StorageError
from gateway.core.quality import StatusCode
from gateway.core.tag import Scalar, TagId, TagValue, decimal_text, exact

_AFTER_THE_EVIDENCE = frozenset({"write_outcome", "certificate_digest", "timings_ms"})

_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder()


def canonical(document: Mapping[str, Any]) -> bytes:
    """Canonical JSON of plain data (no floats: they are text by then); raises `StorageError`."""
    try:
        return _encoder.encode(document)
    except (TypeError, ValueError, msgspec.MsgspecError) as exc:
        raise StorageError(f"a record cannot be written as JSON: {exc}") from exc


def parsed(body: bytes) -> dict[str, Any]:
    """Plain data of a canonical document; raises `StorageError`."""
    try:
        document = _decoder.decode(body)
    except msgspec.DecodeError as exc:
        raise StorageError(f"a stored record is not JSON: {exc}") from exc
    if not isinstance(document, dict):
        raise StorageError("a stored record is not a JSON object")
    return document


def encode_record(record: DecisionRecord) -> bytes:
    """Canonical JSON of a whole record; raises `StorageError`."""
    return canonical(record_to_plain(record))


def decode_record(body: bytes) -> DecisionRecord:
    """The record again; raises `StorageError` when `body` was not made by `encode_record`."""
    return record_from_plain(parsed(body))


def certificate_digest(record: DecisionRecord) -> str:
    """`sha256:` digest over the evidence made before the write.

    Left out: the write's outcome, this digest itself and the timings, which are still running then.
    """
    plain = record_to_plain(record)
    evidence = {key: value for key, value in plain.items() if key not in _AFTER_THE_EVIDENCE}
    return "sha256:" + hashlib.sha256(canonical(evidence)).hexdigest()


def record_to_plain(record: DecisionRecord) -> dict[str, Any]:
    """Plain data for `canonical`; raises `StorageError` for numbers no decimal can spell."""
    try:
        return {
            "id": record.id,
            "point": record.point,
            "mode": record.mode.value,
            "requested_by": record.requested_by,
            "received_utc_ns": record.received_utc_ns,
            "outcome": _outcome_to_plain(record.outcome),
            "proposal": None if record.proposal is None else _proposal_to_plain(record.proposal),
            "written": _registers_to_plain(record.written),
            "written_by": record.written_by,
            "findings": [_finding_to_plain(f) for f in record.findings],
            "inputs": {tag: _tag_value_to_plain(v) for tag, v in record.inputs.items()},
            "generation": record.generation,
            "rule_set_digest": record.rule_set_digest,
            "model_digest": record.model_digest,
            "timings_ms": {stage: decimal_text(exact(ms)) for stage, ms in record.timings_ms.items()},
            "write_outcome": None if record.write_outcome is None else record.write_outcome.value,
            "certificate_digest": record.certificate_digest,
            "what_if": record.what_if,
        }
    except (ValueError, OverflowError) as exc:
        raise StorageError(f"decision `{record.id}` cannot be recorded: {exc}") from exc


def record_from_plain(plain: Mapping[str, Any]) -> DecisionRecord:
    """The record of plain data made by `record_to_plain`; raises `StorageError`."""
    try:
        outcome, proposal = plain["write_outcome"], plain["proposal"]
        return DecisionRecord(
            id=DecisionId(plain["id"]),
            point=PointId(plain["point"]),
            mode=Mode(plain["mode"]),
            requested_by=plain["requested_by"],
            received_utc_ns=plain["received_utc_ns"],
            outcome=_outcome_from_plain(plain["outcome"]),
            proposal=None if proposal is None else _proposal_from_plain(proposal),
            written=_registers_from_plain(plain["written"]),
            written_by=plain["written_by"],
            findings=tuple(_finding_from_plain(f) for f in plain["findings"]),
            inputs={TagId(tag): _tag_value_from_plain(v) for tag, v in plain["inputs"].items()},
            generation=plain["generation"],
            rule_set_digest=plain["rule_set_digest"],
            model_digest=plain["model_digest"],
            timings_ms={stage: float(Fraction(text)) for stage, text in plain["timings_ms"].items()},
            write_outcome=None if outcome is None else WriteOutcome(outcome),
            certificate_digest=plain["certificate_digest"],
            what_if=plain.get("what_if", False),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise StorageError(f"a stored decision record cannot be read: {exc!r}") from exc


def counterexample_to_plain(counterexample: Counterexample) -> dict[str, Any]:
    """Plain data of a counterexample, also for nodes, topics and the CLI."""
    return {
        "module": counterexample.module,
        "constraint": counterexample.constraint,
        "margin": decimal_text(counterexample.margin),
        "assignment": _numbers_to_plain(counterexample.assignment),
        "text": counterexample.text,
    }


def _counterexample_from_plain(plain: Mapping[str, Any]) -> Counterexample:
    return Counterexample(
        module=plain["module"],
        constraint=plain["constraint"],
        margin=Fraction(plain["margin"]),
        assignment=_numbers_from_plain(plain["assignment"]),
        text=plain["text"],
    )


def _outcome_to_plain(outcome: Outcome) -> dict[str, Any]:
    plain: dict[str, Any] = {"is": outcome_name(outcome)}
    match outcome:
        case Permitted(setpoints):
            plain["setpoints"] = _registers_to_plain(setpoints)
        case Repaired(setpoints, counterexample):
            plain["setpoints"] = _registers_to_plain(setpoints)
            plain["counterexample"] = counterexample_to_plain(counterexample)
        case Refused(counterexample):
            plain["counterexample"] = counterexample_to_plain(counterexample)
        case Undetermined(reason) | Rejected(reason):
            plain["reason"] = reason
        case _:
            assert_never(outcome)
    return plain


def _outcome_from_plain(plain: Mapping[str, Any]) -> Outcome:
    match plain["is"]:
        case "permitted":
            return Permitted(_registers_from_plain(plain["setpoints"]))
        case "repaired":
            found = _counterexample_from_plain(plain["counterexample"])
            return Repaired(_registers_from_plain(plain["setpoints"]), found)
        case "refused":
            return Refused(_counterexample_from_plain(plain["counterexample"]))
        case "undetermined":
            return Undetermined(plain["reason"])
        case "rejected":
            return Rejected(plain["reason"])
        case other:
            raise ValueError(f"unknown outcome `{other}`")


def _finding_to_plain(finding: Finding) -> dict[str, Any]:
    plain: dict[str, Any] = {"module": finding.module, "constraint": finding.constraint}
    match finding:
        case Holds():
            margin = None if finding.margin is None else decimal_text(finding.margin)
            return plain | {"is": "holds", "margin": margin}
        case Violated():
            return plain | {
                "is": "violated",
                "kind": finding.kind,
                "margin": decimal_text(finding.margin),
                "witness": _numbers_to_plain(finding.witness),
                "message": finding.message,
                "where": finding.where,
            }
        case Unknown():
            return plain | {"is": "unknown", "reason": finding.reason}
        case _:
            assert_never(finding)


def _finding_from_plain(plain: Mapping[str, Any]) -> Finding:
    module, constraint = plain["module"], plain["constraint"]
    match plain["is"]:
        case "holds":
            margin = plain["margin"]
            return Holds(module, constraint, None if margin is None else Fraction(margin))
        case "violated":
            return Violated(
                module,
                constraint,
                plain["kind"],
                Fraction(plain["margin"]),
                _numbers_from_plain(plain["witness"]),
                plain["message"],
                plain["where"],
            )
        case "unknown":
            return Unknown(module, constraint, plain["reason"])
        case other:
            raise ValueError(f"unknown finding `{other}`")


def _proposal_to_plain(proposal: Proposal) -> dict[str, Any]:
    confidence = proposal.confidence
    return {
        "values": _registers_to_plain(proposal.values),
        "by": proposal.by,
        "model_digest": proposal.model_digest,
        "confidence": None if confidence is None else decimal_text(exact(confidence)),
    }


def _proposal_from_plain(plain: Mapping[str, Any]) -> Proposal:
    confidence = plain["confidence"]
    return Proposal(
        values=_registers_from_plain(plain["values"]),
        by=plain["by"],
        model_digest=plain["model_digest"],
        confidence=None if confidence is None else float(Fraction(confidence)),
    )


def _registers_to_plain(values: tuple[RegisterValue, ...]) -> list[dict[str, Any]]:
    return [{"tag": v.tag, "raw": str(v.raw), "value": decimal_text(v.value)} for v in values]


def _registers_from_plain(plain: list[Mapping[str, Any]]) -> tuple[RegisterValue, ...]:
    return tuple(RegisterValue(TagId(v["tag"]), int(v["raw"]), Fraction(v["value"])) for v in plain)


def _tag_value_to_plain(value: TagValue) -> dict[str, Any]:
    # A tag that was never confirmed has an age of for ever, which no decimal spells: null.
    confirmed = value.confirmed_at
    return {
        "value": _scalar_to_plain(value.value),
        "status": int(value.status),
        "source_ts_ns": value.source_ts_ns,
        "server_ts_ns": value.server_ts_ns,
        "confirmed_at": decimal_text(exact(confirmed)) if math.isfinite(confirmed) else None,
    }


def _tag_value_from_plain(plain: Mapping[str, Any]) -> TagValue:
    confirmed = plain["confirmed_at"]
    return TagValue(
        value=_scalar_from_plain(plain["value"]),
        status=StatusCode(plain["status"]),
        source_ts_ns=plain["source_ts_ns"],
        server_ts_ns=plain["server_ts_ns"],
        confirmed_at=float("-inf") if confirmed is None else float(Fraction(confirmed)),
    )


def _scalar_to_plain(value: Scalar | None) -> bool | str | dict[str, str] | None:
    match value:
        case None | bool() | str():
            return value
        case int():
            return {"integer": str(value)}
        case float():
            return {"real": repr(value)}
        case _:
            assert_never(value)


def _scalar_from_plain(plain: bool | str | Mapping[str, str] | None) -> Scalar | None:  # noqa: FBT001  # a JSON value
    if plain is None or isinstance(plain, bool | str):
        return plain
    return int(plain["integer"]) if "integer" in plain else float(plain["real"])


def _numbers_to_plain(numbers: Mapping[str, Fraction]) -> dict[str, str]:
    return {name: decimal_text(number) for name, number in numbers.items()}


def _numbers_from_plain(plain: Mapping[str, str]) -> dict[str, Fraction]:
    return {name: Fraction(text) for name, text in plain.items()}
