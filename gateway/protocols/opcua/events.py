"""Events: one for every verdict that is not `permitted`, one for every change of a standing alarm."""

from __future__ import annotations

import uuid
from typing import Any

from asyncua import ua
from asyncua.common.event_objects import BaseEvent

from gateway.link.messages import Alarm, DecisionView
from gateway.protocols.opcua.methods import Parameter
from gateway.protocols.opcua.server import GatewayInternalServer
from gateway.protocols.opcua.space import Space, moment

SEVERITIES = {"repaired": 300, "rejected": 400, "refused": 600, "undetermined": 700}
_STRING, _BOOLEAN = ua.VariantType.String, ua.VariantType.Boolean

_VERDICT_FIELDS = (
    Parameter("DecisionId", _STRING, ""),
    Parameter("Verdict", _STRING, ""),
    Parameter("Violated", _STRING, ""),
    Parameter("Counterexample", _STRING, ""),
    Parameter("CertificateDigest", _STRING, ""),
)
_ALARM_FIELDS = (
    Parameter("Active", _BOOLEAN, ""),
    Parameter("Acknowledged", _BOOLEAN, ""),
    Parameter("Cause", _STRING, ""),
    Parameter("Consequence", _STRING, ""),
    Parameter("Action", _STRING, ""),
)


class Events:
    """Sends events through the Server object, where clients listen."""

    def __init__(self, space: Space, iserver: GatewayInternalServer) -> None:
        self._iserver = iserver
        self._verdict_type = space.event_type("Types/VerdictEventType", "VerdictEventType", _VERDICT_FIELDS)
        self._alarm_type = space.event_type("Types/AlarmEventType", "AlarmEventType", _ALARM_FIELDS)
        self.sent = 0

    async def verdict(self, view: DecisionView, source: ua.NodeId) -> None:
        """Nothing for `permitted`."""
        severity = SEVERITIES.get(view.outcome)
        if severity is None:
            return
        why = "; ".join(said for said in (view.counterexample or view.reason, view.overridden) if said)
        message = f"decision point {view.point}: {view.outcome}" + (f": {why}" if why else "")
        event = self._event(self._verdict_type, source, view.point, message, severity, view.at_ns)
        values = (
            view.id,
            view.outcome,
            ", ".join(view.violated),
            view.counterexample,
            view.certificate_digest,
        )
        await self._send(event, _VERDICT_FIELDS, values)

    async def alarm(self, alarm: Alarm, source: ua.NodeId, at_ns: int) -> None:
        """The alarm came, went, or was acknowledged."""
        state = "active" if alarm.active else "no longer active"
        known = ", acknowledged" if alarm.acknowledged else ""
        message = f"alarm {alarm.source} {state}{known}: {alarm.cause}"
        severity = min(max(alarm.severity, 1), 1000)
        event = self._event(self._alarm_type, source, alarm.source, message, severity, at_ns)
        values = (alarm.active, alarm.acknowledged, alarm.cause, alarm.consequence, alarm.action)
        await self._send(event, _ALARM_FIELDS, values)

    def _event(
        self, kind: ua.NodeId, source: ua.NodeId, name: str, message: str, severity: int, at_ns: int
    ) -> BaseEvent:
        event = BaseEvent(source, message, severity)  # type: ignore[no-untyped-call]  # asyncua
        event.EventType, event.SourceName = kind, name  # type: ignore[attr-defined]  # set by add_property
        event.EventId = uuid.uuid4().bytes  # type: ignore[attr-defined]  # as above
        event.Time = event.ReceiveTime = moment(at_ns).replace(tzinfo=None)  # type: ignore[attr-defined]  # as above
        return event

    async def _send(self, event: BaseEvent, fields: tuple[Parameter, ...], values: tuple[Any, ...]) -> None:
        for field, value in zip(fields, values, strict=True):
            event.add_property(field.name, value, field.kind)
        self.sent += 1
        await self._iserver.subscription_service.trigger_event(event)
