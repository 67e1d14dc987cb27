"""Which jobs share the next forward. Pure: it returns a plan, the engine obeys.

The most urgent job leads: class, then decoding before prefill, then the earliest deadline. Jobs that decode
equally many tokens go along, at no cost in waiting; a prefill chunk goes alone, so that whoever decides waits
for one chunk at the most. A job that was passed over `patience` times leads, whatever its class.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that could run now."""

    number: int
    urgency: int  # 0 first
    due: float  # monotonic seconds
    tokens: int  # of its next forward
    prefill: bool
    passed_over: int  # forwards without it since it last ran
    rows: int = 1  # of its next forward


@dataclass(frozen=True, slots=True)
class Policy:
    """Bounds of a plan."""

    widest: int = 8  # rows of a forward
    patience: int = 32  # forwards

    def plan(self, waiting: Collection[Waiting]) -> tuple[int, ...]:
        """Numbers of the jobs of the next forward, the leader first; empty where none waits."""
        if not waiting:
            return ()
        order = sorted(waiting, key=self._rank)
        leader = order[0]
        if leader.prefill:
            return (leader.number,)
        planned, room = [leader.number], self.widest - leader.rows
        for each in order[1:]:
            if not each.prefill and each.tokens == leader.tokens and each.rows <= room:
                planned.append(each.number)
                room -= each.rows
        return tuple(planned)

    def _rank(self, w: Waiting) -> tuple[bool, int, bool, float, int]:
        if w.passed_over >= self.patience:
            return False, -w.passed_over, False, w.due, w.number
        return True, w.urgency, w.prefill, w.due, w.number
