"""What the backup does wherever it may take over from a proposal: an interval for every segment of a plan.

Which courses there are. The proposal takes effect at some moment e of the effect delay. The backup takes
over at some moment s, from e until the PLC's own patience ends (`LEASE_S` after the end of the proposal's
time): at once where somebody turns the PLC to local, late where nothing is heard of the gateway. Until s
the proposal acts, and before e the values in force: what falls back before e does so from them, as the
decision before has shown. From s on the backup acts without a break, as the PLC's fallback does in every
scan, or in moves of a step each, at s, s + step, s + 2 step and so on, as the gateway's own decisions do.
It goes on until the end of the horizon, where the state lies in the terminal set.

All of them in one. A window of time no longer than a step sees of each such course at most one move of a
step, or a part of one. So where an action may be anywhere in the window follows from its values at the
start, and these moved once. Windows are the steps from acquisition until the end of the proposal's time,
and the steps after that; segments that share a window share its one move, and each reads guards of its own.
As long as the backup need not have begun nothing need have moved, so the interval of each segment holds
that of the one before: what holds at the start of a segment, whatever the backup does in it, holds at the
end of the one before. Courses that begin late lie in the same intervals as those that begin early, so the
check asks of one course only, in which the actions of every segment are anywhere in theirs. That is exact
where all that counts pulls one way: where the latest moment is the worst it asks for nothing more than that
moment does. It goes beyond single courses where a rule is pulled one way early and the other way late, or
by two outputs that move apart.

What of a move is certain. Where no guard is asked, everything (`way`): then the mean of an action over a
segment behind the proposal's time is told apart from where it may be in it. Else a backup has come some way
by the end of a step that it began before, and what it does in it may be done at any moment of the step.
Guards that are not certain on the state, as it moves within a segment and as sensors may show it, count both
ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from gateway.core.tag import TagId
from gateway.solver.checking.condense import LEASE_S, Plan, Segment, guarded
from gateway.solver.checking.way import SLOWEST_RAMP, Ends, Times, Way
from gateway.solver.language.affine import negated
from gateway.solver.modules.module import Move, Ramp, Variable
from gateway.solver.rules.interval import SCALE, Scaled, outward, scaled
from gateway.solver.rules.ruleset import BackupStep, RuleSet
from gateway.solver.rules.steps import FINE

_FINER = FINE // SCALE

_Says = tuple[bool | None, ...]  # None: not certain


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
        latest = plan.hold + LEASE_S
        self.ways = {
            tag: [
                Way.of(mine[0][1] if mine else None, Times(s.start, s.end, latest, plan.step))
                for s in plan.segments
            ]
            for tag, mine in moves.items()
            if not guarded(rules, tag)
        }
        waiting = {tag: mine for tag, mine in moves.items() if tag not in self.ways}
        shares = [self._share(segment) for segment in plan.segments]
        self._moves = [
            {tag: [(i, StepMove.of(m, plan.step, share)) for i, m in mine] for tag, mine in waiting.items()}
            for share in shares
        ]
        self._late = [share < 1 for share in shares]
        self._opens = [s.backup or s.start % plan.step == 0 for s in plan.segments]  # a window
        asked = {tag for guard in self._guards if guard is not None for _, tag in guard.symbols}
        self._errors = {str(v.tag): _error(v) for v in rules.measured if v.tag in asked}

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
        """By symbol `b{k}:TAG`, where each action is while the backup may act; `start` is at acquisition.

        `old` are the values in force. By `c{k}:TAG`, where they may act in a segment as well, and by
        `u{k}:TAG` the mean over a segment.
        """
        values = {str(v.tag): outward(new[v.tag], new[v.tag]) for v in self._rules.actions}
        held = {tag: outward(min(old[tag]), max(old[tag])) for tag in values}
        acting = before = {tag: ends for tag, ends in values.items() if tag not in self.ways}
        state = dict(start)
        says: _Says = tuple(None if guard is not None else True for guard in self._guards)
        found: dict[str, Ends] = {}
        for k, segment in enumerate(self._plan.segments):
            before = acting if self._opens[k] else before
            settled = {tag: ways[k].during(values[tag]) for tag, ways in self.ways.items()}
            # What was certain on the way here is so where it ends.
            says = self._asked(self._within(state, state, {**acting, **settled}), says)
            after = state
            while True:
                moved = self._moved(says, before, k)
                during = {**settled, **{tag: _hull(acting[tag], moved[tag]) for tag in acting}}
                acts = {tag: _hull(e, held[tag]) for tag, e in during.items()} if segment.mixed else during
                if not self._guarded:
                    break
                after = self._later(state, acts, segment.end - segment.start)
                # INVARIANT: as long as guards say no more than `says` the state stays on its way to `after`,
                # and there they say no more than that.
                again = self._still(self._within(state, after, during), says)
                if again == says:
                    break
                says = again
            found.update((f"b{k}:{tag}", ends) for tag, ends in during.items())
            found.update((f"u{k}:{tag}", self.ways[tag][k].mean(values[tag])) for tag in segment.means)
            if segment.mixed:
                found.update((f"c{k}:{tag}", ends) for tag, ends in acts.items())
            acting = {tag: during[tag] if self._late[k] else moved[tag] for tag in acting}
            state = after
        return found

    def _within(
        self, state: Mapping[str, Ends], after: Mapping[str, Ends], acting: Mapping[str, Ends]
    ) -> Mapping[str, Ends]:
        """What guards may read wherever the state is on its way, and however sensors err (`story`)."""
        within = dict(acting)
        for tag, (below, above) in self._errors.items():
            low, high = _hull(state[tag], after[tag])
            within[tag] = low + below, high + above
        return within

    def _asked(self, within: Mapping[str, Ends], says: _Says) -> _Says:
        """By entry whether it applies; what is known is not asked again."""
        return tuple(
            guard.applies(within) if known is None and guard is not None else known
            for guard, known in zip(self._guards, says, strict=True)
        )

    def _still(self, within: Mapping[str, Ends], says: _Says) -> _Says:
        """What is as certain elsewhere."""
        return tuple(
            None if guard is not None and known is not None and not guard.still(within, known) else known
            for guard, known in zip(self._guards, says, strict=True)
        )

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

    def _moved(self, says: _Says, acting: Mapping[str, Ends], k: int) -> dict[str, Ends]:
        """Where each action is after the backup's move in a segment."""
        found: dict[str, Ends] = {}
        for tag, moves in self._moves[k].items():
            ends: list[Ends] = []
            for index, move in moves:
                if says[index] is not False:
                    ends.append(move.after(acting[tag]))
                if says[index]:
                    break
            else:
                ends.append(acting[tag])  # no entry need apply
            found[tag] = _hull(*ends)
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
        if self.still(values, known=True):
            return True
        return False if self.still(values, known=False) else None

    def still(self, values: Mapping[str, Ends], known: bool) -> bool:  # noqa: FBT001  what it says
        """Whether it holds everywhere or, if `known` is False, nowhere."""
        box = {symbol: values[tag] for symbol, tag in self.symbols}
        return (self.yes if known else self.no).slack(box).holds


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


def _error(variable: Variable) -> Ends:
    """How far from a state that is possible what decides may take it to be: twice the sensor's error."""
    if variable.sort != "real":
        return 0, 0
    return outward(-2 * variable.uncertainty, 2 * variable.uncertainty)


def _hull(*intervals: Ends) -> Ends:
    return min(low for low, _ in intervals), max(high for _, high in intervals)
