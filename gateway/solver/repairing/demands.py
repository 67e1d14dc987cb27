"""What the rules in force demand of the register counts in one state, and what a refusal adds to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil, floor

from gateway.core.tag import TagId
from gateway.solver.checking.judge import Prepared
from gateway.solver.checking.predict import Facts
from gateway.solver.decoding.counts import AllOf, Condition, Line, all_of, line, one_of
from gateway.solver.decoding.folding import Folding
from gateway.solver.decoding.states import few_values, pinned
from gateway.solver.language.affine import symbols
from gateway.solver.modules.module import Variable
from gateway.solver.rules.interval import SETTLED
from gateway.solver.rules.ruleset import RuleSet


class Demands:
    """The demands of one plan, on the counts of every output in the order of `RuleSet.actions`."""

    def __init__(self, rules: RuleSet, prepared: Prepared) -> None:
        self._rules, self._prepared = rules, prepared
        self._order = tuple(v.tag for v in rules.actions)
        self._folding = Folding(rules, prepared.plan, self._order)
        self._of_the_state: Folding | None = None

    def everywhere(self, facts: Facts) -> tuple[list[Condition], str]:
        """What every permitted block fulfils, and why one that does may yet be refused; "" where none is."""
        common = self._prepared.known(facts)
        few = few_values(self._rules, self._prepared.plan, facts, common)
        return self._folding.conditions(self._folding.state(facts, common, few))

    def at(self, facts: Facts, witness: Mapping[str, Fraction]) -> list[Condition]:
        """What every permitted block fulfils where a counterexample says the state may be."""
        common = self._prepared.known(facts)
        few = few_values(self._rules, self._prepared.plan, facts, common)
        there, fewer = pinned(witness, common, few)
        return self._folding.conditions(self._folding.state(facts, there, fewer))[0]

    def further(self, facts: Facts, shifts: Mapping[TagId, Fraction]) -> list[Condition]:
        """What the rules about the plant's state demand of outputs that go further by so much (S12)."""
        if self._of_the_state is None:
            plan, changing = self._prepared.plan, self._prepared.changing
            mine = tuple(
                duty
                for duty in plan.duties
                if (named := symbols(duty.formula)) & changing
                and not all(name.startswith(SETTLED) for name in named)
            )
            self._of_the_state = Folding(self._rules, replace(plan, duties=mine), self._order)
        folding, common = self._of_the_state, self._prepared.known(facts)
        few = few_values(self._rules, self._prepared.plan, facts, common)
        moved = [_counts(self._rules.variables[tag], shifts.get(tag, Fraction(0))) for tag in self._order]
        return [_shifted(c, moved) for c in folding.conditions(folding.state(facts, common, few))[0]]


def _counts(variable: Variable, shift: Fraction) -> int:
    """A shift in whole register counts, none less than it is."""
    counts = shift / variable.definition.scale
    return ceil(counts) if counts > 0 else floor(counts)


def _shifted(condition: Condition, by: Sequence[int]) -> Condition:
    """The condition on counts that one on counts further by so much is."""
    match condition:
        case Line(terms, limit):
            return line(dict(terms), limit - sum(factor * by[place] for place, factor in terms))
        case AllOf(parts):
            return all_of(_shifted(part, by) for part in parts)
        case _:
            return one_of(_shifted(part, by) for part in condition.parts)
