"""Guided decoding of a point's model: when guidance is asked for, when another attempt is made, what counts.

Nothing here permits anything: whatever the model decodes, guided or not, is checked in full.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gateway.core.clock import Clock, Deadline
from gateway.core.decision import CheckResult, Counterexample, Proposal, Refused, RegisterValue
from gateway.core.guidance import NOTHING, Decoding, PackedGuidance, Refusal, Unguided
from gateway.core.ports import Checker, CheckRequest, Guide
from gateway.core.tag import TagId
from gateway.pipeline.point import Point
from gateway.pipeline.working import Working

MOST_ATTEMPTS = 3  # of one decision
_NEWEST = 1 / 50  # weight of a decision in a point's drift


@dataclass(frozen=True, slots=True)
class GuidanceStatistics:
    """Counters since start, of proposals for which guidance was asked."""

    guided: int
    unguided: int  # decoded without, because none came in time or nothing could be permitted
    attempts: int  # beyond the first of a decision, each after a refusal
    refused: int  # decisions refused in the end, guided or not


class GuidedDecoding:
    """Guidance for points that want it."""

    def __init__(self, checker: Checker, clock: Clock) -> None:
        self._checker, self._clock = checker, clock
        self._guided = self._unguided = self._attempts = self._refused = 0

    def statistics(self) -> GuidanceStatistics:
        """Counters since start."""
        return GuidanceStatistics(self._guided, self._unguided, self._attempts, self._refused)

    def guide(self, work: Working, request: CheckRequest, deadline: Deadline) -> Guide:
        """What the model may ask; it knows in which order it decodes. `request` tells the premises."""
        if work.point.decodes and not work.refused:
            # Guidance is what the model waits for: the checker begins before the model is asked.
            self._checker.prepare(request, work.point.decodes)

        async def asked(order: tuple[TagId, ...]) -> PackedGuidance | Unguided:
            work.point.decodes = order
            return await self._checker.guidance(request, order, work.refused, deadline)

        return asked

    def took(self, point: Point, proposal: Proposal, attempts: int) -> Decoding | None:
        """How a model's proposal was decoded, counted, and what was masked out; None where nobody tells."""
        for tag, mass in proposal.masked_out.items():
            before = point.drift.get(tag, mass)
            point.drift[tag] = before + (mass - before) * _NEWEST
        if proposal.decoding is None:
            return None
        found = replace(proposal.decoding, attempts=attempts)
        self._guided += found.guided
        self._unguided += not found.guided
        self._attempts += attempts > 1
        return found

    def again(self, work: Working, result: CheckResult, attempts: int, spent_s: float, share: float) -> bool:
        """Whether a refused block of the model leaves time for another one; what was refused is noted.

        An attempt that took `spent_s` has to fit into a model's `share` of the time that is left.
        """
        if not isinstance(result.verdict, Refused) or work.proposal is None or work.decoding is None:
            return False
        cause = result.verdict.counterexample
        left_s = work.request.deadline.remaining(self._clock) * share
        hopeless = work.decoding.because == NOTHING
        if hopeless or attempts >= MOST_ATTEMPTS or left_s < spent_s:
            self._refused += 1
            return False
        others = work.shortlist.passed_over if work.shortlist is not None else ()
        work.refused += (
            _refusal(work.proposal.values, cause),
            *(_refusal(other.values, other.counterexample) for other in others),
        )
        return True


def _refusal(values: tuple[RegisterValue, ...], cause: Counterexample) -> Refusal:
    return Refusal(
        block=tuple(value.raw for value in values),
        module=cause.module,
        constraint=cause.constraint,
        witness=cause.assignment,
    )
