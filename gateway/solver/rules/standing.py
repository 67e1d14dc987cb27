"""What a state set that is carried on from check to check stands on, by name: by these a change is told (S2).

A set that one rule set left behind is no premise of another that assumes less of a sensor or more of a
disturbance: intersected with it, a reading would be believed to be as good as it was said to be before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from gateway.solver.language import normal
from gateway.solver.language.syntax import For, timed
from gateway.solver.rules.canonical import form_text, formula_text, premises
from gateway.solver.rules.ruleset import RuleSet


def standing(rules: RuleSet) -> Mapping[str, str]:
    """A digest for each variable of the plant with its motion, and for each condition of a `for`."""
    if not rules.modules:
        return {}
    found = {"step": str(rules.modules[0].step)}
    for variable in rules.measured:
        taken = str(variable.definition.offset), str(variable.max_age), sorted(variable.accept_quality)
        moves = rules.forms.get(variable.tag)
        bands = [] if moves is None else [n for n in sorted(moves.symbols) if n in rules.disturbances]
        form = "" if moves is None else form_text(moves)
        motion = [form, [(n, *map(str, rules.disturbances[n])) for n in bands]]
        found[f"reading {variable.tag}"] = str([premises(variable), taken, motion])
    for asked in frozenset[For]().union(*(timed(rule.tree) for rule in rules.rules)):
        found[f"row {asked.row}"] = formula_text(normal.formula(asked.operand))
    return {name: hashlib.sha256(said.encode()).hexdigest() for name, said in found.items()}
