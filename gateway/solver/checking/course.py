"""What the backup would do once a proposal has had its time: an interval for every segment of a plan.

Guards that are not certain on the state count both ways. The backup may take over at any moment from the
end of the proposal's time until the PLC's own patience ends (`LEASE_S`); until then the proposal may go on.
Once it acts it goes on without a break, as the PLC's fallback does in every scan, or in moves of a step each,
the first of them at once, as the gateway's own decisions do. So it has come some way by the end of a step in
which it began, unless what it does depends on a guard: that may be read at any moment of the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from gateway.core.tag import TagId
from gateway.solver.checking.condense import LEASE_S, Plan, Segment
from gateway.solver.language.affine import negated
from gateway.solver.modules.module import Move, Ramp
from gateway.solver.rules.interval import SCALE, Scaled, outward, scaled
from gateway.solver.rules.ruleset import BackupStep, RuleSet
from gateway.solver.rules.steps import FINE

SLOWEST_RAMP = Fraction(9, 10)  # a ramp that lost a tenth to jitter and rounding still does

_FINER = FINE // SCALE

Ends = tuple[int, int]  # in units of 1 / `SCALE`


class Course:
    """The backup's courses over one plan; the state is followed only where a guard asks for it."""

    def __init__(self, rules: RuleSet, plan: Plan) -> None:
        self._rules, self._plan = rules, plan
        self._guards = [None if step.formula is None else _Guard.of(step) for step in rules.backup]
        self._guarded = any(guard is not None for guard in self._guards)
        moves = {
            str(v.tag): [
                (index, step.entry.moves[v.tag])
                for index, step in enumerate(rules.backup)
                if v.tag in step.entry.moves
            ]
            for v in rules.actions
        }
        self._waits = {
            tag: any(self._guards[index] is not None for index, _ in mine) for tag, mine in moves.items()
        }
        shares = [self._share(segment) for segment in plan.segments]
        self._moves = [
            {tag: [(i, StepMove.of(m, plan.step, share)) for i, m in mine] for tag, mine in moves.items()}
            for share in shares
        ]
        self._late = [share < 1 for share in shares]
        self._idle = [share <= 0 for share in shares]

    def _share(self, segment: Segment) -> Fraction:
        """Of a step's move, the share that is certainly done by the end of a segment; 0: perhaps nothing."""
        within = (segment.end - self._plan.hold - LEASE_S) / self._plan.step
        return max(Fraction(0), min(Fraction(1), within))

    def ends(
        self,
        start: Mapping[str, Ends],
        old: Mapping[str, tuple[Fraction, ...]],
        new: Mapping[TagId, Fraction],
    ) -> dict[str, Ends]:
        """By symbol `b{k}:TAG`, where each action is while the backup acts; `start` is at acquisition.

        `old` are the values in force.
        """
        acting = {tag: outward(new[TagId(tag)], new[TagId(tag)]) for tag in self._waits}
        during = {tag: _hull(ends, outward(min(old[tag]), max(old[tag]))) for tag, ends in acting.items()}
        state = dict(start)
        found: dict[str, Ends] = {}
        for k, segment in enumerate(self._plan.segments):
            if segment.backup:
                moved = self._moved(state, acting, k)
                during = {tag: _hull(acting[tag], moved[tag]) for tag in acting}
                acting = {
                    tag: during[tag] if self._idle[k] or (self._late[k] and waits) else moved[tag]
                    for tag, waits in self._waits.items()
                }
                found.update((f"b{k}:{tag}", ends) for tag, ends in during.items())
            if self._guarded and k + 1 < len(self._plan.segments):
                state = self._later(state, during, segment.end - segment.start)
        return found

    def unguarded(self, tag: str) -> list[tuple[int, StepMove, bool]] | None:
        """By segment of the backup: its number, an output's move, and whether perhaps nothing of it is done.

        None where the move depends on a guard.
        """
        found: list[tuple[int, StepMove, bool]] = []
        for k, segment in enumerate(self._plan.segments):
            if segment.backup:
                if not self._moves[k].get(tag):
                    return None
                index, move = self._moves[k][tag][0]
                if self._guards[index] is not None:
                    return None
                found.append((k, move, self._idle[k] or (self._late[k] and self._waits[tag])))
        return found

    def _later(
        self, state: Mapping[str, Ends], acting: Mapping[str, Ends], seconds: Fraction
    ) -> dict[str, Ends]:
        """The state some time later, rounded outward: numbers would grow from step to step."""
        after = self._rules.steps.forward(
            {tag: (low * _FINER, high * _FINER) for tag, (low, high) in state.items()},
            {tag: (low * _FINER, high * _FINER) for tag, (low, high) in acting.items()},
            seconds,
        )
        return {tag: (low // _FINER, -(-high // _FINER)) for tag, (low, high) in after.items()}

    def _moved(self, state: Mapping[str, Ends], acting: Mapping[str, Ends], k: int) -> dict[str, Ends]:
        """Where each action is after the backup's move in a segment."""
        values = {**acting, **state}
        known: dict[int, bool | None] = {}
        found: dict[str, Ends] = {}
        for tag, moves in self._moves[k].items():
            ends: list[Ends] = []
            for index, move in moves:
                if index not in known:
                    guard = self._guards[index]
                    known[index] = True if guard is None else guard.applies(values)
                if known[index] is not False:
                    ends.append(move.after(acting[tag]))
                if known[index]:
                    break
            found[tag] = _hull(*ends) if ends else acting[tag]
        return found


@dataclass(frozen=True, slots=True)
class _Guard:
    """A condition of the backup and its opposite; `symbols` with the tag that tells each."""

    yes: Scaled
    no: Scaled
    symbols: tuple[tuple[str, str], ...]

    @staticmethod
    def of(step: BackupStep) -> _Guard:
        assert step.formula is not None, "without a guard there is nothing to ask"  # noqa: S101
        yes, no = scaled(step.formula), scaled(negated(step.formula))
        return _Guard(yes, no, tuple((s, s.removeprefix("prev(").removesuffix(")")) for s in yes.symbols))

    def applies(self, values: Mapping[str, Ends]) -> bool | None:
        """Whether it holds everywhere: yes, no, or not certain."""
        box = {symbol: values[tag] for symbol, tag in self.symbols}
        if self.yes.slack(box).holds:
            return True
        return False if self.no.slack(box).holds else None


@dataclass(frozen=True, slots=True)
class StepMove:
    """A move of one step: to a target, so far at most and at least; each as the whole numbers around it."""

    target: Ends | None  # None: stay
    paces: tuple[Ends, ...] = ()  # none: at once

    @staticmethod
    def of(move: Move, step: Fraction, share: Fraction) -> StepMove:
        """A move for which at least a share of the step was time."""
        match move:
            case Ramp(target, rate):
                far = (rate * step * pace for pace in (Fraction(1), SLOWEST_RAMP * share))
                return StepMove(outward(target, target), tuple(outward(most, most) for most in far))
            case Fraction():
                return StepMove(outward(move, move))
            case _:
                return StepMove(None)

    def after(self, before: Ends) -> Ends:
        """Where the action may be after the move."""
        if self.target is None:
            return before
        if not self.paces:
            return self.target
        return _hull(*(_ramped(end, self.target, most) for end in before for most in self.paces))


def _ramped(value: int, target: Ends, most: Ends) -> Ends:
    least, greatest = target
    if value <= least:
        return min(value + most[0], least), min(value + most[1], greatest)
    return max(value - most[1], least), max(value - most[0], greatest)


def _hull(*intervals: Ends) -> Ends:
    return min(low for low, _ in intervals), max(high for _, high in intervals)
