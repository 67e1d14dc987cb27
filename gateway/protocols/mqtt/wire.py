"""Topics and JSON payloads, as pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from gateway.core.quality import StatusCode
from gateway.core.tag import Scalar, TagId, TagValue

JSON_SAFE_INTEGER = 2**53 - 1  # RFC 8259, section 6: larger ones do not survive every reader
_ESCAPES = {"%": "%25", "+": "%2B", "#": "%23", "\0": "%00", "/": "%2F"}


def level(name: str) -> str:
    """`name` as exactly one topic level; what MQTT reserves is percent-escaped."""
    return "".join(_ESCAPES.get(c, c) for c in name)


def tag_topic(prefix: str, tag: TagId) -> str:
    """`TK1.LT101` under `plant/a` is `plant/a/tags/TK1/LT101`."""
    return f"{prefix}/tags/" + "/".join(level(part) for part in tag.split("."))


def point_topic(prefix: str, point: str, what: str) -> str:
    """Topic of a decision point's `verdict` or `state`."""
    return f"{prefix}/points/{level(point)}/{what}"


def status_topic(prefix: str) -> str:
    """Where `online` and `offline` stand, retained."""
    return f"{prefix}/status"


def decide_topic(prefix: str, point: str = "+") -> str:
    """Where decision requests arrive; one level below is the point."""
    return f"{prefix}/decide/{point}"


def utc_text(ns: int | None) -> str | None:
    """RFC 3339 text with all nine digits, None for no time."""
    if ns is None:
        return None
    seconds, fraction = divmod(ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"


def tag_payload(value: TagValue, *, wide: bool = False) -> bytes:
    """Value, quality and both times in one object: they never part.

    `wide` marks a 64-bit integer tag, whose numbers are always JSON strings. A number JSON cannot carry
    (NaN, infinity) becomes null and is never Good.
    """
    number, status = value.value, value.status
    if isinstance(number, float) and not math.isfinite(number):
        number, status = None, value.degraded_to(StatusCode.BadDecodingError).status
    return msgspec.json.encode(
        {
            "value": _wire_scalar(number, wide=wide),
            "status": int(status),
            "status_name": status.name,
            "source_ts": utc_text(value.source_ts_ns),
            "server_ts": utc_text(value.server_ts_ns),
        }
    )


def json_payload(body: Mapping[str, Any] | msgspec.Struct | bytes) -> bytes:
    """Bytes as they are; else JSON in which nanoseconds and integers beyond 2^53 are strings, NaN is null."""
    if isinstance(body, bytes):
        return body
    return msgspec.json.encode(_safe(msgspec.to_builtins(body), key=""))


def json_object(payload: bytes) -> dict[str, Any]:
    """A request's arguments; an empty payload means none. Raises `ValueError` with a sentence."""
    if not payload.strip():
        return {}
    try:
        body = msgspec.json.decode(payload)  # refuses NaN and infinity, which are not JSON
    except (msgspec.DecodeError, RecursionError) as exc:
        msg = f"the payload is not JSON ({exc})"
        raise ValueError(msg) from exc
    if not isinstance(body, dict):
        msg = "the payload is not a JSON object"
        raise ValueError(msg)  # noqa: TRY004 - the caller refuses both in one way
    return cast("dict[str, Any]", body)


def _wire_scalar(value: Scalar | None, *, wide: bool) -> Scalar | None:
    if isinstance(value, int) and not isinstance(value, bool) and (wide or abs(value) > JSON_SAFE_INTEGER):
        return str(value)
    return value


def _safe(value: Any, key: str) -> Any:  # noqa: ANN401 - any JSON value in, any JSON value out
    match value:
        case bool():
            return value
        case int():
            return _wire_scalar(value, wide=key.endswith("_ns"))
        case dict():
            return {k: _safe(v, str(k)) for k, v in value.items()}
        case list() | tuple():
            return [_safe(v, key) for v in value]
        case _:
            return value
