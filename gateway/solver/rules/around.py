"""A module as it is judged among others: what it assumes of a tag is no premise where they do not (S3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gateway.core.tag import TagId
from gateway.solver.language.affine import symbol
from gateway.solver.modules.module import Interval, Module
from gateway.solver.rules.ruleset import RuleSet


@dataclass(frozen=True, slots=True)
class Around:
    """What the modules in force make of the premises on the tags of one of them.

    `physical`: of each of those tags they know, the limits all of them vouch for. `moving`: those of the tags
    that some of them predict, beyond any limit.
    """

    physical: Mapping[TagId, Interval | None] = field(default_factory=dict)
    moving: frozenset[TagId] = frozenset()

    @staticmethod
    def of(in_force: RuleSet | None, *modules: Module) -> Around:
        """Around these modules, of which some may be in force; `in_force` None: nothing is."""
        if in_force is None:
            return Around()
        tags = {tag for module in modules for tag in module.tags.values()}
        known = {tag: in_force.variables[tag].physical for tag in tags if tag in in_force.variables}
        return Around(known, frozenset(tag for tag in tags if tag in in_force.forms))

    def seen(self, module: Module) -> RuleSet:
        """The module's rules alone, over premises that hold among the others. Its dynamics are not theirs."""
        alone = RuleSet.of([module], 0)
        variables = {
            tag: replace(v, physical=_both(v.physical, self.physical[tag])) if tag in self.physical else v
            for tag, v in alone.variables.items()
        }
        moving = {str(tag): symbol(str(tag)) for tag in self.moving if tag in variables}
        return replace(alone, variables=variables, forms={**moving, **alone.forms})


def _both(one: Interval | None, other: Interval | None) -> Interval | None:
    if one is None or other is None:
        return None
    return min(one[0], other[0]), max(one[1], other[1])
