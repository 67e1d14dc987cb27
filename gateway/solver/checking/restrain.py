"""Small changes and early releases held back (S12). Whatever comes out still needs the whole check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from gateway.core.decision import Proposal, RegisterValue
from gateway.core.restraint import Restraint
from gateway.core.tag import TagId
from gateway.solver.checking.backup import toward
from gateway.solver.checking.predict import Facts
from gateway.solver.checking.report import quantity
from gateway.solver.modules.module import Variable
from gateway.solver.rules.ruleset import RuleSet

Registers = Mapping[TagId, RegisterValue]


def resolved(rules: RuleSet, facts: Facts, wanted: Registers, restraint: Restraint) -> Iterator[Registers]:
    """`wanted` without changes too small to write: held at the value in force, or else made large enough.

    An output whose value in force is not certain is left alone. `wanted` itself where nothing is too small.
    """
    small = [v for v in rules.actions if _too_small(facts, wanted[v.tag], restraint.least_change)]
    if not small:
        yield wanted
        return
    yield {**wanted, **{v.tag: _in_force(v, facts) for v in small}}
    moved = {v.tag: _least_move(v, facts, wanted[v.tag], restraint.least_change[v.tag]) for v in small}
    large = {tag: register for tag, register in moved.items() if register is not None}
    if len(large) == len(small):
        yield {**wanted, **large}


def shifts(rules: RuleSet, facts: Facts, wanted: Registers, restraint: Restraint) -> dict[TagId, Fraction]:
    """How much further than proposed each output that is kept back must be able to go, in its own unit.

    Only reals that go back towards what was proposed when they were kept back: switches and whole numbers
    have their minimum times, and nothing holds an output that moves the other way.
    """
    found: dict[TagId, Fraction] = {}
    for v in rules.actions:
        kept = restraint.kept_back.get(v.tag, 0)
        if kept and v.sort == "real" and kept * (wanted[v.tag].value - facts.old[v.tag][0]) < 0:
            found[v.tag] = -kept * restraint.margin * (v.range[1] - v.range[0])
    return {tag: shift for tag, shift in found.items() if shift}


def staying(rules: RuleSet, facts: Facts, wanted: Registers, tags: Mapping[TagId, Fraction]) -> Registers:
    """`wanted` with some outputs at their values in force."""
    return {**wanted, **{v.tag: _in_force(v, facts) for v in rules.actions if v.tag in tags}}


def as_proposal(proposal: Proposal, values: Registers) -> Proposal:
    """The proposal with other register values."""
    return replace(proposal, values=tuple(values[v.tag] for v in proposal.values))


def kept_words(rules: RuleSet, proposal: Proposal, values: Registers, rule: str) -> str:
    """Why some outputs go less far than proposed, for people."""
    told = [
        f"`{v.tag}` goes to {quantity(values[v.tag].value, rules.variables[v.tag].unit)} only, "
        f"not to {quantity(v.value, rules.variables[v.tag].unit)}"
        for v in proposal.values
        if values[v.tag].raw != v.raw
    ]
    return f"{'; '.join(told)}: it was kept back lately, and `{rule}` would hold with too little to spare"


def _too_small(facts: Facts, wanted: RegisterValue, least: Mapping[TagId, Fraction]) -> bool:
    old, smallest = facts.old[wanted.tag], least.get(wanted.tag)
    return smallest is not None and len(old) == 1 and 0 < abs(wanted.value - old[0]) < smallest


def _in_force(variable: Variable, facts: Facts) -> RegisterValue:
    value = facts.old[variable.tag][0]
    return toward(variable, value, value)


def _least_move(
    variable: Variable, facts: Facts, wanted: RegisterValue, least: Fraction
) -> RegisterValue | None:
    """The register value at least `least` away from the one in force, or None where the range ends before."""
    old = facts.old[variable.tag][0]
    step = least if wanted.value > old else -least
    found = toward(variable, old + step, old + 2 * step)
    low, high = variable.range
    return found if abs(found.value - old) >= least and low <= found.value <= high else None
