"""The nearest permitted register values between the values in force and the proposal (S12)."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from gateway.core.decision import Proposal, RegisterValue
from gateway.core.errors import RegisterRangeError
from gateway.core.restraint import Restraint
from gateway.core.tag import TagId
from gateway.solver.checking.backup import register
from gateway.solver.checking.judge import Prepared
from gateway.solver.checking.predict import Facts
from gateway.solver.checking.restrain import Registers, as_proposal, kept_words, resolved, shifts, staying
from gateway.solver.modules.module import Variable
from gateway.solver.rules.ruleset import RuleSet

_MOST = 64  # combinations of booleans and whole numbers
_MOST_STRAIGHT = 8  # guesses that slacks are straight, before a way is halved


def candidates(
    rules: RuleSet, prepared: Prepared, facts: Facts, proposal: Proposal, restraint: Restraint
) -> Iterator[Proposal]:
    """Register values that the interval pass permits, nearest first. Each still needs the whole check.

    What is kept back goes less far first; only where that is not permitted, as far as it may.
    """
    wanted = {v.tag: v for v in proposal.values}
    if prepared.hopeless(prepared.look(facts, proposal.engineering()).within):
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
    slacks = prepared.of_the_state.slacks(prepared.box(facts, _further(wanted, spare)))
    rule = min(slacks, key=lambda index: slacks[index], default=None)
    if rule is None or slacks[rule] >= 0:
        return None
    found = next(_found(rules, prepared, facts, wanted, spare), None)
    for values in () if found is None else resolved(rules, facts, found, restraint):
        name = prepared.plan.rules[rule].constraint.id
        return as_proposal(proposal, values), kept_words(rules, proposal, values, name)
    return None


def between(
    rules: RuleSet, prepared: Prepared, facts: Facts, proven: Registers, wanted: Registers
) -> Registers | None:
    """The point nearest to `wanted` on the way from a permitted one that the interval pass permits.

    None where they differ in more than reals, or nothing but the permitted one itself is.
    """
    if any(proven[v.tag].raw != wanted[v.tag].raw for v in rules.actions if v.sort != "real"):
        return None
    way = _Way(rules, prepared, facts, wanted, {}, {tag: at.value for tag, at in proven.items()})
    best = way.farthest()
    return way.point(best) if best else None


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
    """The way from the values in force, or another point, to `wanted`.

    It has a part for each count of the output that moves most.

    Every rule's slack is concave along the way (where it has no alternatives), so its slope says on which
    side of a violated point it can still hold, and mostly straight, so that two points tell where it ends.
    A rule that must hold a stretch further as well has a second slack, by its complement.
    """

    def __init__(
        self,
        rules: RuleSet,
        prepared: Prepared,
        facts: Facts,
        wanted: Registers,
        spare: Mapping[TagId, Fraction],
        start: Mapping[TagId, Fraction] | None = None,
    ) -> None:
        """`start`: where the way begins in place of the values in force."""
        self._prepared, self._facts, self._wanted, self._spare = prepared, facts, wanted, spare
        begins = start if start is not None else {v.tag: facts.old[v.tag][0] for v in rules.actions}
        self._outputs = [_Output.of(v, begins[v.tag], wanted) for v in rules.actions if v.sort == "real"]
        moved = [abs(wanted[o.variable.tag].raw - round(o.start)) for o in self._outputs]
        self.parts = max(moved, default=0)
        self._stride = -(-self.parts // min((n for n in moved if n), default=1))  # every output moves a count
        self._base = prepared.look(facts, _further(wanted, {})).within
        self._points: dict[int, Registers] = {}
        self._slacks: dict[int, dict[int, int]] = {}

    def point(self, index: int) -> Registers:
        """The registers at one part of the way."""
        if index == self.parts:
            return self._wanted
        if index not in self._points:
            moved = {o.variable.tag: o.at(index, self.parts) for o in self._outputs}
            self._points[index] = {**self._wanted, **moved}
        return self._points[index]

    def farthest(self) -> int | None:
        """The last part at which every rule holds; None where there is none."""
        missed = self._missed(self.parts)
        if not missed:
            return self.parts
        fails = self.parts
        if min(self._of(0, missed).values()) >= 0:  # then perhaps nothing else is in the way
            guess = self._straight(0, fails, missed)
            others = self._missed(guess, missed)
            if not others:
                return self._between(guess, fails, missed)
            fails, missed = guess, others
        return self._sloping(0, self.parts) if self._missed(0, missed) else self._between(0, fails, missed)

    def _between(self, holds: int, fails: int, missed: Collection[int]) -> int:
        """The last part that holds, after one that does and before one that misses some rules."""
        tried = 0
        while fails - holds > 1:
            straight = self._straight(holds, fails, missed)
            middle = max(straight, holds + 1) if tried < _MOST_STRAIGHT else (holds + fails) // 2
            tried += 1
            there = self._missed(middle, missed)
            if there:
                fails, missed = middle, there
            else:
                holds = middle
        return holds

    def _straight(self, holds: int, fails: int, missed: Collection[int]) -> int:
        """The last part before `fails` at which rules missed there would hold, were their slacks straight."""
        first, last = self._of(holds, missed), self._of(fails, missed)
        ways = (first[rule] * (fails - holds) // (first[rule] - last[rule]) for rule in missed)
        return min(holds + min(ways), fails - 1)

    def _sloping(self, low: int, high: int) -> int | None:
        """The last part that holds where the first does not: the slopes of what fails say where to look."""
        while low <= high:
            middle = high if high == self.parts else (low + high) // 2
            missed = self._missed(middle)
            if not missed:
                return self._between(middle, high + 1, self._missed(high + 1))
            here = self._of(middle, missed)
            worst = min(here, key=lambda rule: here[rule])
            beside = middle + self._stride
            beside = beside if beside <= self.parts else middle - self._stride
            there = self._of(beside, [worst])[worst] if beside >= 0 else here[worst]
            if there == here[worst]:
                return None  # at its best, and not good enough
            if (there > here[worst]) == (beside > middle):
                low = middle + 1
            else:
                high = middle - 1
        return None

    def _missed(self, index: int, suspects: Iterable[int] = ()) -> tuple[int, ...]:
        """The rules that intervals do not show at a part; of `suspects` alone where it misses one of them."""
        found = tuple(rule for rule, slack in self._of(index, suspects).items() if slack < 0)
        return found or self._all_missed(index)

    def _all_missed(self, index: int) -> tuple[int, ...]:
        here = self.point(index)
        prepared = self._prepared
        near = prepared.look(self._facts, _further(here, {})).nearest
        perhaps = [rule for rule in prepared.binding if (n := near[rule]) is not None and n[1] < 0]
        found = [rule for rule, slack in self._of(index, perhaps).items() if slack < 0]
        if self._spare:
            box = prepared.changed(self._facts, _further(here, self._spare), self._base)
            found += [~rule for rule, slack in prepared.of_the_state.slacks(box).items() if slack < 0]
        return tuple(found)

    def _of(self, index: int, rules: Iterable[int]) -> dict[int, int]:
        """The slacks of some rules at a part, of those that a proposal can change."""
        known = self._slacks.setdefault(index, {})
        asked = [rule for rule in rules if rule not in known]
        for wanted, spare, part in (
            ([rule for rule in asked if rule >= 0], {}, self._prepared.movable),
            ([~rule for rule in asked if rule < 0], self._spare, self._prepared.of_the_state),
        ):
            if wanted:
                new = _further(self.point(index), spare)
                box = self._prepared.changed(self._facts, new, self._base, part.names(wanted))
                found = part.slacks_of(wanted, box)
                known.update((~rule if spare else rule, slack) for rule, slack in found.items())
        return {rule: known[rule] for rule in rules if rule in known}


@dataclass(frozen=True, slots=True)
class _Output:
    """One output on its way; `start` and where it is wanted in counts, which need not be whole."""

    variable: Variable
    start: Fraction
    wanted: int
    upward: bool  # a point between two registers goes to the upper one, as the way began there

    @staticmethod
    def of(variable: Variable, first: Fraction, wanted: Registers) -> _Output:
        definition = variable.definition
        register = wanted[variable.tag]
        upward = (first >= register.value) == (definition.scale > 0)
        return _Output(variable, (first - definition.offset) / definition.scale, register.raw, upward)

    def at(self, index: int, parts: int) -> RegisterValue:
        """The register at one part of so many, nearest to the straight line on the side of the start."""
        above, below = self.start.as_integer_ratio()
        counts, whole = above * parts + (self.wanted * below - above) * index, below * parts
        raw = -(-counts // whole) if self.upward else counts // whole
        definition = self.variable.definition
        if definition.raw_range is not None:
            raw = min(max(raw, definition.raw_range[0]), definition.raw_range[1])
        return RegisterValue(self.variable.tag, raw, definition.engineering(raw))
