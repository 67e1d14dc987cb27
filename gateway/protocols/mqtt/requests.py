"""Decision requests over MQTT: which may be asked at all (S20). Pure; the bridge does the talking."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from gateway.protocols.mqtt.wire import json_object

_MAX_PAYLOAD_BYTES = 64 * 1024
_MAX_DEADLINE_MS = 60_000.0
_REMEMBERED = 4096  # requests; with fewer than that in `_DUPLICATE_WINDOW_S` no duplicate is missed
_DUPLICATE_WINDOW_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A message on a decide topic as it arrived. `received_at` is monotonic seconds."""

    point: str
    payload: bytes
    retained: bool
    duplicate: bool
    response_topic: str | None
    correlation: bytes
    user_properties: tuple[tuple[str, str], ...]
    received_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideRequest:
    """A request that may be put to the pipeline; its deadline runs from `received_at`."""

    point: str
    args: dict[str, Any]
    requested_by: str
    deadline_ms: float
    received_at: float
    response_topic: str
    correlation: bytes


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """Never examined; `response_topic` None: there is nobody to tell."""

    reason: str
    point: str
    response_topic: str | None
    correlation: bytes


class RequestDesk:
    """Says of each arrival whether it may be asked. Remembers what it let in, to know a duplicate."""

    def __init__(self, prefix: str, *, accept: bool, default_deadline_ms: float) -> None:
        self._prefix, self._accept, self._default_deadline_ms = prefix, accept, default_deadline_ms
        self._seen: OrderedDict[tuple[str, str, bytes], float] = OrderedDict()

    def examine(self, arrival: Arrival, *, now: float, in_flight: int, capacity: int) -> Decided:
        """The request to ask, or why it is not asked."""
        answer_to = arrival.response_topic
        if answer_to is not None and not self._may_answer_to(answer_to):
            return RequestRefused("the response topic is not usable", arrival.point, None, b"")
        reason = self._reason_against(arrival, in_flight, capacity)
        args: dict[str, Any] = {}
        deadline_ms = 0.0
        if not reason:
            try:
                deadline_ms = self._deadline_ms(arrival)
                args = json_object(arrival.payload)
                reason = _deadline_in(args)
            except ValueError as exc:
                reason = str(exc)
        if not reason and now - arrival.received_at >= deadline_ms / 1000:
            reason = f"expired: its deadline of {deadline_ms:g} ms had passed before it could be examined"
        if not reason and self._is_repeated(arrival, now):
            reason = "duplicate: this correlation data was used before"
        if reason or answer_to is None:
            return RequestRefused(reason, arrival.point, answer_to, arrival.correlation)
        return DecideRequest(
            point=arrival.point,
            args=args,
            requested_by=self._requested_by(arrival),
            deadline_ms=deadline_ms,
            received_at=arrival.received_at,
            response_topic=answer_to,
            correlation=arrival.correlation,
        )

    def _reason_against(self, arrival: Arrival, in_flight: int, capacity: int) -> str:
        checks = (
            (arrival.retained, "retained: an old command that arrives late is a hazard"),
            (arrival.duplicate, "duplicate: the message is marked as a repeated delivery"),
            (not self._accept, "this topic is read-only: the gateway does not accept requests over MQTT"),
            (arrival.response_topic is None, "no response topic: nobody would learn the verdict"),
            (len(arrival.payload) > _MAX_PAYLOAD_BYTES, f"the payload exceeds {_MAX_PAYLOAD_BYTES} bytes"),
            (in_flight >= capacity, f"{capacity} requests are already in flight"),
        )
        return next((reason for applies, reason in checks if applies), "")

    def _deadline_ms(self, arrival: Arrival) -> float:
        texts = [value for key, value in arrival.user_properties if key == "deadline_ms"]
        if not texts:
            return self._default_deadline_ms
        try:
            deadline_ms = float(texts[0])
        except ValueError:
            deadline_ms = float("nan")
        if len(texts) > 1 or not deadline_ms <= _MAX_DEADLINE_MS:
            msg = f"deadline_ms: `{texts[0][:32]}` is not one number up to {_MAX_DEADLINE_MS:g}"
            raise ValueError(msg)
        if deadline_ms <= 0:
            msg = f"expired: a deadline of {deadline_ms:g} ms has passed"
            raise ValueError(msg)
        return deadline_ms

    def _is_repeated(self, arrival: Arrival, now: float) -> bool:
        """True for a request seen before; remembers it. Without correlation data nobody can tell."""
        if not arrival.correlation:
            return False
        while self._seen and now - next(iter(self._seen.values())) > _DUPLICATE_WINDOW_S:
            self._seen.popitem(last=False)
        key = (arrival.point, arrival.response_topic or "", arrival.correlation)
        if key in self._seen:
            return True
        self._seen[key] = now
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return False

    def _may_answer_to(self, topic: str) -> bool:
        """No wildcard, no broker topic, and nothing the gateway itself publishes or listens to."""
        ours = ("tags", "points", "status", "decide")
        return not (
            not topic
            or set(topic) & set("+#\0")
            or topic.startswith("$")
            or any(topic == f"{self._prefix}/{t}" or topic.startswith(f"{self._prefix}/{t}/") for t in ours)
        )

    @staticmethod
    def _requested_by(arrival: Arrival) -> str:
        """MQTT does not say who published; a name in the user properties is a claim and is shown as one."""
        names = [value for key, value in arrival.user_properties if key == "user"]
        claimed = "".join(c for c in names[0] if c.isprintable())[:64] if names else ""
        return f"mqtt (says `{claimed}`)" if claimed else "mqtt"


def _deadline_in(args: dict[str, Any]) -> str:
    return (
        "deadline_ms is a user property of the message, not of its payload" if "deadline_ms" in args else ""
    )


Decided = DecideRequest | RequestRefused
