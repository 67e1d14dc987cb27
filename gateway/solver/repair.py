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
_MOST_STRAIGHT = 8  # guesses that slacks are straight, before a way is halved


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
    """
    way = _Way(rules, prepared, facts, wanted, spare)
    best = way.farthest()
    return None if best is None else way.point(best)


class _Way:
    """The way from the values in force to `wanted`, a part for each count of the output that moves most.

    Every rule's slack is concave along the way (where it has no alternatives), so its slope says on which
    side of a violated point it can still hold, and mostly straight, so that two points tell where it ends.
    """

    def __init__(
        self,
        rules: RuleSet,
        prepared: Prepared,
        facts: Facts,
        wanted: Registers,
        spare: Mapping[TagId, Fraction],
    ) -> None:
        self._prepared, self._facts, self._wanted, self._spare = prepared, facts, wanted, spare
        self._reals = [v for v in rules.actions if v.sort == "real"]
        self._starts = {v.tag: facts.old[v.tag][0] for v in self._reals}
        moved = [abs(wanted[v.tag].raw - _counts(v, self._starts[v.tag])) for v in self._reals]
        self.parts = max(moved, default=0)
        self._stride = -(-self.parts // min((n for n in moved if n), default=1))  # every output moves a count
        self._base = prepared.box(facts, {t: r.value for t, r in wanted.items()})
        self._known: dict[int, dict[int, int]] = {}

    def point(self, index: int) -> dict[TagId, RegisterValue]:
        """The registers at one part of the way."""
        found = dict(self._wanted)
        if index < self.parts:
            for v in self._reals:
                start = self._starts[v.tag]
                there = start + (self._wanted[v.tag].value - start) * Fraction(index, self.parts)
                found[v.tag] = toward(v, there, start)
        return found

    def farthest(self) -> int | None:
        """The last part at which every rule holds; None where there is none."""
        if self._least(self.parts) >= 0:
            return self.parts
        return self._between(0, self.parts) if self._least(0) >= 0 else self._sloping(0, self.parts)

    def _between(self, holds: int, fails: int) -> int:
        """The last part that holds, after one that does and before one that does not."""
        tried = 0
        while fails - holds > 1:
            middle = self._straight(holds, fails) if tried < _MOST_STRAIGHT else (holds + fails) // 2
            tried += 1
            if self._least(middle) >= 0:
                holds = middle
            else:
                fails = middle
        return holds

    def _straight(self, holds: int, fails: int) -> int:
        """Where straight slacks would leave the last part that holds; the part beside an end at the least."""
        first, last = self._slacks(holds), self._slacks(fails)
        ways = (
            first[rule] * (fails - holds) // (first[rule] - slack)
            for rule, slack in last.items()
            if slack < 0
        )
        return min(max(holds + min(ways), holds + 1), fails - 1)

    def _sloping(self, low: int, high: int) -> int | None:
        """The last part that holds where the first does not: the slopes of what fails say where to look."""
        while low <= high:
            middle = high if high == self.parts else (low + high) // 2
            here = self._slacks(middle)
            worst = min(here, key=lambda rule: here[rule])
            if here[worst] >= 0:
                return self._between(middle, high + 1)
            beside = middle + self._stride
            beside = beside if beside <= self.parts else middle - self._stride
            there = self._slacks(beside)[worst] if beside >= 0 else here[worst]
            if there == here[worst]:
                return None  # at its best, and not good enough
            if (there > here[worst]) == (beside > middle):
                low = middle + 1
            else:
                high = middle - 1
        return None

    def _least(self, index: int) -> int:
        return min(self._slacks(index).values(), default=0)

    def _slacks(self, index: int) -> dict[int, int]:
        """By rule; a rule that must hold a stretch further as well has a second one, by its complement."""
        if index not in self._known:
            here = self.point(index)
            box = self._prepared.changed(self._facts, _further(here, {}), self._base)
            found = self._prepared.movable_slacks(box)
            if self._spare:
                box = self._prepared.changed(self._facts, _further(here, self._spare), self._base)
                further = self._prepared.state_slacks(box)
                found |= {~rule: slack for rule, slack in further.items()}
            self._known[index] = found
        return self._known[index]


def _counts(variable: Variable, value: Fraction) -> int:
    return round((value - variable.definition.offset) / variable.definition.scale)
