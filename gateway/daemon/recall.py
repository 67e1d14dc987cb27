"""After a start: what the recorded decisions of the last minutes say of each point's history."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import structlog

from gateway.core.clock import Clock
from gateway.core.decision import DecisionId, DecisionRecord, PointId
from gateway.core.errors import StorageError
from gateway.core.tagstore import Snapshot
from gateway.inference.client.past import MOST_MOMENTS, Moment
from gateway.pipeline.point import Point
from gateway.storage.reading import AuditedDecision

log = structlog.get_logger().bind(component="models")

_PAGE = 64
_WITHIN_S = 2.0  # readiness does not wait longer
_SPAN_S = 900.0
_CLOCKS_AGREE_S = 1.0

Pasts = dict[str, tuple[Sequence[Moment], int]]


class Recorded(Protocol):
    """The audit log, as far as it is read here."""

    async def recent(
        self, limit: int, point: PointId | None = None, before: DecisionId | None = None
    ) -> list[AuditedDecision]:
        """Decisions, newest first; raises `StorageError`."""
        ...


async def recalled(audit: Recorded, points: Iterable[Point], clock: Clock) -> Pasts:
    """Histories by point, bounded in number and time; a point whose records cannot be read has none."""
    found: Pasts = {}
    try:
        async with asyncio.timeout(_WITHIN_S):
            for point in points:
                moments = await _moments(audit, point.settings.id, clock)
                if moments:
                    found[point.settings.id] = moments, point.settings.request_class.value
    except TimeoutError:
        log.warning("recall_cut_short", within_s=_WITHIN_S, points=len(found))
    except StorageError as exc:
        log.warning("recall_failed", problem=str(exc))
    return found


async def _moments(audit: Recorded, point: PointId, clock: Clock) -> list[Moment]:
    newest_first: list[Moment] = []
    before: DecisionId | None = None
    while len(newest_first) < MOST_MOMENTS:
        page = await audit.recent(_PAGE, point, before)
        for entry in page:
            moment = moment_of(entry.record, clock.monotonic(), clock.utc_ns())
            if moment is not None:
                newest_first.append(moment)
        last = page[-1].record if page else None
        if last is None or len(page) < _PAGE or clock.utc_ns() - last.received_utc_ns > _SPAN_S * 1e9:
            break
        before = last.id
    return newest_first[:MOST_MOMENTS][::-1]


def moment_of(record: DecisionRecord, monotonic: float, utc_ns: int) -> Moment | None:
    """What a model was asked in a decision, or None where none was, or where it cannot be placed in time.

    The monotonic clock of a record means something only until the machine starts anew: both clocks must
    agree on how long ago it was.
    """
    if record.what_if or record.examined is None or record.proposal is None:
        return None
    if not record.proposal.model_digest:  # a person's wish, or the value in force: no model was asked
        return None
    request = record.examined.request
    ago_s = monotonic - request.taken_at
    if ago_s < 0 or abs((utc_ns - record.received_utc_ns) / 1e9 - ago_s) > _CLOCKS_AGREE_S:
        return None
    if not all(request.history.values()):
        return None
    previous = {tag: values[0].value for tag, values in request.history.items()}
    return Moment(request.taken_at, Snapshot(request.taken_at, record.inputs), previous)


def of_model(points: Mapping[PointId, Point], model: str) -> list[Point]:
    """The points a model proposes for, the urgent ones first."""
    mine = (point for point in points.values() if point.settings.model == model)
    return sorted(mine, key=lambda point: point.settings.request_class.value)
