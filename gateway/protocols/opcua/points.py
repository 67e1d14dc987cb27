"""Decision points, constraint modules, alarms and the daemon itself as objects with plain variables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from asyncua import ua

from gateway.link.messages import (
    Alarm,
    ConstraintCoverage,
    DecisionView,
    GatewayState,
    ModelState,
    ModuleState,
    OverrideState,
    PointState,
)
from gateway.protocols.opcua.space import Space, moment
from gateway.protocols.opcua.wire import Foreign, sample

_STRING, _BOOLEAN, _DOUBLE = ua.VariantType.String, ua.VariantType.Boolean, ua.VariantType.Double
_INT64, _DATE = ua.VariantType.Int64, ua.VariantType.DateTime


@dataclass(frozen=True, slots=True)
class Field:
    """One variable of an object; `array` for a list of values."""

    name: str
    kind: ua.VariantType
    array: bool = False


POINT_FIELDS = (
    Field("Mode", _STRING),
    Field("Inputs", _STRING, array=True),
    Field("Outputs", _STRING, array=True),
    Field("Model", _STRING),
    Field("InControl", _BOOLEAN),
    Field("Blocked", _STRING),
    Field("Alarm", _STRING),
)
DECISION_FIELDS = (
    Field("DecisionId", _STRING),
    Field("DecidedAt", _DATE),
    Field("RequestedBy", _STRING),
    Field("Proposal", _STRING),
    Field("Setpoint", _STRING),
    Field("WrittenBy", _STRING),
    Field("Verdict", _STRING),
    Field("Reason", _STRING),
    Field("Overridden", _STRING),
    Field("Violated", _STRING, array=True),
    Field("Counterexample", _STRING),
    Field("CounterexampleJson", _STRING),
    Field("Confidence", _DOUBLE),
    Field("LatencyMs", _DOUBLE),
    Field("CertificateDigest", _STRING),
    Field("WriteOutcome", _STRING),
    Field("Generation", _INT64),
    Field("RuleSetDigest", _STRING),
    Field("ModelDigest", _STRING),
)
MODULE_FIELDS = (
    Field("File", _STRING),
    Field("State", _STRING),
    Field("Revision", _INT64),
    Field("Digest", _STRING),
    Field("Priority", _INT64),
    Field("LastAttempt", _DATE),
    Field("LastSuccess", _DATE),
    Field("RefusedBecause", _STRING, array=True),
    Field("Analysis", _STRING, array=True),
    Field("Constraints", _STRING, array=True),
)
MODEL_FIELDS = (
    Field("Bundle", _STRING),
    Field("Revision", _STRING),
    Field("Digest", _STRING),
    Field("State", _STRING),
    Field("Previous", _STRING),
    Field("By", _STRING),
    Field("Since", _DATE),
    Field("Points", _STRING, array=True),
    Field("Problem", _STRING),
    Field("Swaps", _INT64),
    Field("Refused", _INT64),
    Field("LastRefusal", _STRING),
    Field("CostsMs", _STRING),
    Field("Provider", _STRING),
    Field("AskedProvider", _STRING),
    Field("FellBack", _STRING),
    Field("Sessions", _INT64),
    Field("Pages", _INT64),
    Field("PagesFree", _INT64),
    Field("Fragmentation", _DOUBLE),
    Field("Memory", _STRING),
    Field("MemoryCounted", _DATE),
)
OVERRIDE_FIELDS = (
    Field("State", _STRING),
    Field("Reason", _STRING),
    Field("RequestedBy", _STRING),
    Field("ConfirmedBy", _STRING),
    Field("Since", _DATE),
    Field("Until", _DATE),
)
COVERAGE_FIELDS = (
    Field("Judged", _INT64),
    Field("Fired", _INT64),
    Field("Unknown", _INT64),
    Field("LastFired", _DATE),
    Field("LastBound", _DATE),
    Field("LeastMargin", ua.VariantType.Double),
    Field("MarginUnit", ua.VariantType.String),
    Field("Since", _DATE),
)
ALARM_FIELDS = (
    Field("Active", _BOOLEAN),
    Field("Acknowledged", _BOOLEAN),
    Field("Severity", ua.VariantType.UInt16),
    Field("Cause", _STRING),
    Field("Consequence", _STRING),
    Field("Action", _STRING),
    Field("Since", _DATE),
)
GATEWAY_FIELDS = (
    Field("LinkUp", _BOOLEAN),
    Field("Healthy", _BOOLEAN),
    Field("Version", _STRING),
    Field("Started", _DATE),
    Field("Generation", _INT64),
    Field("RuleSetDigest", _STRING),
    Field("ConfigDigest", _STRING),
    Field("WritesStopped", _BOOLEAN),
    Field("Parts", _STRING, array=True),
    Field("Counters", _STRING),
    Field("Inference", _STRING),
)


class Objects:
    """Objects below one folder, by name; every variable they have can be marked Bad at once."""

    def __init__(self, space: Space, folder: str, root: ua.NodeId, fields: tuple[Field, ...]) -> None:
        self._space, self._folder, self._root, self._fields = space, folder, root, fields
        self._nodes: dict[str, dict[str, tuple[ua.NodeId, Field]]] = {}

    @property
    def names(self) -> set[str]:
        """Names of the objects there are."""
        return set(self._nodes)

    def key(self, name: str) -> str:
        """The NodeId's string of an object."""
        return f"{self._folder}/{name}"

    def add(self, name: str) -> bool:
        """Make an object; False when it is there already."""
        if name in self._nodes:
            return False
        node = self._space.object(self.key(name), self._root, name)
        self.attach(name, node)
        return True

    def attach(self, name: str, node: ua.NodeId) -> None:
        """Give an existing object the variables."""
        base = str(node.Identifier)
        self._nodes[name] = {
            field.name: (
                self._space.variable(f"{base}/{field.name}", node, field.name, field.kind, array=field.array),
                field,
            )
            for field in self._fields
        }

    async def put(self, name: str, values: Mapping[str, Any], at_ns: int) -> None:
        """New values; None is `BadNoData`, never null with Good."""
        stamp = moment(at_ns)
        for field_name, value in values.items():
            node, field = self._nodes[name][field_name]
            if value is None:
                await self._space.put(node, sample(code=ua.StatusCodes.BadNoData, source=stamp))
                continue
            variant = ua.Variant(value, field.kind, is_array=field.array)
            await self._space.put(node, sample(variant, 0, stamp, stamp))

    async def put_status(self, name: str, code: int, at_ns: int, only: tuple[Field, ...] = ()) -> None:
        """The same StatusCode for all variables of an object, or for `only` these."""
        chosen = {field.name for field in only}
        bad = sample(code=code, source=moment(at_ns))
        for field_name, (node, _) in self._nodes[name].items():
            if not chosen or field_name in chosen:
                await self._space.put(node, bad)

    async def remove(self, name: str) -> None:
        """Take an object out."""
        if self._nodes.pop(name, None) is not None:
            await self._space.remove(self.key(name))


