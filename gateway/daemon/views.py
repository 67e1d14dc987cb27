"""Turns the domain's values into what travels over the internal port."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction

from gateway.core.decision import (
    Counterexample,
    DecisionRecord,
    Finding,
    Holds,
    Permitted,
    Refused,
    Rejected,
    Repaired,
    Undetermined,
    Unknown,
    Violated,
    outcome_name,
)
from gateway.core.override import phrase
from gateway.core.tag import TagDefinition, TagId, TagKind, TagValue, decimal_text, number_text
from gateway.link.messages import DecisionView, PointState, ResidualState, TagInfo, TagState
from gateway.pipeline.point import Point

_REFUSE_NOTHING = frozenset({"informational", "monitor"})


def tag_state(tag: TagId, value: TagValue) -> TagState:
    """A tag's sample for the Feed."""
    return TagState(
        id=tag,
        value=value.value,
        status=int(value.status),
        source_ts_ns=value.source_ts_ns,
        server_ts_ns=value.server_ts_ns,
    )


def tag_info(definition: TagDefinition) -> TagInfo:
    """A tag's definition for the Feed; limits as doubles, for display only."""
    low, high = definition.eu_range or (None, None)
    return TagInfo(
        id=definition.id,
        kind=definition.kind.value,
        unit=definition.unit,
        description=definition.description,
        low=float(low) if low is not None else None,
        high=float(high) if high is not None else None,
        writable=definition.writable,
    )


def point_state(point: Point, *, in_control: bool, cannot: str) -> PointState:
    """A decision point as nodes, topics and the CLI show it; `cannot`: what forbids to write or arm it."""
    settings = point.settings
    return PointState(
        id=settings.id,
        mode=point.mode.value,
        inputs=list(settings.inputs),
        outputs=list(settings.outputs),
        model=settings.model,
        alarm=point.alarm.state.cause if point.alarm.state.active else "",
        last_decision=point.last_decision,
        in_control=in_control,
        blocked="; ".join(why for why in (point.blocked, cannot) if why),
        residuals=[
            ResidualState(r.tag, r.window, r.residual, r.outside, r.used_share, r.missed)
            for r in point.residuals
        ],
        guided=settings.guided,
        drift={tag: round(mass, 6) for tag, mass in point.drift.items()},
        repair=settings.repair,
    )


def decision_view(
    record: DecisionRecord, why: str, definitions: Mapping[TagId, TagDefinition]
) -> DecisionView:
    """A record in engineering units; `why` is the write outcome's reason."""
    counterexample, reason = _explained(record)
    violated = [f for f in record.findings if isinstance(f, Violated)]
    return DecisionView(
        id=record.id,
        point=record.point,
        mode=record.mode.value,
        requested_by=record.requested_by,
        at_ns=record.received_utc_ns,
        outcome=outcome_name(record.outcome),
        reason="; ".join(part for part in (reason, why) if part),
        proposal={v.tag: _shown(v.tag, v.value, definitions) for v in record.proposal.values}
        if record.proposal
        else {},
        setpoints={v.tag: _shown(v.tag, v.value, definitions) for v in record.written},
        written_by=record.written_by,
        violated=[f"{f.module}/{f.constraint}" for f in violated if f.kind not in _REFUSE_NOTHING],
        reported=[_reported(f) for f in violated if f.kind in _REFUSE_NOTHING],
        counterexample=counterexample.text if counterexample else "",
        counterexample_json=_counterexample_json(counterexample, violated),
        margins=_margins(record.findings),
        generation=record.generation,
        rule_set_digest=record.rule_set_digest,
        model_digest=record.model_digest,
        certificate_digest=record.certificate_digest,
        confidence=record.proposal.confidence if record.proposal else None,
        write_outcome=record.write_outcome.value if record.write_outcome else "",
        timings_ms={name: round(ms, 3) for name, ms in record.timings_ms.items()},
        inputs={tag: _sample_text(value) for tag, value in record.inputs.items()},
        overridden=phrase(record.overrides),
        decoding=record.decoding.said() if record.decoding else "",
        masked_out={t: round(m, 6) for t, m in record.decoding.masked_out.items()} if record.decoding else {},
        shortlist=record.shortlist.said() if record.shortlist else "",
        shadow=[sentence for f in record.shadow if (sentence := _would_have_said(f))],
    )


