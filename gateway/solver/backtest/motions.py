"""Where the plant may be some time later, of many decisions at once: `steps` and `motion` in floats."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from gateway.solver.backtest.evidence import Floats, Ints, Listed
from gateway.solver.backtest.spans import Span, exactly, hull, near
from gateway.solver.modules.module import Interval, Variable
from gateway.solver.rules.ruleset import RuleSet

MICRO = 1_000_000
_MOST_PIECES = 8  # of the time since the last check, as `motion` cuts it


def floored(seconds: Floats) -> Floats:
    """As `past.micros_down`."""
    found: Floats = np.floor(seconds * MICRO) / MICRO
    return found


class Motions:
    """The dynamics of one rule set."""

    def __init__(self, rules: RuleSet) -> None:
        self._step = float(rules.modules[0].step)
        self._free = [v for v in rules.measured if v.tag not in rules.forms]
        self._forms = {
            tag: (float(form.constant), [(name, float(c)) for name, c in form.terms.items()])
            for tag, form in rules.forms.items()
        }
        self._disturbances = {
            name: (float(low), float(high)) for name, (low, high) in rules.disturbances.items()
        }

    def since(
        self, state: Mapping[str, Span], in_force: Mapping[str, Listed], gap: Floats
    ) -> dict[str, Span]:
        """`state` carried over `gap` seconds, what was in force meanwhile acting while it did."""
        ceased = {tag: (listed, floored(listed.ago)) for tag, listed in in_force.items()}
        moments = [gap, *_cuts(list(ceased.values()), gap), np.zeros_like(gap)]
        found = dict(state)
        for start, end in itertools.pairwise(moments):
            acting: dict[str, Span] = {}
            for tag, (listed, ago) in ceased.items():
                low, high = listed.ends((ago < start[listed.row]) | (ago == 0))
                known = np.isfinite(low)
                acting[tag] = hull(exactly(np.where(known, low, 0.0)), exactly(np.where(known, high, 0.0)))
            found = self.forward(found, acting, start - end)
        return found

    def forward(
        self, start: Mapping[str, Span], acting: Mapping[str, Span], seconds: Floats
    ) -> dict[str, Span]:
        """`steps.Steps.forward`, each decision for its own time."""
        state, left = dict(start), seconds.copy()
        while (left > 0).any():
            part = np.minimum(np.maximum(left, 0.0), self._step)
            moving = part > 0
            after = {str(v.tag): self.grown(v, state[str(v.tag)], part) for v in self._free}
            share = part / self._step
            for tag, (constant, terms) in self._forms.items():
                here, own = state[tag], 0.0
                low = high = np.full(len(share), constant)
                off, size = np.zeros(len(share)), np.full(len(share), abs(constant))
                for name, factor in terms:
                    if name == tag:
                        own = factor
                        continue
                    first, last, wide = self._ends(name, state, after, acting)
                    low = low + factor * (first if factor > 0 else last)
                    high = high + factor * (last if factor > 0 else first)
                    off = off + abs(factor) * np.asarray(wide)
                    size = size + abs(factor) * np.maximum(np.abs(first), np.abs(last))
                # A shorter step is a straight line: one factor for what the variable keeps of itself.
                kept = 1 - share + own * share
                mine_low = np.where(kept > 0, kept * here.low, kept * here.high)
                mine_high = np.where(kept > 0, kept * here.high, kept * here.low)
                size = size + np.maximum(np.abs(here.low), np.abs(here.high))
                off = share * off + np.abs(kept) * np.asarray(here.off) + near(size)
                after[tag] = Span(share * low + mine_low, share * high + mine_high, off)
            state = {tag: span.where(moving, state[tag]) for tag, span in after.items()}
            left = left - part
        return state

    def _ends(
        self, name: str, state: Mapping[str, Span], after: Mapping[str, Span], acting: Mapping[str, Span]
    ) -> tuple[Floats, Floats, Floats | float]:
        if name in self._disturbances:
            low, high = self._disturbances[name]
            return np.array([low]), np.array([high]), 0.0
        span = after[name] if name in after and name not in self._forms else state.get(name)
        span = acting[name] if span is None else span
        return span.low, span.high, span.off

    @staticmethod
    def grown(variable: Variable, span: Span, seconds: Floats) -> Span:
        """Where a variable without dynamics may be that many seconds later."""
        if variable.max_rate is None:
            first, last = (float(end) for end in variable.roams)
            moved = seconds > 0
            low = np.where(moved, np.minimum(span.low, first), span.low)
            high = np.where(moved, np.maximum(span.high, last), span.high)
            found = Span(low, high, span.off)
        else:
            reach = float(variable.max_rate) * seconds
            low, high = span.low - reach, span.high + reach
            off = np.where(reach == 0, span.off, np.asarray(span.off) + near(high))
            found = Span(low, high, off)
            if variable.sort != "real":
                found = _whole(found)
        return found if variable.physical is None else Motions.within(variable.physical, found)

    @staticmethod
    def within(bounds: Interval, span: Span) -> Span:
        """No farther than the variable physically can be."""
        low, high = (float(end) for end in bounds)
        return Span(np.maximum(span.low, low), np.minimum(span.high, high), span.off)


def _whole(span: Span) -> Span:
    """Rounded outward to whole numbers: a count may go up at any moment."""
    close = near(span.high)
    low_near, high_near = np.rint(span.low), np.rint(span.high)
    low_close, high_close = np.abs(span.low - low_near) <= close, np.abs(span.high - high_near) <= close
    low = np.where(low_close, low_near, np.floor(span.low))
    high = np.where(high_close, high_near, np.ceil(span.high))
    unsure = (low_close | high_close) & (np.asarray(span.off) != 0)
    return Span(low, high, np.where(unsure, 1.0, 0.0))


def _cuts(ceased: list[tuple[Listed, Floats]], gap: Floats) -> list[Floats]:
    """The moments between at which something ceased, the earliest first; 0 where there are no more."""
    found: list[tuple[Ints, Floats]] = []
    for listed, ago in ceased:
        between = (ago > 0) & (ago < gap[listed.row])
        found.append((listed.row[between], ago[between]))
    rows, agos = (np.concatenate(parts) for parts in zip(*found, strict=True))
    pairs = np.unique(np.stack([rows, -agos], axis=1), axis=0)
    if not len(pairs):
        return []
    rows = pairs[:, 0].astype(np.int64)
    place = np.arange(len(rows)) - np.searchsorted(rows, rows)
    cuts = np.zeros((int(place.max()) + 1, len(gap)))
    cuts[place, rows] = -pairs[:, 1]
    return list(cuts[: _MOST_PIECES - 1])
