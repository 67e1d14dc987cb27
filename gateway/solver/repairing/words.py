"""A repair in words: what was asked, what is permitted, while what is measured, because of which rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gateway.core.decision import Proposal, RegisterValue, Violated
from gateway.core.tag import TagId, TagValue, exact
from gateway.solver.language.syntax import references
from gateway.solver.modules.module import Variable
from gateway.solver.rules.ruleset import Rule, RuleSet

_MOST_READINGS = 4
_MOST_REASONS = 3


def told(
    rules: RuleSet,
    inputs: Mapping[TagId, TagValue],
    asked: Proposal,
    permitted: Proposal,
    because: Sequence[Violated],
) -> str:
    """`P101` asked 82 %, permitted up to 78 %, while `FT101` = 12 m3/h, because of `no-overflow` (file:line).

    `because` lists what the proposal violates, the worst first.
    """
    reasons = because[:_MOST_REASONS]
    at = {v.tag: v for v in permitted.values}
    moved = [_moved(rules.variables[v.tag], v, at[v.tag]) for v in asked.values if at[v.tag].raw != v.raw]
    readings = list(_readings(rules, inputs, reasons))[:_MOST_READINGS]
    during = f", while {', '.join(readings)}" if readings else ""
    rest = f" and {len(because) - len(reasons)} more" if len(because) > len(reasons) else ""
    told_rules = ", ".join(f"`{found.constraint}` ({found.where})" for found in reasons)
    return f"{'; '.join(moved)}{during}, because of {told_rules}{rest}"


def _moved(variable: Variable, asked: RegisterValue, permitted: RegisterValue) -> str:
    side = ""
    if variable.sort == "real":
        side = "up to " if permitted.value < asked.value else "from "
    there = f"{side}{variable.text(permitted.value)}"
    return f"`{variable.tag}` asked {variable.text(asked.value)}, permitted {there}"


def _readings(rules: RuleSet, inputs: Mapping[TagId, TagValue], because: Sequence[Violated]) -> Iterator[str]:
    """The measured values that rules are about, at once or by way of the dynamics."""
    for tag in sorted(set[str]().union(*(_about(rules, found) for found in because))):
        variable, sample = rules.variables[TagId(tag)], inputs.get(TagId(tag))
        if variable.action or sample is None or isinstance(sample.value, str) or sample.value is None:
            continue
        yield f"`{tag}` = {variable.text(exact(sample.value))}"


def _about(rules: RuleSet, because: Violated) -> set[str]:
    """The tags of a rule, and those that move them."""
    rule = next((r for r in _everything(rules) if _is(r, because)), None)
    named = set() if rule is None else {reference.name for reference in references(rule.tree)}
    moving = {n for tag in named & rules.forms.keys() for n in rules.forms[tag].terms}
    return {tag for tag in named | moving if tag in rules.variables}


def _everything(rules: RuleSet) -> tuple[Rule, ...]:
    return (*rules.rules, *rules.safe_set, *rules.terminal)


def _is(rule: Rule, found: Violated) -> bool:
    return (rule.module, rule.constraint.id) == (found.module, found.constraint)
