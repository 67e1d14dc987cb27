"""What the checks could assume, of many decisions at once: `predict.observe` in floats (S2, S3, S4, S15)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from gateway.core.quality import StatusCode
from gateway.solver.backtest.evidence import Bools, Evidence, Floats
from gateway.solver.backtest.motions import MICRO, Motions, floored
from gateway.solver.backtest.spans import Span, exactly, hull, near, outward
from gateway.solver.checking.motion import TOLD_S
from gateway.solver.checking.past import LONGEST_GAP_STEPS
from gateway.solver.modules.module import Variable
from gateway.solver.rules.ruleset import RuleSet

NEAR_EDGE = 1e-9  # of a range: nearer than that the exact judge is asked
_EVER = 1e9  # seconds: the age of what never came


@dataclass(slots=True)
class Reasons:
    """Why nobody could judge a decision: by row, an index into `texts`; -1: nothing was found."""

    texts: list[str]
    of: np.ndarray[tuple[int], np.dtype[np.int64]]
    doubtful: Bools  # within rounding of a limit: to be asked of the exact judge

    def add(self, rows: Bools, text: str) -> None:
        """These cannot be judged, unless something was found before."""
        rows = rows & (self.of < 0)
        if rows.any():
            if text not in self.texts:
                self.texts.append(text)
            self.of[rows] = self.texts.index(text)

    def doubt(self, rows: Bools) -> None:
        """Nobody can tell in floats."""
        self.doubtful |= rows


@dataclass(frozen=True, slots=True)
class Premises:
    """By tag. `facts`: `good(TAG)` and `age(TAG)`."""

    now: Mapping[str, Span]
    old: Mapping[str, Span]
    facts: Mapping[str, Span]
    reasons: Reasons


def observe(rules: RuleSet, motions: Motions, seen: Evidence) -> Premises:
    """The premises of every decision, and why some have none."""
    count = len(seen)
    reasons = Reasons([], np.full(count, -1), np.zeros(count, dtype=np.bool_))
    old = {str(v.tag): _in_force(str(v.tag), seen, reasons) for v in rules.actions}
    for v in rules.actions:
        reasons.add(np.isnan(_column(seen.proposed, v.tag, count)), f"it has no value for `{v.tag}`")
    bad = {str(v.tag): _unusable(rules, v, seen, reasons) for v in rules.reported}
    ages = {tag: _micros_up(np.where(b, 0.0, _age(seen, tag))) for tag, b in bad.items()}
    skew = _skew(rules, seen, bad)
    measured = {str(v.tag): _known(rules, v, seen, bad, ages, skew, reasons) for v in rules.measured}
    fresh = dict(measured)
    for tag in rules.forms:
        if tag in ages:
            fresh[tag] = motions.since(measured, seen.in_force, ages[tag])[tag]
            reasons.doubt(ages[tag] > float(TOLD_S))
            for other in rules.steps.upstream[tag] & ages.keys():
                reasons.doubt(ages[other] < ages[tag])  # read later: how far it was off then is asked exactly
    now = _met(fresh, _predicted(rules, motions, seen, reasons), reasons)
    facts: dict[str, Span] = {}
    for tag in rules.asked:
        age = _age(seen, tag)
        known = np.isfinite(age)
        ends = floored(np.where(known, age, 0.0)), _micros_up(np.where(known, age, 0.0))
        facts[f"age({tag})"] = Span(*(np.where(known, end, _EVER) for end in ends))
        facts[f"good({tag})"] = exactly((~bad[tag]).astype(np.float64))
    return Premises({tag: outward(span) for tag, span in now.items()}, old, facts, reasons)


def _column(columns: Mapping[str, Floats], tag: str, count: int) -> Floats:
    found = columns.get(tag)
    return np.full(count, np.nan) if found is None else found


def _age(seen: Evidence, tag: str) -> Floats:
    found = seen.confirmed_at.get(tag)
    return np.full(len(seen), np.inf) if found is None else np.maximum(0.0, seen.taken_at - found)


def _micros_up(values: Floats) -> Floats:
    """As `past.micros_up`, whose float product this is."""
    found: Floats = np.ceil(values * MICRO) / MICRO
    return found


def _in_force(tag: str, seen: Evidence, reasons: Reasons) -> Span:
    """Least and greatest of the values that may be in force."""
    listed = seen.in_force.get(tag)
    if listed is None:
        low = high = np.full(len(seen), np.inf)
    else:
        low, high = listed.ends(listed.ago <= 0)
    reasons.add(~np.isfinite(low), f"the value in force of `{tag}` is not known")
    known = np.isfinite(low)
    low, high = np.where(known, low, 0.0), np.where(known, high, 0.0)
    return hull(exactly(low), exactly(high))


def _unusable(rules: RuleSet, variable: Variable, seen: Evidence, reasons: Reasons) -> Bools:
    """Where a tolerated sample is not to be used; of the others, why nothing can be judged."""
    tag, count = str(variable.tag), len(seen)
    status = seen.status.get(tag)
    if status is None:
        status = np.full(count, int(StatusCode.Good))
    missing = np.isnan(_column(seen.value, tag, count))
    accepted = _accepted(variable, status)
    stamp = seen.confirmed_at.get(tag)
    age = np.full(count, np.inf) if stamp is None else seen.taken_at - stamp
    old = np.zeros(count, dtype=np.bool_)
    if variable.max_age is not None:
        old = age > rules.steps.sensors[variable.tag].max_age
    never = ~np.isfinite(age)
    bad = missing | ~accepted | never | old
    if variable.tag in rules.tolerated:
        return bad
    reasons.add(missing, f"`{tag}` has no value")
    reasons.add(~accepted, f"`{tag}` is not Good")
    reasons.add(never, f"`{tag}` was never confirmed by its source")
    reasons.add(old, f"`{tag}` is too old")
    return bad


def _accepted(variable: Variable, status: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Bools:
    found = np.zeros(len(status), dtype=np.bool_)
    for code in np.unique(status):
        known = StatusCode(int(code))
        if known.is_plain_good or known.name in variable.accept_quality:
            found |= status == code
    return found


def _skew(rules: RuleSet, seen: Evidence, bad: Mapping[str, Bools]) -> Floats:
    """Between the oldest and the newest usable sample."""
    count = len(seen)
    least, most = np.full(count, np.inf), np.full(count, -np.inf)
    for v in rules.reported:
        if v.tag not in seen.confirmed_at:
            continue
        stamp = seen.confirmed_at[str(v.tag)]
        counts = ~bad[str(v.tag)] & np.isfinite(stamp)
        least = np.where(counts, np.minimum(least, stamp), least)
        most = np.where(counts, np.maximum(most, stamp), most)
    return _micros_up(np.where(np.isfinite(least), most - np.where(np.isfinite(least), least, 0.0), 0.0))


def _known(
    rules: RuleSet,
    variable: Variable,
    seen: Evidence,
    bad: Mapping[str, Bools],
    ages: Mapping[str, Floats],
    skew: Floats,
    reasons: Reasons,
) -> Span:
    """Where a variable was at its own reading."""
    count, tag = len(seen), str(variable.tag)
    if variable.hidden and variable.physical is not None:
        return _fixed(variable.physical, count)
    anywhere = _fixed(variable.roams, count)
    value = _column(seen.value, tag, count)
    unread = bad[tag] | np.isnan(value)
    value = np.where(unread, anywhere.low, value)
    reading = _reading(rules, variable, value, ages[tag] + skew, ~unread, reasons)
    return anywhere.where(unread, reading)


def _reading(
    rules: RuleSet, variable: Variable, value: Floats, seconds: Floats, used: Bools, reasons: Reasons
) -> Span:
    tag = str(variable.tag)
    if variable.sort != "real":
        reasons.add(used & (value != np.rint(value)), f"`{tag}` is not a whole number")
    at, error = exactly(value), exactly(np.array([float(variable.uncertainty)]))
    read = Span(
        at.low - error.low, at.high + error.high, np.where((at.off == 0) & (error.off == 0), 0.0, near(value))
    )
    read = _snapped(read)
    first, last = (float(end) for end in variable.range)
    room = np.minimum(read.low - first, last - read.high)
    reasons.doubt(used & (np.abs(room) <= np.where(read.off == 0, 0.0, near(value))) & (read.off != 0))
    reasons.add(used & (room < -NEAR_EDGE), f"`{tag}` is not wholly inside its range")
    if variable.labels is not None:
        named = np.isin(value, [float(n) for n in variable.labels.values()])
        reasons.add(used & ~named, f"`{tag}` is none of its values")
    if tag not in rules.forms and variable.max_rate is not None:
        read = Motions.grown(variable, read, seconds)
    elif variable.physical is not None:
        read = Motions.within(variable.physical, read)
    reasons.doubt(used & (np.abs(read.high - read.low) <= near(value)) & (read.off != 0))
    reasons.add(
        used & (read.low > read.high + NEAR_EDGE),
        f"broken assumption: `{tag}` reads outside its physical bounds",
    )
    return read


def _snapped(span: Span) -> Span:
    """Multiples of the grid spelt as such, so that sums of them stay exact."""
    sure = np.asarray(span.off) == 0
    low, high = (np.where(sure, np.rint(end * MICRO) / MICRO, end) for end in (span.low, span.high))
    return Span(low, high, span.off)


def _fixed(interval: Iterable[object], count: int) -> Span:
    low, high = (float(end) for end in interval)  # type: ignore[arg-type]
    return hull(exactly(np.full(count, low)), exactly(np.full(count, high)))


def _predicted(
    rules: RuleSet, motions: Motions, seen: Evidence, reasons: Reasons
) -> tuple[Bools, dict[str, Span]]:
    """Where there is a state set to carry, and where it has come to since."""
    gap = seen.taken_at - seen.carried_at
    longest = float(LONGEST_GAP_STEPS * rules.modules[0].step)
    has = (gap >= 0) & (gap <= longest)
    reasons.doubt(has & (gap > float(TOLD_S)))
    tags = [str(v.tag) for v in rules.measured]
    ends = {tag: seen.carried.get(tag) for tag in tags}
    for tag in tags:
        found = ends[tag]
        has = has & (np.zeros(len(seen), dtype=np.bool_) if found is None else ~np.isnan(found[0]))
    if not has.any():
        return has, {}
    state: dict[str, Span] = {}
    for tag in tags:
        found = ends[tag]
        assert found is not None, "some decision has it"  # noqa: S101
        low, high = (np.where(has, end, 0.0) for end in found)
        state[tag] = hull(exactly(low), exactly(high))
    return has, motions.since(state, seen.in_force, np.where(has, _micros_up(np.where(has, gap, 0.0)), 0.0))


def _met(
    fresh: Mapping[str, Span], before: tuple[Bools, Mapping[str, Span]], reasons: Reasons
) -> dict[str, Span]:
    has, states = before
    met: dict[str, Span] = {}
    for tag, now in fresh.items():
        if tag not in states:
            met[tag] = now
            continue
        then = states[tag]
        off = np.maximum(now.off, then.off)
        both = Span(np.maximum(now.low, then.low), np.minimum(now.high, then.high), off)
        met[tag] = both.where(has, now)
        room = both.high - both.low
        exact = np.asarray(off) == 0  # ends on the grid, and so is the room between them
        slack = np.where(exact, NEAR_EDGE, near(now.high) + off)
        reasons.doubt(has & ~exact & (np.abs(room) <= slack))
        reasons.add(
            has & (room < -slack), f"broken assumption: `{tag}` reads where the check before excluded it"
        )
    return met