def point_values(state: PointState) -> dict[str, Any]:
    """What a point's state says."""
    return {
        "Mode": state.mode,
        "Inputs": list(state.inputs),
        "Outputs": list(state.outputs),
        "Model": state.model,
        "InControl": state.in_control,
        "Blocked": state.blocked,
        "Alarm": state.alarm,
    }


def decision_values(view: DecisionView) -> dict[str, Any]:
    """What a decision says, in engineering units as exact decimal text."""
    return {
        "DecisionId": view.id,
        "DecidedAt": moment(view.at_ns).replace(tzinfo=None),
        "RequestedBy": view.requested_by,
        "Proposal": json.dumps(view.proposal),
        "Setpoint": json.dumps(view.setpoints),
        "WrittenBy": view.written_by,
        "Verdict": view.outcome,
        "Reason": view.reason,
        "Overridden": view.overridden,
        "Violated": list(view.violated),
        "Counterexample": view.counterexample,
        "CounterexampleJson": view.counterexample_json,
        "Confidence": view.confidence,
        "LatencyMs": latency_ms(view.timings_ms),
        "CertificateDigest": view.certificate_digest,
        "WriteOutcome": view.write_outcome,
        "Generation": view.generation,
        "RuleSetDigest": view.rule_set_digest,
        "ModelDigest": view.model_digest,
    }


