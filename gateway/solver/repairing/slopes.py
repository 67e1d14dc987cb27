"""Straight bounds of rules near a refused block, from the interval pass: how each output would help.

Where a rule has no alternatives its slack is concave in each output's count and outputs add up, so that what
is said here is true of every block. Elsewhere it is a guess that shows where to look first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from gateway.core.spans import Spans
from gateway.core.tag import TagId
from gateway.solver.checking.judge import Prepared
from gateway.solver.checking.predict import Facts
from gateway.solver.decoding.counts import Condition, line
from gateway.solver.repairing.aim import Counts
from gateway.solver.rules.interval import VACUOUS
from gateway.solver.rules.ruleset import RuleSet

_MOST_RULES = 4  # of those missed by most


class Slopes:
    """The slacks of one plan in one state, as functions of register counts."""

    def __init__(self, rules: RuleSet, prepared: Prepared, facts: Facts) -> None:
        self._rules, self._prepared, self._facts = rules, prepared, facts

    def holds(self, counts: Counts) -> bool:
        """Whether intervals show every rule that a proposal can change to hold."""
        return all(slack >= 0 for slack in self._slacks(counts).values())

    def cuts(self, counts: Counts, allowed: Sequence[Spans]) -> Iterator[Condition]:
        """What blocks must fulfil for the rules that intervals do not show here, as far as slopes tell."""
        here = self._slacks(counts)
        missed = sorted((slack, rule) for rule, slack in here.items() if -VACUOUS < slack < 0)[:_MOST_RULES]
        slopes: dict[int, dict[int, int]] = {rule: {} for _, rule in missed}
        for place, spans in enumerate(allowed):
            step = 1 if counts[place] < spans[-1][1] else -1
            if spans[0][0] == spans[-1][1]:
                continue
            there = self._slacks((*counts[:place], counts[place] + step, *counts[place + 1 :]))
            for _, rule in missed:
                slopes[rule][place] = (there[rule] - here[rule]) * step
        for slack, rule in missed:
            factors = {place: -slope for place, slope in slopes[rule].items()}
            yield line(factors, slack + sum(f * counts[place] for place, f in factors.items()))

    def _slacks(self, counts: Counts) -> dict[int, int]:
        values: dict[TagId, Fraction] = {
            v.tag: v.definition.engineering(raw) for v, raw in zip(self._rules.actions, counts, strict=True)
        }
        return self._prepared.movable.slacks(self._prepared.box(self._facts, values))
