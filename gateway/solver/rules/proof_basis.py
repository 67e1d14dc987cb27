"""Everything the proof of a safe set depends on, as one digest."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from gateway.solver.language.affine import symbols
from gateway.solver.rules.canonical import form_text, formula_text, premises

if TYPE_CHECKING:
    from gateway.solver.rules.ruleset import Rule, RuleSet


def proof_digest(rules: RuleSet, *, as_written: bool) -> str:
    """Digest of everything the invariance of the safe set depends on, and of nothing else.

    `as_written`: as if no rule were overridden. A proof of that shows all that a proof under overrides must
    show: rules are what is shown, never what it is shown from, and the set, the backup and the premises are
    the same.
    """
    content: dict[str, object] = {
        "variables": {str(tag): premises(v) for tag, v in sorted(rules.variables.items())},
        "step": str(rules.modules[0].step) if rules.modules else "",
        "dynamics": {name: form_text(form) for name, form in sorted(rules.forms.items())},
        "disturbances": {n: [str(low), str(high)] for n, (low, high) in sorted(rules.disturbances.items())},
        "rules": sorted(
            ["standard" if r.overridden else r.constraint.kind, r.constraint.always, formula_text(r.formula)]
            for r in rules.rules
            if r.binding or (as_written and r.overridden)
        ),
        "safe_set": sorted(formula_text(r.formula) for r in rules.safe_set),
        "backup": [
            [
                formula_text(s.formula) if s.formula is not None else "",
                sorted(map(str, s.entry.moves.items())),
            ]
            for s in rules.backup
        ],
    }
    if newly_shown(rules):
        content["shown"] = "between instants, and of counts beyond their range"  # not all proofs before were
    declared = (".range", ".min_on", ".min_off")
    begins = (r for r in rules.rules_of_outputs if not r.constraint.id.endswith(declared))
    if rules.terminal and any(not rule.constraint.always for rule in begins):
        content["begins"] = "from any values in force"  # not all proofs before showed that
    if any(of_the_change(r) for r in rules.rules if r.binding or (as_written and r.overridden)):
        content["changes"] = "the backup's own, at every moment"  # proofs before asked for them at no moment
    if rules.terminal:
        content["terminal"] = sorted(formula_text(r.formula) for r in rules.terminal)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def of_the_change(rule: Rule) -> bool:
    """Whether a rule holds at every moment and asks what outputs were before: a ramp with `always`."""
    names = symbols(rule.formula)
    return rule.constraint.always and any(name.startswith(("prev(", "rate(")) for name in names)


def newly_shown(rules: RuleSet) -> bool:
    """Whether proofs did not always show all of it: counts with a rate, and what breaks between instants.

    That is a rule that always holds and is about what moves by dynamics and about what does not.
    """
    if any(v.sort != "real" and v.max_rate is not None for v in rules.measured):
        return True
    plant = {str(v.tag) for v in rules.measured}
    named = (symbols(rule.formula) & plant for rule in rules.rules if rule.constraint.always)
    return any(tags & rules.forms.keys() and tags - rules.forms.keys() for tags in named)
