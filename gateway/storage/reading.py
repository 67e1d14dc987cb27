"""Queries over the audit file. Each takes a connection that cannot write and returns frozen values."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gateway.core.decision import DecisionId, DecisionRecord, PointId, WriteOutcome
from gateway.storage.codec import parsed, record_from_plain

_PAGE_LIMIT = 10_000
_DECISIONS = """
SELECT d.sequence, d.body, d.digest,
  (SELECT o.body FROM audit o WHERE o.kind = 'outcome' AND o.decision = d.decision
   ORDER BY o.sequence DESC LIMIT 1)
FROM audit d WHERE d.kind = 'decision'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedDecision:
    """A record with what became of its write; `digest` anchors it in the chain."""

    sequence: int
    digest: str
    record: DecisionRecord
    write_reason: str  # why the write was not confirmed; empty when it was, or was never tried


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """One act: who did what, when (UTC ns)."""

    sequence: int
    kind: str
    who: str
    what: Mapping[str, str]
    point: PointId | None
    at_utc_ns: int


def recent(
    connection: sqlite3.Connection, limit: int, point: PointId | None, before: DecisionId | None
) -> list[AuditedDecision]:
    """Newest first; nothing when `before` names a decision the log does not hold."""
    wanted = {"point": point, "before": before, "limit": max(0, min(limit, _PAGE_LIMIT))}
    query = _DECISIONS
    if point is not None:
        query += " AND d.point = :point"
    if before is not None:
        query += (
            " AND d.sequence < (SELECT sequence FROM audit WHERE kind = 'decision' AND decision = :before)"
        )
    query += " ORDER BY d.sequence DESC LIMIT :limit"
    return [_decision(*found) for found in connection.execute(query, wanted)]


def one(connection: sqlite3.Connection, decision: DecisionId) -> AuditedDecision | None:
    """The decision of that id, or None."""
    found = connection.execute(_DECISIONS + " AND d.decision = ?", (decision,)).fetchone()
    return None if found is None else _decision(*found)


def events(connection: sqlite3.Connection, limit: int, before: int | None) -> list[AuditEvent]:
    """Newest first."""
    rows = connection.execute(
        "SELECT sequence, point, body FROM audit WHERE kind = 'event' AND sequence < ?"
        " ORDER BY sequence DESC LIMIT ?",
        (2**62 if before is None else before, max(0, min(limit, _PAGE_LIMIT))),
    )
    return [_event(*found) for found in rows]


def _decision(sequence: int, body: bytes, digest: bytes, outcome: bytes | None) -> AuditedDecision:
    record = record_from_plain(parsed(body)["decision"])
    reason = ""
    if outcome is not None:
        said: dict[str, Any] = parsed(outcome)["outcome"]
        record = replace(record, write_outcome=WriteOutcome(said["write_outcome"]))
        reason = said["reason"]
    return AuditedDecision(sequence=sequence, digest=digest.hex(), record=record, write_reason=reason)


def _event(sequence: int, point: str | None, body: bytes) -> AuditEvent:
    said: dict[str, Any] = parsed(body)["event"]
    return AuditEvent(
        sequence=sequence,
        kind=said["kind"],
        who=said["who"],
        what=said["what"],
        point=None if point is None else PointId(point),
        at_utc_ns=said["at_utc_ns"],
    )
