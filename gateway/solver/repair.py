"""The nearest permitted register values between the values in force and the proposal (S12)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from fractions import Fraction

from gateway.core.decision import Proposal, RegisterValue
from gateway.core.errors import RegisterRangeError
from gateway.core.restraint import Restraint
from gateway.core.tag import TagId
from gateway.solver.backup import register, toward
from gateway.solver.judge import Prepared
from gateway.solver.module import Variable
from gateway.solver.predict import Facts
from gateway.solver.restrain import Registers, as_proposal, kept_words, resolved, shifts, staying
from gateway.solver.ruleset import RuleSet

_MOST = 64  # combinations of booleans and whole numbers


def candidates(
    rules: RuleSet, prepared: Prepared, facts: Facts, proposal: Proposal, restraint: Restraint
) -> Iterator[Proposal]:
    """Register values that the interval pass permits, nearest first. Each still needs the whole check.

    What is kept back goes less far first; only where that is not permitted, as far as it may.
    """
    wanted = {v.tag: v for v in proposal.values}
    if prepared.hopeless(prepared.box(facts, proposal.engineering())):
        return
    tried = {proposal.values}
    for discrete in _combinations(rules, facts, wanted):
        target = wanted | discrete
        for found in _found(rules, prepared, facts, target, shifts(rules, facts, target, restraint)):
            for values in resolved(rules, facts, found, restraint):
                candidate = as_proposal(proposal, values)
                if candidate.values not in tried:
                    tried.add(candidate.values)
                    yield candidate


def released(
    rules: RuleSet, prepared: Prepared, facts: Facts, proposal: Proposal, restraint: Restraint
) -> tuple[Proposal, str] | None:
    """A permitted proposal that goes less far for what is kept back, and why; None where it may go on."""
    wanted = {v.tag: v for v in proposal.values}
    spare = shifts(rules, facts, wanted, restraint)
    if not spare:
        return None
    slacks = prepared.state_slacks(prepared.box(facts, _further(wanted, spare)))
    rule = min(slacks, key=lambda index: slacks[index], default=None)
    if rule is None or slacks[rule] >= 0:
        return None
    found = next(_found(rules, prepared, facts, wanted, spare), None)
    for values in () if found is None else resolved(rules, facts, found, restraint):
        name = prepared.plan.rules[rule].constraint.id
        return as_proposal(proposal, values), kept_words(rules, proposal, values, name)
    return None


def _found(
    rules: RuleSet, prepared: Prepared, facts: Facts, wanted: Registers, spare: Mapping[TagId, Fraction]
) -> Iterator[Registers]:
    """The nearest points to `wanted`: with something to spare, without moving what is kept back, plain."""
    if spare:
        nearest = _on_segment(rules, prepared, facts, wanted, spare)
        yield staying(rules, facts, wanted, spare) if nearest is None else nearest
    nearest = _on_segment(rules, prepared, facts, wanted, {})
    if nearest is not None:
        yield nearest


def _further(wanted: Registers, spare: Mapping[TagId, Fraction]) -> dict[TagId, Fraction]:
    return {tag: register.value + spare.get(tag, 0) for tag, register in wanted.items()}


def _combinations(
    rules: RuleSet, facts: Facts, wanted: Mapping[TagId, RegisterValue]
) -> Iterator[dict[TagId, RegisterValue]]:
    """Booleans and whole numbers as proposed, then changed where `repair` names them, fewest first."""
    options: list[list[tuple[int, Fraction, int, RegisterValue]]] = []
    for variable in rules.actions:
        if variable.sort == "real":
            continue
        mine = wanted[variable.tag]
        values = [mine]
        if variable.tag in rules.repairable:
            values += [r for k in variable.whole or () if (r := _register(variable, Fraction(k))) is not None]
        in_force = facts.old[variable.tag][0]
        unique = {r.raw: r for r in values}.values()
        options.append(
            sorted(
                (
                    int(r.raw != mine.raw),
                    abs(r.value - in_force) if r.raw != mine.raw else Fraction(0),
                    r.raw,
                    r,
                )
                for r in unique
            )
        )
    ranked = sorted(
        itertools.product(*options),
        key=lambda c: (sum(o[0] for o in c), sum(o[1] for o in c), [o[2] for o in c]),
    )
    for combination in ranked[:_MOST]:
        yield {o[3].tag: o[3] for o in combination}


def _register(variable: Variable, value: Fraction) -> RegisterValue | None:
    try:
        return register(variable, value)
    except RegisterRangeError:
        return None


def _on_segment(
    rules: RuleSet, prepared: Prepared, facts: Facts, wanted: Registers, spare: Mapping[TagId, Fraction]
) -> Registers | None:
    """The point nearest to `wanted` on the way from the values in force that the interval pass permits.

    With `spare` every rule about the plant's state must hold a stretch further as well.
    Every rule's slack is concave along the way (where it has no alternatives), so its slope says on which
    side of a violated point it can still hold.
    """
    reals = [v for v in rules.actions if v.sort == "real"]
    starts = {v.tag: facts.old[v.tag][0] for v in reals}
    moved = [abs(wanted[v.tag].raw - _counts(v, starts[v.tag])) for v in reals]
    parts = max(moved, default=0)
    stride = -(-parts // min((n for n in moved if n), default=1))  # so far that every output moves a count

    def point(index: int) -> dict[TagId, RegisterValue]:
        found = dict(wanted)
        for v in reals:
            start = starts[v.tag]
            if index < parts:
                found[v.tag] = toward(
                    v, start + (wanted[v.tag].value - start) * Fraction(index, parts), start
                )
        return found

    base = prepared.box(facts, {t: r.value for t, r in wanted.items()})

    def slacks(index: int) -> dict[int, Fraction]:
        here = point(index)
        found = prepared.movable_slacks(prepared.changed(facts, _further(here, {}), base))
        if spare:
            further = prepared.state_slacks(prepared.changed(facts, _further(here, spare), base))
            found |= {~rule: slack for rule, slack in further.items()}
        return found

    best: int | None = None
    low, high = 0, parts
    while low <= high:
        middle = high if best is None and high == parts else (low + high) // 2
        here = slacks(middle)
        worst = min(here, key=lambda rule: here[rule], default=None)
        if worst is None or here[worst] >= 0:
            best = middle
            low = middle + 1
            continue
        beside = middle + stride if middle + stride <= parts else middle - stride
        there = slacks(beside)[worst] if beside >= 0 else here[worst]
        if there == here[worst]:
            break  # at its best, and not good enough
        if (there > here[worst]) == (beside > middle):
            low = middle + 1
        else:
            high = middle - 1
    return point(best) if best is not None else None


def _counts(variable: Variable, value: Fraction) -> int:
    return round((value - variable.definition.offset) / variable.definition.scale)
