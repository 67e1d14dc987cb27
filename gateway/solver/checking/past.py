"""What the checks before this one tell: values one step ago, and since when a condition has held."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.core.ports import CheckRequest, StateInterval, StateSet
from gateway.solver.modules.module import Interval
from gateway.solver.rules.interval import Box, outward
from gateway.solver.rules.ruleset import RuleSet

LONGEST_GAP_STEPS = 10  # a carried set older than this is forgotten
_MICRO = 1_000_000
_ABOUT = Fraction(1, 4)  # of a step: how far "one step ago" may be off
_MOST_EARLIER = 64

Row = tuple[float | None, float | None]  # surely and possibly since, monotonic s; None: not; -inf: ever


@dataclass(frozen=True, slots=True)
class Past:
    """Facts of the past, by tag; `holds` by the key of a `for`: whether it surely and whether it may hold."""

    was: Mapping[str, Interval] = field(default_factory=dict)
    holds: Mapping[str, tuple[bool, bool]] = field(default_factory=dict)
    rows: Mapping[str, Row] = field(default_factory=dict)
    missing: str = ""  # why nobody can decide yet; the state is carried on all the same


def micros_up(value: float) -> Fraction:
    """Seconds rounded up to a microsecond: an exact short decimal."""
    return Fraction(math.ceil(value * _MICRO), _MICRO)


def micros_down(value: float) -> Fraction:
    """Seconds rounded down to a microsecond."""
    return Fraction(math.floor(value * _MICRO), _MICRO)


def usable(rules: RuleSet, request: CheckRequest) -> StateSet | None:
    """The carried set, None where there is none or the gap is too long."""
    carried = request.carried
    if carried is None:
        return None
    gap = request.taken_at - carried.at
    return carried if 0 <= gap <= LONGEST_GAP_STEPS * rules.modules[0].step else None


def recall(
    rules: RuleSet, request: CheckRequest, now: Mapping[str, Interval], facts: Mapping[str, Interval]
) -> Past:
    """The past of one check; `facts` gives what else a condition may ask, by key."""
    if not rules.remembered and not rules.rows:
        return Past()
    carried = usable(rules, request)
    was = _step_ago(rules, request.taken_at, carried)
    missing = next((tag for tag in sorted(rules.remembered) if tag not in was), "")
    box = _box(rules, now, was, facts)
    rows = {name: _row(_holds(rules, name, box), carried, name, request.taken_at) for name in rules.rows}
    why = f"no check about one step ago tells what `{missing}` was then" if missing else ""
    return Past(was, _lasted(rules, rows, request.taken_at), rows, why)


def carried_on(
    rules: RuleSet, request: CheckRequest, now: Mapping[str, Interval], rows: Mapping[str, Row]
) -> StateSet:
    """What to carry into the next check."""
    at = request.taken_at
    state = {tag: StateInterval(low, high) for tag, (low, high) in now.items()}
    if not rules.remembered:
        return StateSet(at=at, intervals=state, since=rows)
    before = usable(rules, request)
    longest = float(rules.modules[0].step * (1 + _ABOUT))
    kept = [e for e in (before.earlier if before is not None else ()) if at - e.at <= longest and e.at < at]
    mine = StateSet(at=at, intervals={tag: state[tag] for tag in rules.remembered})
    return StateSet(at=at, intervals=state, since=rows, earlier=(mine, *kept[: _MOST_EARLIER - 1]))


def _step_ago(rules: RuleSet, at: float, carried: StateSet | None) -> dict[str, Interval]:
    """What the check nearest to one step ago showed; nothing where there was none about then."""
    step = float(rules.modules[0].step)
    near = [
        (abs(at - e.at - step), e)
        for e in (carried.earlier if carried is not None else ())
        if abs(at - e.at - step) <= step * _ABOUT
    ]
    if not near:
        return {}
    _, entry = min(near, key=lambda found: found[0])
    return {tag: (i.low, i.high) for tag, i in entry.intervals.items()}


def _box(
    rules: RuleSet,
    now: Mapping[str, Interval],
    was: Mapping[str, Interval],
    facts: Mapping[str, Interval],
) -> Box:
    step = rules.modules[0].step
    found = {**now, **facts}
    for tag, (low, high) in was.items():
        found[f"prev({tag})"] = low, high
        found[f"rate({tag})"] = (now[tag][0] - high) / step, (now[tag][1] - low) / step
    return {name: outward(*interval) for name, interval in found.items()}


def _holds(rules: RuleSet, name: str, box: Box) -> bool | None:
    """Whether a row's condition holds now: yes, no, or either."""
    yes, no = rules.rows[name]
    if not yes.symbols <= box.keys():
        return None
    if yes.slack(box).holds:
        return True
    return False if no.slack(box).holds else None


def _row(holds: bool | None, carried: StateSet | None, name: str, at: float) -> Row:  # noqa: FBT001
    """After a start or a gap nothing has held yet, and anything may have."""
    surely, possibly = (
        carried.since.get(name, (None, -math.inf)) if carried is not None else (None, -math.inf)
    )
    if holds is False:
        return None, None
    return (
        (at if surely is None else surely) if holds else None,
        at if possibly is None else possibly,
    )


def _lasted(rules: RuleSet, rows: Mapping[str, Row], at: float) -> dict[str, tuple[bool, bool]]:
    found: dict[str, tuple[bool, bool]] = {}
    for timer in rules.timers:
        surely, possibly = rows[timer.row]
        found[timer.key] = (
            surely is not None and micros_down(at - surely) >= timer.seconds,
            possibly is not None and (math.isinf(possibly) or micros_up(at - possibly) >= timer.seconds),
        )
    return found
