"""Plain data of a record's parts, and back without loss; numbers that matter are exact decimal text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, assert_never

from gateway.core.decision import (
    Counterexample,
    Finding,
    Holds,
    Outcome,
    PassedOver,
    Permitted,
    Proposal,
    Refused,
    RegisterValue,
    Rejected,
    Repaired,
    Shortlist,
    Undetermined,
    Unknown,
    Violated,
    outcome_name,
)
from gateway.core.guidance import Decoding
from gateway.core.quality import StatusCode
from gateway.core.tag import Scalar, TagId, TagValue, decimal_text, number_of, number_text


def decoding_to_plain(decoding: Decoding) -> dict[str, Any]:
    """Plain data of how a proposal was decoded."""
    return {
        "guided": decoding.guided,
        "because": decoding.because,
        "attempts": decoding.attempts,
        "masked_out": {tag: number_text(mass) for tag, mass in decoding.masked_out.items()},
    }


def decoding_from_plain(plain: Mapping[str, Any]) -> Decoding:
    """How a proposal was decoded, again."""
    return Decoding(
        guided=plain["guided"],
        because=plain["because"],
        attempts=plain["attempts"],
        masked_out={TagId(tag): float(number_of(text)) for tag, text in plain["masked_out"].items()},
    )


def shortlist_to_plain(shortlist: Shortlist) -> dict[str, Any]:
    """Plain data of what a proposal was one of."""
    return {
        "length": shortlist.length,
        "rank": shortlist.rank,
        "passed_over": [
            {
                "rank": each.rank,
                "values": registers_to_plain(each.values),
                "confidence": None if each.confidence is None else number_text(each.confidence),
                "counterexample": counterexample_to_plain(each.counterexample),
            }
            for each in shortlist.passed_over
        ],
    }


def shortlist_from_plain(plain: Mapping[str, Any]) -> Shortlist:
    """What a proposal was one of, again."""
    return Shortlist(
        length=plain["length"],
        rank=plain["rank"],
        passed_over=tuple(
            PassedOver(
                rank=each["rank"],
                values=registers_from_plain(each["values"]),
                confidence=None if each["confidence"] is None else float(number_of(each["confidence"])),
                counterexample=counterexample_from_plain(each["counterexample"]),
            )
            for each in plain["passed_over"]
        ),
    )


def counterexample_to_plain(counterexample: Counterexample) -> dict[str, Any]:
    """Plain data of a counterexample, also for nodes, topics and the CLI."""
    return {
        "module": counterexample.module,
        "constraint": counterexample.constraint,
        **_margin_to_plain(counterexample.margin, counterexample.unit),
        "assignment": numbers_to_plain(counterexample.assignment),
        "text": counterexample.text,
    }


def counterexample_from_plain(plain: Mapping[str, Any]) -> Counterexample:
    """The counterexample again."""
    return Counterexample(
        module=plain["module"],
        constraint=plain["constraint"],
        margin=_margin_from_plain(plain["margin"]),
        assignment=numbers_from_plain(plain["assignment"]),
        text=plain["text"],
        unit=plain.get("unit", ""),
    )


def outcome_to_plain(outcome: Outcome) -> dict[str, Any]:
    """Plain data of an outcome."""
    plain: dict[str, Any] = {"is": outcome_name(outcome)}
    match outcome:
        case Permitted(setpoints, kept_back):
            plain["setpoints"] = registers_to_plain(setpoints)
            if kept_back:
                plain["kept_back"] = kept_back
        case Repaired(setpoints, counterexample, said):
            plain["setpoints"] = registers_to_plain(setpoints)
            plain["counterexample"] = counterexample_to_plain(counterexample)
            if said:
                plain["said"] = said
        case Refused(counterexample):
            plain["counterexample"] = counterexample_to_plain(counterexample)
        case Undetermined(reason) | Rejected(reason):
            plain["reason"] = reason
        case _:
            assert_never(outcome)
    return plain


def outcome_from_plain(plain: Mapping[str, Any]) -> Outcome:
    """The outcome again; raises `ValueError` or `KeyError`."""
    match plain["is"]:
        case "permitted":
            return Permitted(registers_from_plain(plain["setpoints"]), plain.get("kept_back", ""))
        case "repaired":
            found = counterexample_from_plain(plain["counterexample"])
            return Repaired(registers_from_plain(plain["setpoints"]), found, plain.get("said", ""))
        case "refused":
            return Refused(counterexample_from_plain(plain["counterexample"]))
        case "undetermined":
            return Undetermined(plain["reason"])
        case "rejected":
            return Rejected(plain["reason"])
        case other:
            raise ValueError(f"unknown outcome `{other}`")


def finding_to_plain(finding: Finding) -> dict[str, Any]:
    """Plain data of a finding."""
    plain: dict[str, Any] = {"module": finding.module, "constraint": finding.constraint}
    match finding:
        case Holds():
            return plain | {"is": "holds", **_margin_to_plain(finding.margin, finding.unit)}
        case Violated():
            return plain | {
                "is": "violated",
                "kind": finding.kind,
                **_margin_to_plain(finding.margin, finding.unit),
                "witness": numbers_to_plain(finding.witness),
                "message": finding.message,
                "where": finding.where,
            }
        case Unknown():
            return plain | {"is": "unknown", "reason": finding.reason}
        case _:
            assert_never(finding)


def finding_from_plain(plain: Mapping[str, Any]) -> Finding:
    """The finding again; raises `ValueError` or `KeyError`."""
    module, constraint = plain["module"], plain["constraint"]
    match plain["is"]:
        case "holds":
            return Holds(module, constraint, _margin_from_plain(plain["margin"]), plain.get("unit", ""))
        case "violated":
            return Violated(
                module,
                constraint,
                plain["kind"],
                _margin_from_plain(plain["margin"]),
                numbers_from_plain(plain["witness"]),
                plain["message"],
                plain["where"],
                plain.get("unit", ""),
            )
        case "unknown":
            return Unknown(module, constraint, plain["reason"])
        case other:
            raise ValueError(f"unknown finding `{other}`")


def proposal_to_plain(proposal: Proposal) -> dict[str, Any]:
    """Plain data of a proposal."""
    confidence = proposal.confidence
    return {
        "values": registers_to_plain(proposal.values),
        "by": proposal.by,
        "model_digest": proposal.model_digest,
        "confidence": None if confidence is None else number_text(confidence),
    }


def proposal_from_plain(plain: Mapping[str, Any]) -> Proposal:
    """The proposal again."""
    confidence = plain["confidence"]
    return Proposal(
        values=registers_from_plain(plain["values"]),
        by=plain["by"],
        model_digest=plain["model_digest"],
        confidence=None if confidence is None else float(number_of(confidence)),
    )


def registers_to_plain(values: tuple[RegisterValue, ...]) -> list[dict[str, Any]]:
    """Plain data of register values."""
    return [{"tag": v.tag, "raw": str(v.raw), "value": decimal_text(v.value)} for v in values]


def registers_from_plain(plain: list[Mapping[str, Any]]) -> tuple[RegisterValue, ...]:
    """The register values again."""
    return tuple(RegisterValue(TagId(v["tag"]), int(v["raw"]), number_of(v["value"])) for v in plain)


def tag_value_to_plain(value: TagValue) -> dict[str, Any]:
    """Plain data of a value with its quality and times."""
    # A tag that was never confirmed has an age of for ever, which no decimal spells: null.
    confirmed = value.confirmed_at
    return {
        "value": scalar_to_plain(value.value),
        "status": int(value.status),
        "source_ts_ns": value.source_ts_ns,
        "server_ts_ns": value.server_ts_ns,
        "confirmed_at": number_text(confirmed) if math.isfinite(confirmed) else None,
    }


def tag_value_from_plain(plain: Mapping[str, Any]) -> TagValue:
    """The value again."""
    confirmed = plain["confirmed_at"]
    return TagValue(
        value=scalar_from_plain(plain["value"]),
        status=StatusCode(plain["status"]),
        source_ts_ns=plain["source_ts_ns"],
        server_ts_ns=plain["server_ts_ns"],
        confirmed_at=float("-inf") if confirmed is None else float(number_of(confirmed)),
    )


def scalar_to_plain(value: Scalar | None) -> bool | str | dict[str, str] | None:
    """A value that keeps its kind: 1 and 1.0 are not the same evidence."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return {"integer": str(value)}
        case float():
            return {"real": repr(value)}
        case _:
            assert_never(value)


def scalar_from_plain(plain: bool | str | Mapping[str, str] | None) -> Scalar | None:  # noqa: FBT001  # a JSON value
    """The value again, of the same kind."""
    if plain is None or isinstance(plain, bool | str):
        return plain
    return int(plain["integer"]) if "integer" in plain else float(plain["real"])


def numbers_to_plain(numbers: Mapping[str, Fraction]) -> dict[str, str]:
    """Exact numbers as text."""
    return {name: decimal_text(number) for name, number in numbers.items()}


def numbers_from_plain(plain: Mapping[str, str]) -> dict[str, Fraction]:
    """The numbers again."""
    return {name: number_of(text) for name, text in plain.items()}


def _margin_to_plain(margin: Fraction | None, unit: str) -> dict[str, str | None]:
    """Without a unit there is no key for it: records from before margins had one stay as they are."""
    plain = {"margin": None if margin is None else decimal_text(margin)}
    return {**plain, "unit": unit} if unit else plain


def _margin_from_plain(plain: str | None) -> Fraction | None:
    return None if plain is None else number_of(plain)
