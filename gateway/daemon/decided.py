"""Pages of the decisions on record, newest first: what is remembered, then the audit log."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping

from gateway.core.decision import DecisionId, PointId
from gateway.core.tag import TagDefinition, TagId
from gateway.daemon.reporting import Reporter
from gateway.daemon.views import decision_view
from gateway.link.messages import DecisionView
from gateway.storage.audit import AuditLog

_AT_ONCE = 10  # views made before others of the loop have their turn


class Decided:
    """What was decided, by pages. `before` is the last decision of the page before."""

    def __init__(
        self, reporter: Reporter, audit: AuditLog, definitions: Mapping[TagId, TagDefinition]
    ) -> None:
        self._reporter, self._audit, self._definitions = reporter, audit, definitions

    async def page(self, limit: int, point: str, before: str) -> list[DecisionView]:
        """At most `limit`, fewer only where there are no more. Raises `StorageError`."""
        if not before or before in self._reporter.recent:
            views = self._remembered(limit, point, before)
            if len(views) == limit:
                return views
        found = await self._audit.recent(
            limit, PointId(point) if point else None, DecisionId(before) if before else None
        )
        views = []
        for number, audited in enumerate(found, 1):
            views.append(decision_view(audited.record, audited.write_reason, self._definitions))
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return views

    def _remembered(self, limit: int, point: str, before: str) -> list[DecisionView]:
        newest = reversed(self._reporter.recent.values())
        if before:
            newest = itertools.dropwhile(lambda view: view.id != before, newest)
            next(newest)
        return list(itertools.islice((view for view in newest if point in ("", view.point)), limit))