def latency_ms(timings: Mapping[str, float]) -> float | None:
    """The whole time of a decision: `total` where it is measured, else the sum of its stages."""
    if not timings:
        return None
    return float(timings["total"]) if "total" in timings else float(sum(timings.values()))


def module_values(state: ModuleState) -> dict[str, Any]:
    """What a constraint module's state says; a time that never was has no value."""
    return {
        "File": state.file,
        "State": state.state,
        "Revision": state.revision,
        "Digest": state.digest,
        "Priority": state.priority,
        "LastAttempt": _time(state.last_attempt_ns),
        "LastSuccess": _time(state.last_success_ns),
        "RefusedBecause": list(state.refused_because),
        "Analysis": list(state.analysis),
        "Constraints": list(state.constraints),
    }


def model_values(state: ModelState) -> dict[str, Any]:
    """Which bundle serves a model, and what became of others."""
    return {
        "Bundle": state.bundle,
        "Revision": state.revision,
        "Digest": state.digest,
        "State": state.state,
        "Previous": state.previous,
        "By": state.by,
        "Since": _time(state.at_ns),
        "Points": list(state.points),
        "Problem": state.problem,
        "Swaps": state.swaps,
        "Refused": state.refused,
        "LastRefusal": state.last_refusal,
        "CostsMs": json.dumps(state.costs_ms),
        "Provider": state.provider,
        "AskedProvider": state.asked_provider,
        "FellBack": state.fell_back,
        "Sessions": _whole(state.memory.get("sessions")),
        "Pages": _whole(state.memory.get("pages")),
        "PagesFree": _whole(state.memory.get("pages_free")),
        "Fragmentation": state.memory.get("internal_fragmentation"),
        "Memory": json.dumps(state.memory),
        "MemoryCounted": _time(state.counted_ns),
    }


def override_values(state: OverrideState) -> dict[str, Any]:
    """What an override says."""
    return {
        "State": state.state,
        "Reason": state.reason,
        "RequestedBy": state.requested_by,
        "ConfirmedBy": state.confirmed_by,
        "Since": _time(state.since_ns),
        "Until": _time(state.until_ns),
    }


def coverage_values(state: ConstraintCoverage) -> dict[str, Any]:
    """What a constraint has done; a time that never was has no value."""
    return {
        "Judged": state.judged,
        "Fired": state.fired,
        "Unknown": state.unknown,
        "LastFired": _time(state.fired_ns),
        "LastBound": _time(state.bound_ns),
        "LeastMargin": state.least_margin,
        "MarginUnit": state.margin_unit,
        "Since": _time(state.since_ns),
    }


def alarm_values(alarm: Alarm) -> dict[str, Any]:
    """What a standing alarm says."""
    return {
        "Active": alarm.active,
        "Acknowledged": alarm.acknowledged,
        "Severity": alarm.severity,
        "Cause": alarm.cause,
        "Consequence": alarm.consequence,
        "Action": alarm.action,
        "Since": _time(alarm.since_ns),
    }


def gateway_values(state: GatewayState) -> dict[str, Any]:
    """What the daemon says of itself."""
    return {
        "LinkUp": True,
        "Healthy": state.healthy,
        "Version": state.version,
        "Started": _time(state.started_ns),
        "Generation": state.generation,
        "RuleSetDigest": state.rule_set_digest,
        "ConfigDigest": state.config_digest,
        "WritesStopped": state.writes_stopped,
        "Parts": [f"{part}: {text}" for part, text in sorted(state.parts.items())],
        "Counters": json.dumps(dict(sorted(state.counters.items()))),
        "Inference": json.dumps(dict(sorted(state.inference.items()))),
    }


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def _time(utc_ns: int) -> Foreign:
    return moment(utc_ns).replace(tzinfo=None) if utc_ns else None
