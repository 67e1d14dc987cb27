"""Every symbol of a plan as an interval, of many decisions at once: `boxes.Boxes` in floats."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from gateway.core.tag import TagId
from gateway.solver.backtest.evidence import Evidence, Floats
from gateway.solver.backtest.motions import MICRO, Motions, floored
from gateway.solver.backtest.premises import Premises
from gateway.solver.backtest.spans import Span, constant, exactly, hull, near
from gateway.solver.checking.condense import Plan
from gateway.solver.rules.ruleset import RuleSet

UNTOLD = ("b", "c", "u", "was", "for")  # for the exact judge alone: the backup's course and the past


class Symbols:
    """The symbols of one plan for some decisions, each worked out when it is first asked for."""

    def __init__(self, rules: RuleSet, plan: Plan, seen: Evidence, premises: Premises) -> None:
        self._rules, self._plan, self._seen, self._premises = rules, plan, seen, premises
        self._found: dict[str, Span] = {}
        self.count = len(seen)

    def __getitem__(self, name: str) -> Span:
        if name not in self._found:
            self._found[name] = self._of(name)
        return self._found[name]

    def _of(self, name: str) -> Span:  # noqa: C901, PLR0911  one return for each kind of symbol
        kind, _, tag = name.partition(":")
        now, old = self._premises.now, self._premises.old
        match kind:
            case "x":
                return now[tag]
            case "new":
                return self._new(tag)
            case "old":
                return old[tag]
            case "rate":
                return self._rate(tag)
            case "good" | "age":
                return self._premises.facts[f"{kind}({tag})"]
            case "held":
                return exactly(self._held(tag))
            case "kept_on" | "may_rise":
                return self._kept(tag, kind)
        index = int(kind[1:])
        match kind[0]:
            case "e":
                return hull(old[tag], self._new(tag))
            case "d":
                low, high = self._rules.disturbances[tag]
                return constant(float(low), float(high), self.count)
            case "m":
                segment = self._plan.segments[index]
                return self._grown(tag, (segment.start + segment.end) / 2)
            case _:
                return self._grown(tag, self._plan.instant(index))

    def _new(self, tag: str) -> Span:
        values = self._seen.proposed[tag]
        return exactly(np.where(np.isnan(values), 0.0, values))

    def _held(self, tag: str) -> Floats:
        found = self._seen.held_s.get(tag)
        return np.zeros(self.count) if found is None else floored(np.nan_to_num(found, nan=0.0))

    def _grown(self, tag: str, seconds: Fraction) -> Span:
        times = np.full(self.count, float(seconds))
        return Motions.grown(self._rules.variables[TagId(tag)], self._premises.now[tag], times)

    def _rate(self, tag: str) -> Span:
        """Slowest and fastest change per second against everything that was in force (S6)."""
        step = float(self._rules.modules[0].step)
        listed = self._seen.in_force[tag]
        ago, wanted = floored(listed.ago), self._new(tag)
        present, new = ago <= 0, wanted.low[listed.row]
        # Of values in force now the quotient of two whole numbers, so that a ramp at its limit stays there.
        change = (np.rint(new * MICRO) - np.rint(listed.values * MICRO)) / (MICRO * step)
        rate = np.where(present, change, (new - listed.values) / np.maximum(step, ago + step))
        low, high = listed.least(rate, 0.0), listed.greatest(rate)
        high = np.where(np.isfinite(high), high, 0.0)
        away = near(np.maximum(np.abs(low), np.abs(high)))
        exact = (np.asarray(wanted.off) == 0) & (np.asarray(self._premises.old[tag].off) == 0)
        # A value of long ago makes no multiple of anything: where it decides, an end is not exact.
        lowest = listed.least(np.where(present, rate, np.inf)) + away < listed.least(
            np.where(present, np.inf, rate)
        )
        highest = listed.greatest(np.where(present, rate, -np.inf)) - away > listed.greatest(
            np.where(present, -np.inf, rate)
        )
        return Span(low, high, np.where(exact & lowest, 0.0, away), np.where(exact & highest, 0.0, away))

    def _kept(self, tag: str, kind: str) -> Span:
        """Whether a switch must stay on, or may go on; surely known, for times are whole microseconds."""
        variable, old = self._rules.variables[TagId(tag)], self._premises.old[tag]
        held = np.rint(self._held(tag) * MICRO)
        wait = variable.min_on if kind == "kept_on" else variable.min_off
        waited = held >= float(wait * MICRO)
        found = (old.high >= 1) & ~waited if kind == "kept_on" else (old.low >= 1) | waited
        return exactly(found.astype(np.float64))


def untold(plan: Plan) -> bool:
    """Whether some symbol of a plan is for the exact judge alone."""
    return any(n.partition(":")[0].rstrip("0123456789") in UNTOLD for n in plan.symbols)
