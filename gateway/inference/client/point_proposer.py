"""One of several decision points that share a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from gateway.core.clock import Deadline
from gateway.core.decision import Proposal
from gateway.core.ports import Guide
from gateway.core.tag import TagId
from gateway.core.tagstore import Snapshot


class ManyPoints(Protocol):
    """An engine that proposes for several points; each has its own history."""

    async def propose_for(
        self,
        point: str,
        snapshot: Snapshot,
        previous: Mapping[TagId, Fraction],
        deadline: Deadline,
        *,
        urgency: int = 1,
        guide: Guide | None = None,
        most: int = 1,
    ) -> Proposal:
        """See `ModelEngine.propose_for`."""
        ...

    async def propose_aside(
        self,
        point: str,
        snapshot: Snapshot,
        previous: Mapping[TagId, Fraction],
        deadline: Deadline,
        *,
        urgency: int = 1,
        guide: Guide | None = None,
        most: int = 1,
    ) -> Proposal:
        """See `ModelEngine.propose_aside`."""
        ...


@dataclass(frozen=True, slots=True)
class PointProposer:
    """A `Proposer` for one of several decision points that share an engine: each has its own history."""

    engine: ManyPoints
    point: str
    urgency: int = 1  # the point's class

    async def propose(
        self,
        snapshot: Snapshot,
        previous: Mapping[TagId, Fraction],
        deadline: Deadline,
        guide: Guide | None = None,
        most: int = 1,
    ) -> Proposal:
        """See `ModelEngine.propose_for`."""
        return await self.engine.propose_for(
            self.point, snapshot, previous, deadline, urgency=self.urgency, guide=guide, most=most
        )

    async def propose_aside(
        self,
        snapshot: Snapshot,
        previous: Mapping[TagId, Fraction],
        deadline: Deadline,
        guide: Guide | None = None,
        most: int = 1,
    ) -> Proposal:
        """See `ModelEngine.propose_aside`."""
        return await self.engine.propose_aside(
            self.point, snapshot, previous, deadline, urgency=self.urgency, guide=guide, most=most
        )
