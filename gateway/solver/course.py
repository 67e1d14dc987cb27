"""What the backup would do once a proposal has had its time: an interval for every segment of a plan.

Guards that are not certain on the state count both ways. The backup may take over at any moment from the
end of the proposal's time until the PLC's own patience ends (`LEASE_S`); until then the proposal may go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from gateway.core.tag import TagId
from gateway.solver.affine import negated
from gateway.solver.condense import LEASE_S, Plan
from gateway.solver.interval import SCALE, outward, scaled
from gateway.solver.module import Hold, Interval, Move, Ramp
from gateway.solver.motion import forward, hull
from gateway.solver.ruleset import BackupStep, RuleSet

SLOWEST_RAMP = Fraction(9, 10)  # a ramp that lost a tenth to jitter and rounding still does


def backup_course(
    rules: RuleSet,
    plan: Plan,
    start: Mapping[str, Interval],
    old: Mapping[str, tuple[Fraction, ...]],
    new: Mapping[TagId, Fraction],
) -> dict[str, Interval]:
    """By symbol `b{k}:TAG`, where each action is while the backup acts; `start` is the state at acquisition.

    `old` are the values in force. The state is followed only where a guard asks for it.
    """
    guarded = any(step.formula is not None for step in rules.backup)
    during = {str(v.tag): hull(*old[v.tag], new[v.tag]) for v in rules.actions}
    acting = {str(v.tag): (new[v.tag], new[v.tag]) for v in rules.actions}
    state = dict(start)
    found: dict[str, Interval] = {}
    for k, segment in enumerate(plan.segments):
        if segment.backup:
            late = segment.start < plan.hold + LEASE_S
            before = dict(acting)
            moved = {tag: _moved(rules, state, before, tag, plan.step) for tag in before}
            during = {tag: _hull(before[tag], moved[tag]) for tag in before}
            acting = during if late else moved
            found |= {f"b{k}:{tag}": ends for tag, ends in during.items()}
        if guarded:
            state = {
                tag: _short(ends)
                for tag, ends in forward(rules, state, during, segment.end - segment.start).items()
            }
    return found


def _short(interval: Interval) -> Interval:
    """Rounded outward: fractions would grow from step to step."""
    low, high = outward(*interval)
    return Fraction(low, SCALE), Fraction(high, SCALE)


def _moved(
    rules: RuleSet,
    state: Mapping[str, Interval],
    acting: Mapping[str, Interval],
    tag: str,
    step: Fraction,
) -> Interval:
    """Where one action is after the backup's next move."""
    ends: list[Interval] = []
    for entry in rules.backup:
        move = entry.entry.moves.get(TagId(tag))
        if move is None:
            continue
        applies = _applies(entry, {**acting, **state})
        if applies is not False:
            ends.append(_after(move, acting[tag], step))
        if applies:
            break
    return _hull(*ends) if ends else acting[tag]


def _applies(entry: BackupStep, values: Mapping[str, Interval]) -> bool | None:
    if entry.formula is None:
        return True
    box = {name: outward(*interval) for name, interval in values.items()}
    box |= {f"prev({name})": ends for name, ends in box.items()}
    if scaled(entry.formula).slack(box).holds:
        return True
    return False if scaled(negated(entry.formula)).slack(box).holds else None


def _after(move: Move, before: Interval, step: Fraction) -> Interval:
    match move:
        case Hold():
            return before
        case Fraction():
            return move, move
        case Ramp(target, rate):
            ends = [_ramped(end, target, rate * step * pace) for end in before for pace in (1, SLOWEST_RAMP)]
            return min(ends), max(ends)


def _ramped(value: Fraction, target: Fraction, most: Fraction) -> Fraction:
    return min(value + most, target) if value <= target else max(value - most, target)


def _hull(*intervals: Interval) -> Interval:
    return min(low for low, _ in intervals), max(high for _, high in intervals)
