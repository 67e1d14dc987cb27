"""What the plant was seen to do, read back from the audit file: readings and values in force, no verdicts."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec

from gateway.core.decision import PointId
from gateway.core.errors import StorageError
from gateway.core.quality import StatusCode
from gateway.core.tag import TagId
from gateway.storage import chain

_OLDER_IN_A_ROW = 100  # a wall clock may have been set back: one older record does not end the walk
_BODIES = "SELECT body FROM audit WHERE kind = 'decision' AND point = ? ORDER BY sequence DESC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One input as a decision saw it; `at` is when its source last confirmed it, UTC seconds."""

    at: float
    value: float | None  # None: no number
    good: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One decision's view of the plant, `at` UTC seconds.

    `in_force` lists an output's values, newest first, each with when it ceased: `at` itself while it is in
    force. Two that are in force at once stand for a write that nobody had confirmed yet.
    """

    at: float
    readings: Mapping[TagId, Reading]
    in_force: Mapping[TagId, tuple[tuple[float, float], ...]]


def moments(path: Path, point: PointId, since_utc_ns: int) -> Iterator[Moment]:
    """Newest first, of decisions on the plant's own inputs; raises `StorageError`."""
    if not path.is_file():
        raise StorageError(f"there is no audit log at `{path}`")
    older = 0
    try:
        with contextlib.closing(chain.open_for_reading(path)) as connection:
            for (body,) in connection.execute(_BODIES, (point,)):
                decision = _decoded(body)
                older = older + 1 if decision.received_utc_ns < since_utc_ns else 0
                if older > _OLDER_IN_A_ROW:
                    return
                if not older and not decision.what_if:
                    yield _moment(decision)
    except sqlite3.Error as exc:
        raise StorageError(f"audit log `{path}` cannot be read: {exc}") from exc


class _Value(msgspec.Struct):
    value: bool | str | dict[str, str] | None
    status: int
    server_ts_ns: int
    confirmed_at: str | None


class _Request(msgspec.Struct):
    taken_at: str
    history: dict[str, list[tuple[str, str]]]


class _Decision(msgspec.Struct):
    received_utc_ns: int
    inputs: dict[str, _Value]
    what_if: bool = False
    examined: _Request | None = None
    fallback: _Request | None = None


class _Body(msgspec.Struct):
    decision: _Decision


_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Body)


def _decoded(body: bytes) -> _Decision:
    try:
        decision: _Decision = _decoder.decode(body).decision
    except msgspec.MsgspecError as exc:
        raise StorageError(f"a stored decision record cannot be read: {exc}") from exc
    return decision


def _moment(decision: _Decision) -> Moment:
    request = decision.examined or decision.fallback
    at = decision.received_utc_ns / 1e9
    taken = None if request is None else float(request.taken_at)
    readings = {TagId(tag): _reading(value, at, taken) for tag, value in decision.inputs.items()}
    history = {} if request is None else request.history
    in_force = {
        TagId(tag): tuple((float(Fraction(value)), at - float(ago)) for value, ago in entries)
        for tag, entries in history.items()
    }
    return Moment(at=at, readings=readings, in_force=in_force)


def _reading(value: _Value, at: float, taken: float | None) -> Reading:
    confirmed = None if value.confirmed_at is None else float(Fraction(value.confirmed_at))
    seen = value.server_ts_ns / 1e9 if confirmed is None or taken is None else at - (taken - confirmed)
    return Reading(at=seen, value=_number(value.value), good=value.status == StatusCode.Good)


def _number(value: bool | str | dict[str, str] | None) -> float | None:  # noqa: FBT001  # a JSON value
    match value:
        case bool():
            return float(value)
        case dict():
            return float(value["integer"] if "integer" in value else value["real"])
        case _:
            return None
