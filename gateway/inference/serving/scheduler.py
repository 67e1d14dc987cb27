"""Which jobs share the next forward. Pure: it returns a plan, the engine obeys.

The most urgent job leads: class, then decoding before prefill, then the earliest deadline. Jobs that decode
equally many tokens go along, at no cost in waiting; a prefill chunk goes alone, so that whoever decides waits
for one chunk at the most. A job that was passed over `patience` times leads out of turn, whatever its class;
where there are many of them they do so one at a time, with `apart` forwards in turn before the next.

Where a window is set, which pays on CUDA only, requests that all stand at their first forward wait for others
to share it: none longer than the window from its arrival, nor into the time that its own work needs.
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
    fresh: bool = False  # it has not run at all
    arrived: float = 0.0  # monotonic seconds
    latest: float = 0.0  # monotonic seconds at which its work has to begin


@dataclass(frozen=True, slots=True)
class Policy:
    """Bounds of a plan."""

    widest: int = 8  # rows of a forward
    patience: int = 32  # forwards
    apart: int = 8  # forwards in turn between two that are led out of turn
    window_s: float = 0.0  # that requests wait for company

    def plan(self, waiting: Collection[Waiting], in_turn: int | None = None) -> tuple[int, ...]:
        """Numbers of the jobs of the next forward, the leader first; empty where none waits.

        `in_turn` counts forwards since one that was led out of turn; None: there was none.
        """
        if not waiting:
            return ()
        patient = in_turn is not None and in_turn < self.apart
        order = sorted(waiting, key=self._in_turn if patient else self._rank)
        leader = order[0]
        if leader.prefill:
            return (leader.number,)
        planned, room = [leader.number], self.widest - leader.rows
        for each in order[1:]:
            if not each.prefill and each.tokens == leader.tokens and each.rows <= room:
                planned.append(each.number)
                room -= each.rows
        return tuple(planned)

    def then_in_turn(self, passed_over: int, in_turn: int | None) -> int | None:
        """`in_turn` after a forward whose leader was passed over so many times."""
        if passed_over >= self.patience:
            return 0
        return None if in_turn is None else in_turn + 1

    def waits_until(self, waiting: Collection[Waiting], now: float) -> float | None:
        """Until which monotonic second what `plan` says waits for company; None: it goes now."""
        if not self.window_s or not waiting:
            return None
        others_go = len(self.plan(waiting)) < len(waiting)  # in the forward after it: nobody idles meanwhile
        full = sum(each.rows for each in waiting) >= self.widest
        if others_go or full or any(each.prefill or not each.fresh for each in waiting):
            return None
        until = min(min(each.arrived + self.window_s, each.latest) for each in waiting)
        return until if until > now else None

    def _rank(self, w: Waiting) -> tuple[bool, int, bool, float, int]:
        if w.passed_over >= self.patience:
            return False, -w.passed_over, False, w.due, w.number
        return self._in_turn(w)

    @staticmethod
    def _in_turn(w: Waiting) -> tuple[bool, int, bool, float, int]:
        return True, w.urgency, w.prefill, w.due, w.number
