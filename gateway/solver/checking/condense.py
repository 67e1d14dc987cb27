"""Steps eliminated: every rule at every instant becomes a condition affine in what one check may assume.

Symbols of a plan, each with an interval that `predict` fills in for one check:
`x:TAG` a measured value at acquisition; `p{k}:TAG` one without dynamics at instant k; `m{k}:TAG` its
effective value during segment k; `d{k}:NAME` a disturbance during segment k; `e{k}:TAG` the effective
action during segment k while the old or the new value may act; `b{k}:TAG` the action during segment k where
the backup may have taken over, `c{k}:TAG` its effective value while the old one may act as well, `u{k}:TAG`
its mean over segment k where that is told apart; `new:TAG`, `old:TAG` the proposal and a value in force;
`was:TAG` a measured value one step ago; `rate:TAG`,
`kept_on:TAG`, `may_rise:TAG`, `held:TAG`, `good:TAG`, `age:TAG` and `for:...` facts about the proposal and
the past.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from gateway.solver.language.affine import Affine, Formula, atoms, mapped, symbol, symbols
from gateway.solver.rules.canonical import form_text, formula_text, premises
from gateway.solver.rules.ruleset import Rule, RuleSet

LEASE_S = Fraction(4)  # period, lease time-out and scan: how long the PLC may go on with the last values

_Kind = Literal["rule", "safe", "terminal"]


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of time of at most one step; `mixed` while the values in force may still act.

    `backup`: the proposal has had its time. Before that, too, the backup may act (`course`). `means`: actions
    whose mean over it is told apart, as the backup must have taken over before its end (`way`).
    """

    start: Fraction
    end: Fraction
    mixed: bool
    backup: bool = False
    means: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Duty:
    """One rule at one instant, with the old or the new values in force, or those of the backup.

    `drift`: the instant whose values variables without dynamics have; a later one stands for the whole
    segment in between. `backup`: the segment whose action is in force, in the course of the backup.
    """

    rule: int  # index into `Plan.rules`
    instant: int
    old: bool
    formula: Formula
    drift: int = -1  # the instant itself
    backup: int = -1  # none


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything to be shown for a proposal that acts from `delay` until `hold` at the latest."""

    delay: Fraction
    hold: Fraction
    step: Fraction
    segments: tuple[Segment, ...]
    rules: tuple[Rule, ...]
    duties: tuple[Duty, ...]
    symbols: tuple[str, ...]
    keys: tuple[str, ...]  # by rule; see `keys`
    whole: tuple[str, ...] = ()  # those of them that count in whole numbers, but the values in force

    def instant(self, index: int) -> Fraction:
        """Seconds after acquisition."""
        return self.segments[index - 1].end if index else Fraction(0)


def condense(
    rules: RuleSet,
    delay: Fraction,
    hold: Fraction,
    known: Callable[[str], tuple[Duty, ...] | None] | None = None,
) -> Plan:
    """The plan of one check; the same for every check with these two times.

    `known` tells the duties of a key where another plan has them, whatever their number there.
    """
    step = rules.modules[0].step
    end = max(hold, step, delay) if rules.horizon else Fraction(0)
    segments = _segments(delay, end, step)
    acting = len(segments)
    if rules.terminal:
        segments += tuple(_afterwards(rules, end, step))
    everything = (*rules.rules, *rules.safe_set, *rules.terminal)
    course = _Course(rules, segments, acting, delay)
    names = keys(rules, delay, hold)
    duties: list[Duty] = []
    for index, (rule, key) in enumerate(zip(everything, names, strict=True)):
        found = known(key) if known is not None else None
        if found is None:
            duties += course.duties(index, rule, _kind(rules, index))
        else:
            duties += [Duty(index, d.instant, d.old, d.formula, d.drift, d.backup) for d in found]
    used = {f"x:{v.tag}" for v in rules.measured}
    for duty in duties:
        used.update(*(atom.form.symbols for atom in atoms(duty.formula)))
    ordered = tuple(sorted(used))
    return Plan(delay, end, step, segments, everything, tuple(duties), ordered, names, _whole(rules, ordered))


def keys(rules: RuleSet, delay: Fraction, hold: Fraction) -> tuple[str, ...]:
    """By rule, a digest of all that its duties and their terms follow from: itself, and the plant around it.

    The same key in two rule sets: the same duties, over symbols with the same room.
    """
    about = {str(tag): str([str(tag), *premises(v)]) for tag, v in rules.variables.items()}
    moving = {name for form in rules.forms.values() for name in form.symbols} | rules.forms.keys()
    around = str(
        [
            [str(delay), str(hold), str(rules.modules[0].step), rules.horizon, bool(rules.terminal)],
            [(name, form_text(form)) for name, form in sorted(rules.forms.items())],
            [(name, str(low), str(high)) for name, (low, high) in sorted(rules.disturbances.items())],
            [about[name] for name in sorted(moving) if name in about],
            sorted(_unguarded(rules)) if rules.terminal else [],
        ]
    )
    start = hashlib.sha256(around.encode())
    found: list[str] = []
    for index, rule in enumerate((*rules.rules, *rules.safe_set, *rules.terminal)):
        named = {name.partition("(")[2].removesuffix(")") or name for name in symbols(rule.formula)}
        said = [_kind(rules, index), rule.constraint.always, formula_text(rule.formula)]
        mine = start.copy()
        mine.update(str([*said, *(about[name] for name in sorted(named) if name in about)]).encode())
        found.append(mine.hexdigest())
    return tuple(found)


def _kind(rules: RuleSet, index: int) -> _Kind:
    """What a rule of the plan is."""
    if index < len(rules.rules):
        return "rule"
    return "safe" if index < len(rules.rules) + len(rules.safe_set) else "terminal"


def _whole(rules: RuleSet, names: tuple[str, ...]) -> tuple[str, ...]:
    """Readings of whole numbers at an instant, and truths that nobody may be sure of."""
    counts = {str(v.tag) for v in rules.measured if v.sort != "real"}
    return tuple(
        name
        for name in names
        if name.startswith("for:") or (name[0] in "xpw" and name.partition(":")[2] in counts)
    )


class _Course:
    """Rules said at instants of one plan."""

    def __init__(self, rules: RuleSet, segments: tuple[Segment, ...], acting: int, delay: Fraction) -> None:
        self._rules, self._segments, self._acting, self._delay = rules, segments, acting, delay
        step = rules.modules[0].step
        self._states = _states(rules, segments[:acting], step)
        self._fallen = _states(rules, segments, step, backup=True) if rules.terminal else self._states
        self._measured = frozenset(self._states[0])

    def duties(self, index: int, rule: Rule, kind: _Kind) -> Iterator[Duty]:
        """Everything that one rule demands."""
        segments, acting = self._segments, self._acting
        if kind == "terminal":
            yield self.duty(index, rule, len(segments), backup=len(segments) - 1)
            return
        for instant in range(acting + 1):
            time = segments[instant - 1].end if instant else Fraction(0)
            for old in (False, True):
                if _owed(rule, safe=kind == "safe", old=old, time=time, delay=self._delay):
                    yield self.duty(index, rule, instant, old=old)
        if (
            self._rules.terminal
            and rule.constraint.always
            and not any("(" in name for name in symbols(rule.formula))
        ):
            for k in range(len(segments)):
                # INVARIANT: before the end of the proposal's time nothing that the backup may do in a segment
                # ends with it (`Course`), so the next one's start stands for this one's end.
                for at in (k, k + 1) if k >= acting else (k,):
                    yield self.duty(index, rule, at, backup=k)

    def duty(self, index: int, rule: Rule, instant: int, *, old: bool = False, backup: int = -1) -> Duty:
        """One rule at one instant."""
        drift = self._drift(rule, instant)
        state = (self._fallen if backup >= 0 else self._states)[instant]
        if drift != instant:
            state = {n: f if n in self._rules.forms else self._fallen[drift][n] for n, f in state.items()}
        prefix = f"b{backup}" if backup >= 0 else "old" if old else "new"
        formula = _substituted(rule.formula, _reader(state, prefix, self._rules))
        return Duty(index, instant, old, formula, drift if drift != instant else -1, backup)

    def _drift(self, rule: Rule, instant: int) -> int:
        """Until the next instant a variable without dynamics may go farther while the others hardly move."""
        named = symbols(rule.formula) & self._measured
        moves = named & self._rules.forms.keys()
        if rule.constraint.always and moves and moves != named:
            return min(instant + 1, len(self._segments))
        return instant


def _substituted(formula: Formula, values: Callable[[str], Affine]) -> Formula:
    return mapped(formula, lambda form: form.substituted(values))


def _segments(delay: Fraction, end: Fraction, step: Fraction) -> tuple[Segment, ...]:
    cuts = {Fraction(0), end}
    if 0 < delay < end:
        cuts.add(delay)
    at = step
    while at < end:
        cuts.add(at)
        at += step
    ordered = sorted(cuts)
    return tuple(Segment(start, stop, start < delay) for start, stop in itertools.pairwise(ordered))


def _afterwards(rules: RuleSet, end: Fraction, step: Fraction) -> Iterator[Segment]:
    """The steps of the backup."""
    unguarded = _unguarded(rules)
    for k in range(rules.horizon):
        at = end + k * step
        means = unguarded if at + step > end + LEASE_S else frozenset[str]()
        yield Segment(at, at + step, mixed=False, backup=True, means=means)


def _unguarded(rules: RuleSet) -> frozenset[str]:
    return frozenset(str(v.tag) for v in rules.actions if not guarded(rules, v.tag))


def guarded(rules: RuleSet, tag: str) -> bool:
    """Whether what the backup does with an output depends on a guard."""
    first = next((step for step in rules.backup if tag in step.entry.moves), None)
    return first is not None and first.formula is not None


def _owed(rule: Rule, *, safe: bool, old: bool, time: Fraction, delay: Fraction) -> bool:
    """Whether a rule must hold at an instant with the old or the new values in force."""
    if safe:  # a decision may come at any moment once the proposal acts, and the backup must do from there
        return not old and time >= delay
    if not rule.constraint.always:
        return not old and time == 0
    if not old:
        return True
    return time <= delay and delay > 0 and not any("(" in name for name in symbols(rule.formula))


def acts_in(segment: Segment, k: int, tag: str, *, backup: bool) -> str:
    """The kind of symbol that moves the state in a segment, in the proposal's own course or the backup's."""
    if backup or segment.backup:
        return f"u{k}" if tag in segment.means else f"c{k}" if segment.mixed else f"b{k}"
    return f"e{k}" if segment.mixed else "new"


def _states(
    rules: RuleSet, segments: tuple[Segment, ...], step: Fraction, *, backup: bool = False
) -> list[dict[str, Affine]]:
    """Measured values at every instant, as forms over the plan's symbols."""
    now = {str(v.tag): symbol(f"x:{v.tag}") for v in rules.measured}
    states = [now]
    for k, segment in enumerate(segments):
        before = states[-1]
        part = (segment.end - segment.start) / step

        def during(
            name: str, k: int = k, before: dict[str, Affine] = before, segment: Segment = segment
        ) -> Affine:
            if name in rules.forms:
                return before[name]
            if name in before:
                return symbol(f"m{k}:{name}")
            if name in rules.disturbances:
                return symbol(f"d{k}:{name}")
            return symbol(f"{acts_in(segment, k, name, backup=backup)}:{name}")

        after = {name: symbol(f"p{k + 1}:{name}") for name in now if name not in rules.forms}
        for name, form in rules.forms.items():
            change = form.substituted(during).plus(before[name].times(Fraction(-1)))
            after[name] = before[name].plus(change.times(part))
        states.append(after)
    return states


def _reader(state: dict[str, Affine], acting: str, rules: RuleSet) -> Callable[[str], Affine]:
    """What a key of a rule stands for; `acting` is the kind of the action in force."""

    def read(name: str) -> Affine:
        if name in state:
            return state[name]
        form, bracket, rest = name.partition("(")
        if not bracket:
            return symbol(f"{acting}:{name}")
        tag = rest.removesuffix(")")
        if tag in state and form == "prev":
            return symbol(f"was:{tag}")
        if tag in state and form == "rate":
            change = state[tag].plus(symbol(f"was:{tag}").times(Fraction(-1)))
            return change.times(1 / rules.modules[0].step)
        return symbol(f"old:{tag}" if form == "prev" else f"{form}:{tag}")

    return read
