"""How near register values are to what was proposed, in whole numbers, and which of two that are as near."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from gateway.core.decision import RegisterValue
from gateway.core.tag import TagId
from gateway.solver.checking.predict import Facts
from gateway.solver.modules.module import Variable
from gateway.solver.rules.ruleset import RuleSet

Counts = tuple[int, ...]  # register counts, by place in `RuleSet.actions`
Key = tuple[int, tuple[int, ...], Counts, Counts]


@dataclass(frozen=True, slots=True)
class Aim:
    """Where a repair would like to be.

    The distance adds up how far each output is moved as a share of its range; a switch has none, it is
    changed or not. Of two places as far away the one that changes the output of the module of higher
    priority less is nearer, then by name; then the one nearer to the values in force, then the lower one.
    """

    wanted: Counts
    present: Counts
    weights: tuple[int, ...]  # of one count of each output; 0 for a switch
    ties: tuple[int, ...]  # places, the one to be changed least first

    @staticmethod
    def of(rules: RuleSet, facts: Facts, wanted: Mapping[TagId, RegisterValue]) -> Aim:
        """The aim of one proposal."""
        shares = [_share(variable) for variable in rules.actions]
        unit = lcm(*(share.denominator for share in shares))
        priority = {
            tag: max(m.priority for m in rules.modules if tag in m.actions)
            for tag in (v.tag for v in rules.actions)
        }
        ranked = sorted(range(len(rules.actions)), key=lambda k: _rank(rules.actions[k].tag, priority))
        return Aim(
            wanted=tuple(wanted[v.tag].raw for v in rules.actions),
            present=tuple(_present(v, facts) for v in rules.actions),
            weights=tuple(int(share * unit) for share in shares),
            ties=tuple(ranked),
        )

    def distance(self, counts: Sequence[int]) -> int:
        """In units that all distances of one aim share."""
        return sum(w * abs(c - a) for w, c, a in zip(self.weights, counts, self.wanted, strict=True))

    def change(self, place: int, counts: Sequence[int]) -> int:
        """By how many counts an output is moved; a switch by one or none."""
        moved = abs(counts[place] - self.wanted[place])
        return moved if self.weights[place] else int(moved > 0)

    def key(self, counts: Counts) -> Key:
        """The lesser, the nearer."""
        return (
            self.distance(counts),
            tuple(self.change(place, counts) for place in self.ties),
            tuple(abs(count - now) for count, now in zip(counts, self.present, strict=True)),
            counts,
        )


def _rank(tag: TagId, priority: Mapping[TagId, int]) -> tuple[int, str]:
    return -priority[tag], str(tag)


def _share(variable: Variable) -> Fraction:
    """Of its range, what one count of an output is."""
    if variable.sort in {"bool", "enum"}:
        return Fraction(0)
    low, high = variable.range
    return abs(variable.definition.scale) / (high - low) if high > low else Fraction(1)


def _present(variable: Variable, facts: Facts) -> int:
    definition = variable.definition
    return round((facts.old[variable.tag][0] - definition.offset) / definition.scale)
