"""Plain data of the checks a record stands on. What the record says already is not said twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gateway.core.decision import (
    CheckRequest,
    CheckResult,
    DecisionRecord,
    Examination,
    InForce,
    Rejected,
    StateInterval,
    StateSet,
)
from gateway.core.override import overrides_of
from gateway.core.override import plain as overrides_to_plain
from gateway.core.restraint import UNRESTRAINED, Restraint
from gateway.core.tag import TagId, decimal_text, number_of
from gateway.storage.codec_parts import (
    finding_from_plain,
    finding_to_plain,
    outcome_from_plain,
    outcome_to_plain,
    proposal_from_plain,
    proposal_to_plain,
    tag_value_from_plain,
    tag_value_to_plain,
)
from gateway.storage.memo import Memo


def examination_to_plain(record: DecisionRecord, examination: Examination | None) -> dict[str, Any] | None:
    """Plain data of one check of a record."""
    if examination is None:
        return None
    request, result = examination.request, examination.result
    as_recorded = result.verdict == record.outcome and result.findings == record.findings
    said: dict[str, Any] = (
        {}
        if as_recorded
        else {
            "outcome": outcome_to_plain(result.verdict),
            "findings": [finding_to_plain(f) for f in result.findings],
        }
    )
    if result.overrides != record.overrides:
        said["overrides"] = overrides_to_plain(result.overrides)
    return spelt.of(request) | {
        "decision": None if request.decision == record.id else request.decision,
        "point": None if request.point == record.point else request.point,
        "inputs": _inputs_to_plain(record, request),
        "result": said
        | {
            "generation": result.generation,
            "rule_set_digest": result.rule_set_digest,
            "proposal": None if result.proposal is None else proposal_to_plain(result.proposal),
            "recovery": result.recovery,
            "timings_ms": {stage: repr(float(ms)) for stage, ms in result.timings_ms.items()},
        },
    }


def _request_to_plain(request: CheckRequest) -> dict[str, Any]:
    """All of a check's question that does not depend on whose record it stands in."""
    return {
        "generation": request.generation,
        "taken_at": repr(float(request.taken_at)),
        "history": {
            tag: [[decimal_text(e.value), repr(float(e.ceased_s_ago))] for e in entries]
            for tag, entries in request.history.items()
        },
        "held_s": {tag: repr(float(seconds)) for tag, seconds in request.held_s.items()},
        "proposal": None if request.proposal is None else proposal_to_plain(request.proposal),
        "carried": None if request.carried is None else _state_to_plain(request.carried),
        "hold_s": repr(float(request.hold_s)),
        "effect_delay_s": repr(float(request.effect_delay_s)),
        "may_repair": request.may_repair,
        "restraint": None if request.restraint == UNRESTRAINED else _restraint_to_plain(request.restraint),
        **({} if request.repair == "segment" else {"repair": request.repair}),
    }


spelt = Memo(_request_to_plain)  # worked out while the check is still under way


def with_examinations(
    record: DecisionRecord, examined: Mapping[str, Any] | None, fallback: Mapping[str, Any] | None
) -> DecisionRecord:
    """The record with its checks; raises `ValueError`, `TypeError` or `KeyError` for other data."""
    return replace(
        record,
        examined=None if examined is None else _examination(record, examined),
        fallback=None if fallback is None else _examination(record, fallback),
    )


def _examination(record: DecisionRecord, plain: Mapping[str, Any]) -> Examination:
    proposal = plain["proposal"]
    request = CheckRequest(
        decision=record.id if plain["decision"] is None else plain["decision"],
        point=record.point if plain["point"] is None else plain["point"],
        generation=plain["generation"],
        inputs={
            TagId(tag): record.inputs[TagId(tag)] if value is None else tag_value_from_plain(value)
            for tag, value in plain["inputs"].items()
        },
        taken_at=float(plain["taken_at"]),
        history={
            TagId(tag): tuple(InForce(number_of(value), float(ago)) for value, ago in entries)
            for tag, entries in plain["history"].items()
        },
        held_s={TagId(tag): float(seconds) for tag, seconds in plain["held_s"].items()},
        proposal=None if proposal is None else proposal_from_plain(proposal),
        carried=None if plain["carried"] is None else _state_from_plain(plain["carried"]),
        hold_s=float(plain["hold_s"]),
        effect_delay_s=float(plain["effect_delay_s"]),
        may_repair=plain["may_repair"],
        restraint=_restraint_from_plain(plain.get("restraint")),
        repair=plain.get("repair", "segment"),
    )
    return Examination(request=request, result=_result(record, plain["result"]))


def _result(record: DecisionRecord, plain: Mapping[str, Any]) -> CheckResult:
    verdict = outcome_from_plain(plain["outcome"]) if "outcome" in plain else record.outcome
    if isinstance(verdict, Rejected):
        raise TypeError("a check never rejects")
    findings = plain.get("findings")
    return CheckResult(
        verdict=verdict,
        findings=record.findings if findings is None else tuple(finding_from_plain(f) for f in findings),
        generation=plain["generation"],
        rule_set_digest=plain["rule_set_digest"],
        timings_ms={stage: float(ms) for stage, ms in plain["timings_ms"].items()},
        proposal=None if plain["proposal"] is None else proposal_from_plain(plain["proposal"]),
        recovery=plain["recovery"],
        overrides=overrides_of(plain["overrides"]) if "overrides" in plain else record.overrides,
    )


def _inputs_to_plain(record: DecisionRecord, request: CheckRequest) -> dict[str, Any]:
    """By tag: null where the record's own inputs hold the same value."""
    return {
        tag: None if record.inputs.get(tag) == value else tag_value_to_plain(value)
        for tag, value in request.inputs.items()
    }


def _restraint_to_plain(restraint: Restraint) -> dict[str, Any]:
    return {
        "least_change": {tag: decimal_text(least) for tag, least in restraint.least_change.items()},
        "kept_back": dict(restraint.kept_back),
        "margin": decimal_text(restraint.margin),
    }


def _restraint_from_plain(plain: Mapping[str, Any] | None) -> Restraint:
    if plain is None:
        return UNRESTRAINED
    return Restraint(
        least_change={TagId(tag): number_of(least) for tag, least in plain["least_change"].items()},
        kept_back={TagId(tag): side for tag, side in plain["kept_back"].items()},
        margin=number_of(plain["margin"]),
    )


def _state_to_plain(state: StateSet) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "at": repr(float(state.at)),
        "intervals": {tag: [decimal_text(i.low), decimal_text(i.high)] for tag, i in state.intervals.items()},
    }
    if state.since:
        plain["since"] = {
            row: [None if at is None else repr(float(at)) for at in ends] for row, ends in state.since.items()
        }
    if state.earlier:
        plain["earlier"] = [_state_to_plain(entry) for entry in state.earlier]
    return plain


def _state_from_plain(plain: Mapping[str, Any]) -> StateSet:
    return StateSet(
        at=float(plain["at"]),
        intervals={
            tag: StateInterval(number_of(low), number_of(high))
            for tag, (low, high) in plain["intervals"].items()
        },
        since={
            row: (None if surely is None else float(surely), None if possibly is None else float(possibly))
            for row, (surely, possibly) in plain.get("since", {}).items()
        },
        earlier=tuple(_state_from_plain(entry) for entry in plain.get("earlier", ())),
    )