def rejected_view(point: str, requested_by: str, reason: str, at_ns: int, mode: str) -> DecisionView:
    """An answer that was never examined."""
    return DecisionView(
        id="",
        point=point,
        mode=mode,
        requested_by=requested_by,
        at_ns=at_ns,
        outcome="rejected",
        reason=reason,
        proposal={},
        setpoints={},
        written_by="",
        violated=[],
        counterexample="",
        counterexample_json="",
        margins=[],
        generation=0,
        rule_set_digest="",
        model_digest="",
        certificate_digest="",
        confidence=None,
        write_outcome="",
        timings_ms={},
        inputs={},
    )


def _explained(record: DecisionRecord) -> tuple[Counterexample | None, str]:
    match record.outcome:
        case Repaired(_, counterexample, said):
            return counterexample, said
        case Refused(counterexample):
            return counterexample, ""
        case Undetermined(reason) | Rejected(reason) | Permitted(_, reason):
            return None, reason
        case _:
            return None, ""


def _reported(finding: Violated) -> str:
    """A violated rule that refuses nothing, with its message."""
    name = f"{finding.module}/{finding.constraint}"
    return f"{name}: {finding.message}" if finding.message else name


def _would_have_said(finding: Finding) -> str:
    """What a module in shadow has against a decision; empty where it has nothing."""
    match finding:
        case Violated(kind=kind) if kind in _REFUSE_NOTHING:
            return ""
        case Violated(module, constraint, margin=margin, where=where):
            unit = f" {finding.unit}" if finding.unit else ""
            missed = f", missed by {decimal_text(_thousandth(-margin))}{unit}" if margin is not None else ""
            return f"{module}/{constraint} would have refused it{missed} ({where})"
        case Unknown(module, constraint, reason):
            return f"{module}/{constraint} would not have known: {reason}"
        case _:
            return ""


def _thousandth(value: Fraction) -> Fraction:
    """Rounded up: a miss is never shown smaller than it is."""
    return Fraction(-(-value * 1000 // 1), 1000)


def _counterexample_json(counterexample: Counterexample | None, violated: list[Violated]) -> str:
    if counterexample is None:
        return ""
    named = (counterexample.module, counterexample.constraint)
    where = next((f.where for f in violated if (f.module, f.constraint) == named), "")
    return json.dumps(
        {
            "module": counterexample.module,
            "constraint": counterexample.constraint,
            "where": where,
            "margin": None if counterexample.margin is None else decimal_text(counterexample.margin),
            "unit": counterexample.unit,
            "assignment": {name: decimal_text(v) for name, v in counterexample.assignment.items()},
        }
    )


def _margins(findings: tuple[Finding, ...]) -> list[tuple[str, str, str]]:
    """Margins, nearest limit first; displayed limits round outward by being shown exactly (S29).

    A variable's own range comes last while it holds: a pump at full speed and any switch stand at its end. So
    does a violated rule that refuses nothing.
    `-` is the margin of a violated rule about switches alone: it does not hold, and there is no distance.
    """
    rows: list[tuple[bool, Fraction, str, str, str]] = []
    for finding in findings:
        match finding:
            case Holds(module, constraint, Fraction() as margin, unit):
                last = constraint.endswith(".range")
                rows.append((last, margin, f"{module}/{constraint}", _short(margin), unit))
            case Violated(module, constraint, kind, missed, unit=unit):
                text, last = "-" if missed is None else _short(missed), kind in _REFUSE_NOTHING
                rows.append((last, missed or Fraction(0), f"{module}/{constraint}", text, unit))
            case Holds() | Unknown():
                continue
    return [(name, text, unit) for _, _, name, text, unit in sorted(rows)]


def _short(value: Fraction) -> str:
    """A margin as a decimal people can read; rounds towards less margin."""
    thousandths = value * 10_000 // 1
    return decimal_text(Fraction(thousandths, 10_000))


def _shown(tag: TagId, value: Fraction, definitions: Mapping[TagId, TagDefinition]) -> str:
    definition = definitions.get(tag)  # none of a tag that was configured then and is no more
    if definition is not None and definition.kind is TagKind.BOOLEAN:
        return "true" if value else "false"
    return decimal_text(value)


def _sample_text(value: TagValue) -> str:
    text = "-" if value.value is None else str(value.value)
    if isinstance(value.value, bool):
        text = "true" if value.value else "false"
    elif isinstance(value.value, float):
        text = number_text(value.value)
    return text if value.status.is_plain_good else f"{text} ({value.status.name})"
