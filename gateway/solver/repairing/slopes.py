"""Straight bounds of rules near a refused block, from the interval pass: how each output would help.

At its worst over a state a row is concave in each output's count, and what the outputs do to it adds up. So
where a rule has no alternatives, what is said here is true of every block. Elsewhere it is a guess that shows
where to look first.
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
from gateway.solver.rules.interval import Box, ProductRow, Row
from gateway.solver.rules.ruleset import RuleSet

_MOST_RULES = 4


class Slopes:
    """The rows of one plan in one state, as functions of register counts."""

    def __init__(self, rules: RuleSet, prepared: Prepared, facts: Facts) -> None:
        self._rules, self._prepared, self._facts = rules, prepared, facts

    def holds(self, counts: Counts) -> bool:
        """Whether intervals show every critical and standard rule to hold."""
        nearest = self._prepared.look(self._facts, self._values(counts)).nearest
        return all(near is None or near[1] >= 0 for near in map(nearest.__getitem__, self._prepared.binding))

    def cuts(self, counts: Counts, allowed: Sequence[Spans]) -> Iterator[Condition]:
        """What blocks must fulfil for the rules that intervals do not show here, as far as slopes tell."""
        look = self._prepared.look(self._facts, self._values(counts))
        rows = [row for rule in self._prepared.binding if (row := self._missed(rule, look.nearest[rule]))]
        for row in rows[:_MOST_RULES]:
            factors = {
                place: -self._slope(row, counts, place, spans, look.within)
                for place, spans in enumerate(allowed)
            }
            yield line(factors, row.slack(look.within) + sum(f * counts[k] for k, f in factors.items()))

    def _missed(self, rule: int, near: tuple[int, int, int] | None) -> Row | None:
        """The row that decides a rule that intervals do not show, where a proposal can change it."""
        if near is None or near[1] >= 0:
            return None
        row = self._prepared.worst(rule, near).slack.row
        return row if row is not None and _symbols(row) & self._prepared.changing else None

    def _slope(self, row: Row, counts: Counts, place: int, spans: Spans, before: Box) -> int:
        """How a row's slack changes with one count more of one output."""
        if spans[0][0] == spans[-1][1]:
            return 0
        step = 1 if counts[place] < spans[-1][1] else -1
        beside = (*counts[:place], counts[place] + step, *counts[place + 1 :])
        there = self._prepared.changed(self._facts, self._values(beside), before, _symbols(row))
        return (row.slack(there) - row.slack(before)) * step

    def _values(self, counts: Counts) -> dict[TagId, Fraction]:
        return {
            v.tag: v.definition.engineering(raw) for v, raw in zip(self._rules.actions, counts, strict=True)
        }


def _symbols(row: Row) -> frozenset[str]:
    named = {name for name, _ in row.terms}
    if isinstance(row, ProductRow):
        named.update(name for name, _ in row.inner)
        named.update(name for pair, _ in row.corners for name in pair)
    return frozenset(named)
