"""Steps eliminated: every rule at every instant becomes a condition affine in what one check may assume.

Symbols of a plan, each with an interval that `predict` fills in for one check:
`x:TAG` a measured value at acquisition; `p{k}:TAG` one without dynamics at instant k; `m{k}:TAG` its
effective value during segment k; `d{k}:NAME` a disturbance during segment k; `e{k}:TAG` the effective
action during segment k while the old or the new value may act; `new:TAG`, `old:TAG` the proposal and a value
in force; `rate:TAG`, `kept_on:TAG`, `may_rise:TAG` facts about the proposal and the past.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from gateway.solver.affine import Affine, Formula, mapped, symbol, symbols
from gateway.solver.ruleset import Rule, RuleSet


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of time of at most one step; `mixed` while the values in force may still act."""

    start: Fraction
    end: Fraction
    mixed: bool


@dataclass(frozen=True, slots=True)
class Duty:
    """One rule at one instant, with the old or the new values in force."""

    rule: int  # index into `Plan.rules`
    instant: int
    old: bool
    formula: Formula


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

    def instant(self, index: int) -> Fraction:
        """Seconds after acquisition."""
        return self.segments[index - 1].end if index else Fraction(0)


def condense(rules: RuleSet, delay: Fraction, hold: Fraction) -> Plan:
    """The plan of one check; the same for every check with these two times."""
    step = rules.modules[0].step
    end = max(hold, step, delay)
    segments = _segments(delay, end, step)
    states = _states(rules, segments, step)
    everything = (*rules.rules, *rules.safe_set)
    duties: list[Duty] = []
    for index, rule in enumerate(everything):
        safe = index >= len(rules.rules)
        for instant, state in enumerate(states):
            time = segments[instant - 1].end if instant else Fraction(0)
            for old in (False, True):
                if _owed(rule, safe=safe, old=old, time=time, delay=delay):
                    condensed = _substituted(rule.formula, _reader(state, old=old))
                    duties.append(Duty(index, instant, old, condensed))
    used = frozenset(f"x:{v.tag}" for v in rules.measured)
    used = used.union(*(symbols(duty.formula) for duty in duties))
    return Plan(delay, end, step, segments, everything, tuple(duties), tuple(sorted(used)))


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


def _owed(rule: Rule, *, safe: bool, old: bool, time: Fraction, delay: Fraction) -> bool:
    """Whether a rule must hold at an instant with the old or the new values in force."""
    if safe:  # a decision may come at any moment once the proposal acts, and the backup must do from there
        return not old and time >= delay
    if not rule.constraint.always:
        return not old and time == 0
    if not old:
        return True
    return time <= delay and delay > 0 and not any("(" in name for name in symbols(rule.formula))


def _states(rules: RuleSet, segments: tuple[Segment, ...], step: Fraction) -> list[dict[str, Affine]]:
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
            return symbol(f"e{k}:{name}" if segment.mixed else f"new:{name}")

        after = {name: symbol(f"p{k + 1}:{name}") for name in now if name not in rules.forms}
        for name, form in rules.forms.items():
            change = form.substituted(during).plus(before[name].times(Fraction(-1)))
            after[name] = before[name].plus(change.times(part))
        states.append(after)
    return states


def _reader(state: dict[str, Affine], *, old: bool) -> Callable[[str], Affine]:
    def read(name: str) -> Affine:
        if name in state:
            return state[name]
        form, bracket, rest = name.partition("(")
        if bracket:
            tag = rest.removesuffix(")")
            return symbol(f"old:{tag}" if form == "prev" else f"{form}:{tag}")
        return symbol(f"old:{name}" if old else f"new:{name}")

    return read
