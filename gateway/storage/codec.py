"""Canonical JSON of a decision record: one record, one byte string, and back without loss.

Canonical means: sorted keys, no white space, UTF-8, every number that matters as exact decimal text. What a
digest covers must not depend on who wrote it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from gateway.core.decision import CheckRequest, DecisionId, DecisionRecord, Mode, PointId, WriteOutcome
from gateway.core.errors import StorageError
from gateway.core.override import overrides_of
from gateway.core.override import plain as overrides_to_plain
from gateway.core.tag import TagId, TagValue, number_of, number_text
from gateway.storage.codec_checks import examination_to_plain, spelt, with_examinations
from gateway.storage.codec_parts import (
    decoding_from_plain,
    decoding_to_plain,
    finding_from_plain,
    finding_to_plain,
    outcome_from_plain,
    outcome_to_plain,
    proposal_from_plain,
    proposal_to_plain,
    registers_from_plain,
    registers_to_plain,
    shortlist_from_plain,
    shortlist_to_plain,
    tag_value_from_plain,
    tag_value_to_plain,
)
from gateway.storage.memo import Memo

CERTIFICATE_FORMAT = "o3-certificate/1"
_AFTER_THE_EVIDENCE = frozenset(
    {"write_outcome", "certificate_digest", "timings_ms", "shadow", "decoding", "shortlist"}
)

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


def certificate_document(record: DecisionRecord, rule_sets: Mapping[int, bytes]) -> bytes:
    """The certificate of a decision: its evidence made before the write, and the rule sets it stands on.

    Left out: the write's outcome, this document's digest, the timings, which are still running then, and what
    modules in shadow say, how the model decoded and what else it proposed: nothing stands on these.
    `rule_sets` are canonical JSON by generation; those the record does not name are left out too.
    """
    plain = record_to_plain(record)
    named = {record.generation} | {e.request.generation for e in (record.examined, record.fallback) if e}
    document = {
        "format": CERTIFICATE_FORMAT,
        "decision": {key: value for key, value in plain.items() if key not in _AFTER_THE_EVIDENCE},
        "rule_sets": {str(g): msgspec.Raw(text) for g, text in rule_sets.items() if g in named},
    }
    return canonical(document)


def certificate_digest(record: DecisionRecord, rule_sets: Mapping[int, bytes] = MappingProxyType({})) -> str:
    """`sha256:` digest of a decision's certificate."""
    return "sha256:" + hashlib.sha256(certificate_document(record, rule_sets)).hexdigest()


def spell_ahead(request: CheckRequest, inputs: Mapping[TagId, TagValue]) -> None:
    """Work out what a record of this check, on these inputs, will say of them; for whoever has time now."""
    with contextlib.suppress(ValueError, OverflowError):  # told when the record is made
        _inputs.of(inputs)
        spelt.of(request)


def _inputs_to_plain(inputs: Mapping[TagId, TagValue]) -> dict[str, Any]:
    return {tag: tag_value_to_plain(value) for tag, value in inputs.items()}


_inputs = Memo(_inputs_to_plain)


class _Newest:
    """Plain data of the record turned last: a decision's digest is made of it, then its row."""

    def __init__(self) -> None:
        self._kept: tuple[DecisionRecord, dict[str, Any]] | None = None

    def keep(self, record: DecisionRecord, plain: dict[str, Any]) -> dict[str, Any]:
        """`plain`, kept until the next one."""
        self._kept = record, plain
        return plain

    def of(self, record: DecisionRecord) -> dict[str, Any] | None:
        """The plain data of a record that has the kept one's own parts, but for the digest; else None."""
        if self._kept is None:
            return None
        kept, plain = self._kept
        if any(getattr(kept, name) is not getattr(record, name) for name in _PARTS):
            return None
        return {**plain, "certificate_digest": record.certificate_digest}


_PARTS = tuple(f.name for f in dataclasses.fields(DecisionRecord) if f.name != "certificate_digest")
_newest = _Newest()


def record_to_plain(record: DecisionRecord) -> dict[str, Any]:
    """Plain data for `canonical`; raises `StorageError` for numbers no decimal can spell."""
    return _newest.of(record) or _newest.keep(record, _record_to_plain(record))


def _record_to_plain(record: DecisionRecord) -> dict[str, Any]:
    try:
        return {
            "id": record.id,
            "point": record.point,
            "mode": record.mode.value,
            "requested_by": record.requested_by,
            "received_utc_ns": record.received_utc_ns,
            "outcome": outcome_to_plain(record.outcome),
            "proposal": None if record.proposal is None else proposal_to_plain(record.proposal),
            "written": registers_to_plain(record.written),
            "written_by": record.written_by,
            "findings": [finding_to_plain(f) for f in record.findings],
            "inputs": _inputs.of(record.inputs),
            "generation": record.generation,
            "rule_set_digest": record.rule_set_digest,
            "model_digest": record.model_digest,
            "timings_ms": {stage: number_text(ms) for stage, ms in record.timings_ms.items()},
            "write_outcome": None if record.write_outcome is None else record.write_outcome.value,
            "certificate_digest": record.certificate_digest,
            "what_if": record.what_if,
            "examined": examination_to_plain(record, record.examined),
            "fallback": examination_to_plain(record, record.fallback),
            "shadow": [finding_to_plain(f) for f in record.shadow],
            **({"overrides": overrides_to_plain(record.overrides)} if record.overrides else {}),
            **({"decoding": decoding_to_plain(record.decoding)} if record.decoding else {}),
            **({"shortlist": shortlist_to_plain(record.shortlist)} if record.shortlist else {}),
        }
    except (ValueError, OverflowError) as exc:
        raise StorageError(f"decision `{record.id}` cannot be recorded: {exc}") from exc


def record_from_plain(plain: Mapping[str, Any]) -> DecisionRecord:
    """The record of plain data made by `record_to_plain`; raises `StorageError`."""
    try:
        outcome, proposal = plain["write_outcome"], plain["proposal"]
        record = DecisionRecord(
            id=DecisionId(plain["id"]),
            point=PointId(plain["point"]),
            mode=Mode(plain["mode"]),
            requested_by=plain["requested_by"],
            received_utc_ns=plain["received_utc_ns"],
            outcome=outcome_from_plain(plain["outcome"]),
            proposal=None if proposal is None else proposal_from_plain(proposal),
            written=registers_from_plain(plain["written"]),
            written_by=plain["written_by"],
            findings=tuple(finding_from_plain(f) for f in plain["findings"]),
            inputs={TagId(tag): tag_value_from_plain(v) for tag, v in plain["inputs"].items()},
            generation=plain["generation"],
            rule_set_digest=plain["rule_set_digest"],
            model_digest=plain["model_digest"],
            timings_ms={stage: float(number_of(text)) for stage, text in plain["timings_ms"].items()},
            write_outcome=None if outcome is None else WriteOutcome(outcome),
            certificate_digest=plain["certificate_digest"],
            what_if=plain.get("what_if", False),
            shadow=tuple(finding_from_plain(f) for f in plain.get("shadow", ())),
            overrides=overrides_of(plain.get("overrides", ())),
            decoding=decoding_from_plain(plain["decoding"]) if "decoding" in plain else None,
            shortlist=shortlist_from_plain(plain["shortlist"]) if "shortlist" in plain else None,
        )
        return with_examinations(record, plain.get("examined"), plain.get("fallback"))
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as exc:
        raise StorageError(f"a stored decision record cannot be read: {exc!r}") from exc
