"""The backup policy's own action, in register values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from math import ceil, floor, prod

from gateway.core.decision import Proposal, RegisterValue
from gateway.core.errors import RegisterRangeError
from gateway.solver.checking.predict import Facts
from gateway.solver.language.affine import negated
from gateway.solver.modules.module import Hold, Move, Ramp, Variable
from gateway.solver.rules.interval import outward, scaled
from gateway.solver.rules.ruleset import BackupStep, RuleSet

BACKUP = "backup"
_MOST = 16  # combinations tried where guards are ambiguous


def actions(rules: RuleSet, facts: Facts) -> Iterator[Proposal]:
    """What the backup may ask for now: several actions where a guard is not certain on the state set."""
    options: list[list[RegisterValue]] = []
    for variable in rules.actions:
        found: dict[int, RegisterValue] = {}
        for move in _moves(rules, facts, variable):
            for value in _targets(rules, facts, variable, move):
                register = toward(variable, value, facts.old[variable.tag][0])
                found.setdefault(register.raw, register)
        if not found:
            return
        options.append(list(found.values()))
    for values in itertools.islice(itertools.product(*options), _MOST):
        yield Proposal(values=values, by=BACKUP)


def toward(variable: Variable, value: Fraction, anchor: Fraction) -> RegisterValue:
    """The register value nearest to `value` on the side of `anchor`."""
    definition = variable.definition
    counts = (value - definition.offset) / definition.scale
    upward = (anchor >= value) == (definition.scale > 0)
    raw = ceil(counts) if upward else floor(counts)
    if definition.raw_range is not None:
        raw = min(max(raw, definition.raw_range[0]), definition.raw_range[1])
    return RegisterValue(variable.tag, raw, definition.engineering(raw))


def register(variable: Variable, value: Fraction) -> RegisterValue:
    """An engineering value as it would be written; raises `RegisterRangeError`."""
    raw = variable.definition.counts(value)
    return RegisterValue(variable.tag, raw, variable.definition.engineering(raw))


def in_force(rules: RuleSet, facts: Facts) -> list[Proposal] | None:
    """The values in force, written again; each that may be while a write is unconfirmed (S18).

    None where one has no register value, or there are too many.
    """
    values = [facts.old[v.tag] for v in rules.actions]
    if prod(map(len, values)) > _MOST:
        return None
    try:
        return [
            Proposal(values=tuple(map(register, rules.actions, each)), by="value_in_force")
            for each in itertools.product(*values)
        ]
    except RegisterRangeError:
        return None


def _moves(rules: RuleSet, facts: Facts, variable: Variable) -> Iterator[Move]:
    """Moves of the entries that may be the first to apply, most certain last."""
    for step in rules.backup:
        move = step.entry.moves.get(variable.tag)
        if move is None:
            continue
        applies = _applies(facts, step)
        if applies is not False:
            yield move
        if applies:
            return


def _applies(facts: Facts, step: BackupStep) -> bool | None:
    """Whether a guard holds on the whole state set: yes, no, or not certain."""
    if step.formula is None:
        return True
    box = {tag: outward(*interval) for tag, interval in facts.now.items()}
    for tag, values in facts.old.items():
        box[tag] = outward(min(values), max(values))
        box[f"prev({tag})"] = box[tag]
    if scaled(step.formula).slack(box).holds:
        return True
    return False if scaled(negated(step.formula)).slack(box).holds else None


def _targets(rules: RuleSet, facts: Facts, variable: Variable, move: Move) -> Iterator[Fraction]:
    match move:
        case Ramp(target, rate):
            step = rules.modules[0].step
            reach = [(value, rate * max(step, ago + step)) for value, ago in facts.history[variable.tag]]
            low, high = max(v - r for v, r in reach), min(v + r for v, r in reach)
            yield min(max(target, low), high)
        case Hold():
            yield from facts.old[variable.tag]
        case Fraction():
            yield move
