"""What is said about the gateway, and in which words (S29). Pure: mirror in, plain JSON values out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Any

from gateway.core.quality import StatusCode, severity
from gateway.core.tag import Scalar
from gateway.link.messages import Alarm, DecisionView, ModuleState, OverrideState, PointState
from gateway.web.mirror import Mirror

Json = dict[str, Any]
_SAFE_INTEGER = 2**53 - 1
_MARGIN_PLACES = Decimal("0.001")


def utc_text(ns: int | None) -> str | None:
    """RFC 3339 with milliseconds, None for no time."""
    if not ns:
        return None
    return datetime.fromtimestamp(ns // 1_000_000 / 1000, UTC).isoformat(timespec="milliseconds")


def verdict_sentence(decision: DecisionView) -> str:
    """The outcome in full: relative to which rule set and to its assumptions, never "safe"."""
    rule_set = f"rule set {decision.generation}"
    under = f", {decision.overridden}" if decision.overridden else ""
    match decision.outcome:
        case "permitted":
            return f"permitted by {rule_set} under its assumptions{under}"
        case "repaired":
            return f"repaired: the setpoints let out are permitted by {rule_set} under its assumptions{under}"
        case "refused":
            return f"refused by {rule_set}{under}: {', '.join(decision.violated) or decision.reason}"
        case "undetermined":
            return f"undetermined{under}: {decision.reason}"
        case "rejected":
            return f"rejected, never examined: {decision.reason}"
        case other:
            return f"{other}: {decision.reason}"


def margin_text(exact: str) -> str:
    """A margin to three places, rounded towards less room: -0.0001 is shown as -0.001, never as 0."""
    try:
        value = Fraction(exact)
    except (ValueError, ZeroDivisionError):
        return exact
    scaled = (value * 1000).__floor__()
    return str((Decimal(scaled) * _MARGIN_PLACES).quantize(_MARGIN_PLACES, rounding=ROUND_FLOOR))


def decision_view(decision: DecisionView) -> Json:
    """One decision, margins first; confidence stands apart, among what the model says of itself."""
    return {
        "id": decision.id,
        "margins": [
            {"constraint": name, "margin": margin_text(exact), "exact": exact, "unit": unit}
            for name, exact, unit in decision.margins
        ],
        "sentence": verdict_sentence(decision),
        "outcome": decision.outcome,
        "reason": decision.reason,
        "overridden": decision.overridden,
        "violated": decision.violated,
        "counterexample": decision.counterexample,
        "counterexample_json": decision.counterexample_json,
        "point": decision.point,
        "mode": decision.mode,
        "requested_by": decision.requested_by,
        "at": utc_text(decision.at_ns),
        "inputs": decision.inputs,
        "proposal": decision.proposal,
        "setpoints": decision.setpoints,
        "written_by": decision.written_by,
        "write_outcome": decision.write_outcome,
        "rule_set": {"generation": decision.generation, "digest": decision.rule_set_digest},
        "certificate_digest": decision.certificate_digest,
        "timings_ms": decision.timings_ms,
        "model": {
            "digest": decision.model_digest,
            "confidence": decision.confidence,
            "decoding": decision.decoding,
            "shortlist": decision.shortlist,
        },
    }


def tags_view(mirror: Mirror) -> list[Json]:
    """Every tag with value, quality and times together, in configuration order."""
    views = []
    for tag, state in mirror.tags.items():
        info = mirror.infos.get(tag)
        views.append(
            {
                "id": tag,
                "value": _number(state.value),
                "unit": info.unit if info else "",
                "status": state.status,
                "status_name": status_name(state.status),
                "severity": severity(state.status).name.lower(),
                "source_ts": utc_text(state.source_ts_ns),
                "server_ts": utc_text(state.server_ts_ns),
                "kind": info.kind if info else "",
                "description": info.description if info else "",
                "low": info.low if info else None,
                "high": info.high if info else None,
                "writable": info.writable if info else False,
            }
        )
    return views


def point_view(point: PointState) -> Json:
    """One decision point."""
    return {
        "id": point.id,
        "mode": point.mode,
        "in_control": point.in_control,
        "blocked": point.blocked,
        "alarm": point.alarm,
        "model": point.model,
        "inputs": point.inputs,
        "outputs": point.outputs,
        "last_decision": point.last_decision,
        "guided": point.guided,
        "masked_out": point.drift,
        "repair": point.repair,
        "assumptions": [
            {
                "tag": r.tag,
                "window": r.window,
                "residual": r.residual,
                "outside": r.outside,
                "used_share": r.used_share,
                "missed": r.missed,
            }
            for r in point.residuals
        ],
    }


def module_view(module: ModuleState) -> Json:
    """One constraint module file."""
    return {
        "id": module.id,
        "file": module.file,
        "state": module.state,
        "revision": module.revision,
        "digest": module.digest,
        "priority": module.priority,
        "last_attempt": utc_text(module.last_attempt_ns),
        "last_success": utc_text(module.last_success_ns),
        "refused_because": module.refused_because,
        "constraints": module.constraints,
        "change": module.change,
        "analysis": module.analysis,
    }


def override_view(override: OverrideState) -> Json:
    """A constraint that is overridden, or that somebody asked to override (S25)."""
    return {
        "constraint": override.id,
        "state": override.state,
        "reason": override.reason,
        "requested_by": override.requested_by,
        "confirmed_by": override.confirmed_by,
        "since": utc_text(override.since_ns),
        "until": utc_text(override.until_ns),
    }


def alarm_view(alarm: Alarm) -> Json:
    """One alarm with cause, consequence and action (S28)."""
    return {
        "source": alarm.source,
        "active": alarm.active,
        "acknowledged": alarm.acknowledged,
        "severity": alarm.severity,
        "cause": alarm.cause,
        "consequence": alarm.consequence,
        "action": alarm.action,
        "since": utc_text(alarm.since_ns),
    }


def status_view(mirror: Mirror) -> Json:
    """The gateway as a whole, with its standing alarms."""
    gateway = mirror.gateway
    if gateway is None:
        return {}
    return {
        "id": gateway.id,
        "version": gateway.version,
        "started": utc_text(gateway.started_ns),
        "now": utc_text(mirror.clock.utc_ns()),
        "healthy": gateway.healthy,
        "parts": gateway.parts,
        "rule_set": {"generation": gateway.generation, "digest": gateway.rule_set_digest},
        "writes_stopped": gateway.writes_stopped,
        "config_digest": gateway.config_digest,
        "inference": gateway.inference,
        "counters": gateway.counters,
        "overrides": [override_view(o) for o in mirror.overrides.values()],
        "alarms": [alarm_view(a) for a in mirror.alarms.values()],
    }


def health_view(mirror: Mirror) -> tuple[bool, Json]:
    """Whether all is well, and part by part what is not."""
    parts: Mapping[str, str] = mirror.gateway.parts if mirror.gateway and not mirror.problem else {}
    ok = not mirror.problem and mirror.gateway is not None and mirror.gateway.healthy
    return ok, {"ok": ok, "parts": {"web": "ok", "link": mirror.problem or "ok", **parts}}


def lost_view(mirror: Mirror) -> Json:
    """What every data request gets while there is no link: the reason instead of old values."""
    return {
        "error": "no link to the gateway: nothing shown here would be current",
        "problem": mirror.problem,
        "since": utc_text(mirror.since_ns),
    }


def status_name(code: int) -> str:
    """`Good`, or the number where this gateway has no name for it."""
    try:
        return StatusCode(code).name
    except ValueError:
        return f"0x{code:08X}"


def _number(value: Scalar | None) -> Scalar | None:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _SAFE_INTEGER:
        return str(value)
    return value
