"""A model's list of proposals: the first that is permitted as it stands is taken, before any is repaired.

One decision, one answer, one write: whatever is taken has passed the whole check of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from gateway.core.clock import Clock
from gateway.core.decision import (
    CheckResult,
    PassedOver,
    Permitted,
    Proposal,
    Refused,
    Shortlist,
    Undetermined,
)
from gateway.core.ports import StateSet
from gateway.pipeline.working import Working

Checked = tuple[CheckResult, StateSet | None]
Check = Callable[[Proposal, bool], Awaitable[Checked]]  # whether it may be repaired
# So many looks as long as the slowest must fit into the time left: another one, a repair, which is two or
# more, and what may follow it: a fallback's check, the record and the write.
_SPARE = 6


async def first_permitted(work: Working, ranked: Sequence[Proposal], check: Check, clock: Clock) -> Checked:
    """The result for the first of `ranked`, two or more, that is permitted; else for the first one, repaired.

    The proposal it is about is the working's `proposal`, and its `shortlist` says what became of the others.
    Where nobody can judge a proposal, no other one is looked at.
    """
    counters, passed, slowest_s = work.point.lists, list[PassedOver](), 0.0
    counters.lists += 1
    refused: Checked | None = None
    for rank, proposal in enumerate(ranked, start=1):
        if rank > 1 and work.request.deadline.remaining(clock) < _SPARE * slowest_s:
            break
        started = clock.monotonic()
        work.proposal = proposal
        found = await check(proposal, False)  # noqa: FBT003  a callable has no names
        slowest_s = max(slowest_s, clock.monotonic() - started)
        counters.checked += rank > 1
        verdict = found[0].verdict
        if isinstance(verdict, Permitted) or (rank == 1 and not isinstance(verdict, Refused)):
            counters.used += rank > 1
            work.shortlist = Shortlist(length=len(ranked), rank=rank, passed_over=tuple(passed))
            return found
        if not isinstance(verdict, Refused):
            break
        refused = refused or found
        passed.append(_passed_over(rank, proposal, verdict))
    counters.exhausted += 1
    work.proposal = ranked[0]
    work.shortlist = Shortlist(length=len(ranked), rank=1, passed_over=tuple(passed[1:]))
    repaired = await check(ranked[0], True)  # noqa: FBT003  as above
    late = isinstance(repaired[0].verdict, Undetermined)
    return refused if late and refused is not None else repaired


def _passed_over(rank: int, proposal: Proposal, verdict: Refused) -> PassedOver:
    return PassedOver(
        rank=rank,
        values=proposal.values,
        confidence=proposal.confidence,
        counterexample=verdict.counterexample,
    )
