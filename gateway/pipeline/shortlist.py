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
More = Callable[[], Awaitable[Sequence[Proposal]]]  # the model's next best, the likeliest first
# So many looks as long as the slowest must fit into the time left: another one, a repair, which is two or
# more, and what may follow it: a fallback's check, the record and the write.
_SPARE = 6


async def first_permitted(work: Working, first: Proposal, more: More, check: Check, clock: Clock) -> Checked:
    """The result for `first`, or for the first of `more` that is permitted; else for `first`, repaired.

    The proposal it is about is the working's `proposal`, and its `shortlist` says what became of the others.
    The model is asked for them only where the first is refused and time is left. Where nobody can judge a
    proposal, no other one is looked at.
    """
    counters, slowest_s = work.point.lists, 0.0

    async def look(proposal: Proposal) -> Checked:
        nonlocal slowest_s
        started = clock.monotonic()
        work.proposal = proposal
        found = await check(proposal, False)  # noqa: FBT003  a callable has no names
        slowest_s = max(slowest_s, clock.monotonic() - started)
        return found

    def time_left() -> bool:
        return work.request.deadline.remaining(clock) >= _SPARE * slowest_s

    refused = await look(first)
    verdict = refused[0].verdict
    if not isinstance(verdict, Refused):
        return refused
    passed = [_passed_over(1, first, verdict)]
    others = await more() if time_left() else ()
    counters.lists += bool(others)
    for rank, proposal in enumerate(others, start=2):
        if not time_left():
            break
        found = await look(proposal)
        counters.checked += 1
        verdict = found[0].verdict
        if isinstance(verdict, Permitted):
            counters.used += 1
            work.shortlist = Shortlist(length=1 + len(others), rank=rank, passed_over=tuple(passed))
            return found
        if not isinstance(verdict, Refused):
            break
        passed.append(_passed_over(rank, proposal, verdict))
    counters.exhausted += bool(others)
    work.proposal = first
    if others:
        work.shortlist = Shortlist(length=1 + len(others), rank=1, passed_over=tuple(passed[1:]))
    repaired = await check(first, True)  # noqa: FBT003  as above
    return refused if isinstance(repaired[0].verdict, Undetermined) else repaired


def _passed_over(rank: int, proposal: Proposal, verdict: Refused) -> PassedOver:
    return PassedOver(
        rank=rank,
        values=proposal.values,
        confidence=proposal.confidence,
        counterexample=verdict.counterexample,
    )
