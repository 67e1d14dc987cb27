"""One of several decision points that share a model."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.core.ports import Propose


@dataclass(frozen=True, slots=True)
class PointProposer:
    """A `Proposer` for one of several decision points that share an engine: each has its own history."""

    propose: Propose
    propose_aside: Propose
