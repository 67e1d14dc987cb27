"""A bundle as the pipeline's proposer, in this process: what `ModelEngine` and its worker do elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import msgspec

from gateway.core.clock import Deadline
from gateway.core.decision import Proposal
from gateway.core.guidance import PackedGuidance, Refusals, Unguided
from gateway.core.ports import CheckRequest, Guide, Proposer
from gateway.core.tag import TagDefinition, TagId
from gateway.core.tagstore import Snapshot
from gateway.inference.client.guiding import proposal_of
from gateway.inference.client.values import in_force_text, input_text
from gateway.inference.messages import Answer, Cycle, Propose
from gateway.inference.serving.engine import Engine
from gateway.solver.decoding.permitted_next import NotKnown
from gateway.solver.workers.check import Checks

Guides = Callable[[CheckRequest, tuple[TagId, ...], Refusals], PackedGuidance | Unguided]


@dataclass(frozen=True, slots=True)
class Model:
    """A proposer that can be guided, and asked for lists; with `guides` it is guided."""

    proposer: Proposer
    guides: Guides | None = None
    n_best: int = 1

    @property
    def guided(self) -> bool:
        """Whether it is."""
        return self.guides is not None


def guides_of(checks: Checks) -> Guides:
    """The guidance of a checker in this process."""

    def guides(
        request: CheckRequest, order: tuple[TagId, ...], refused: Refusals
    ) -> PackedGuidance | Unguided:
        found = checks.guidance(request, order, refused)
        if isinstance(found, NotKnown):
            return Unguided(found.because)
        return PackedGuidance(msgspec.json.encode(found))

    return guides


class EngineProposer:
    """One run of a model: one session, a cycle for each snapshot."""

    def __init__(self, engine: Engine, inputs: Sequence[TagId], outputs: Sequence[TagDefinition]) -> None:
        self._engine, self._inputs, self._outputs = engine, tuple(inputs), tuple(outputs)
        self._cycle, self._taken_at = -1, -1.0

    async def propose(
        self,
        snapshot: Snapshot,
        previous: Mapping[TagId, Fraction],
        deadline: Deadline,
        guide: Guide | None = None,
        most: int = 1,
    ) -> Proposal:
        """See `Proposer`; time does not pass here, so guidance is never late."""
        del deadline
        if snapshot.taken_at != self._taken_at:
            self._cycle, self._taken_at = self._cycle + 1, snapshot.taken_at
        in_force = tuple(in_force_text(previous, output.id) for output in self._outputs)
        self._engine.submit(
            0,
            Propose(
                session="run",
                cycle=self._cycle,
                inputs=tuple(input_text(snapshot, tag) for tag in self._inputs),
                in_force=in_force,
                history=(Cycle((), in_force),) if self._cycle == 0 else None,
                guided_until=None if guide is None else math.inf,
                most=most,
            ),
        )
        if guide is not None:
            found = await guide(tuple(output.id for output in self._outputs))
            if isinstance(found, Unguided):
                self._engine.guide(0, b"", found.because)
            else:
                self._engine.guide(0, found, "")
        answer = self._answered()
        return proposal_of(answer, self._outputs, "model", "", guide)

    async def propose_aside(
        self,
        snapshot: Snapshot,
        previous: Mapping[TagId, Fraction],
        deadline: Deadline,
        guide: Guide | None = None,
        most: int = 1,
    ) -> Proposal:
        """Nobody asks what if here."""
        return await self.propose(snapshot, previous, deadline, guide, most)

    def _answered(self) -> Answer:
        while not (found := self._engine.drain()):
            self._engine.step()
        ((_, reply),) = found
        assert isinstance(reply, Answer), reply
        return reply
