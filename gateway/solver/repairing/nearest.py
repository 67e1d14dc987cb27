"""The permitted proposal nearest to one that is not, on and off the way from the values in force (S12).

What the rules demand is folded to conditions on register counts; among the counts that fulfil them the
nearest are found, and judged like any proposal. Where the judge finds a violation that the conditions do not
tell of, they are told it, and the next nearest is looked for. Where that does not come to an end, a way that
begins at a permitted point is halved towards what was refused last.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import structlog

from gateway.core.decision import Proposal
from gateway.core.restraint import Restraint
from gateway.core.spans import Spans, holds
from gateway.solver.checking import repair
from gateway.solver.checking.judge import Judgement, Prepared
from gateway.solver.checking.predict import Facts
from gateway.solver.checking.restrain import Registers, as_proposal, resolved, shifts
from gateway.solver.decoding.counts import Condition, line, one_of
from gateway.solver.repairing.aim import Aim, Counts, Key
from gateway.solver.repairing.demands import Demands
from gateway.solver.repairing.domains import SWITCHES, domains, held, registers, turned, within
from gateway.solver.repairing.linear import LinearProgram
from gateway.solver.repairing.search import Allowance, fulfilled, in_order, nearest
from gateway.solver.repairing.slopes import Slopes
from gateway.solver.rules.ruleset import RuleSet

log = structlog.get_logger().bind(component="solver")

_MOST_TRIES = 16  # proposals judged for one repair
_MOST_LEARNT = 2  # violations of one refused block: the rules are folded once for each
_ANYTHING = 64, 512  # blocks that guesses had left out, and parts of the counts
_SOMETHING_NEARER = 16, 128  # the same where something was found
_MOST_PARTS = 256  # of the counts looked at for one of them: some 0.1 ms each
_MOST_TURNED = 64  # combinations of switches
_MOST_ON_THE_WAY = 4


@dataclass(frozen=True, slots=True)
class Question:
    """One proposal that is not permitted, and who says whether another one is."""

    prepared: Prepared
    facts: Facts
    proposal: Proposal
    restraint: Restraint
    refused: Judgement  # of the proposal itself
    judge: Callable[[Proposal], Judgement]  # the whole check
    late: Callable[[], bool]

    @property
    def wanted(self) -> Registers:
        """What is proposed, by output."""
        return {v.tag: v for v in self.proposal.values}


@dataclass(frozen=True, slots=True)
class Disagreed:
    """The linear program, or the conditions it is given, and the judge cannot both be right."""

    reason: str


Answer = Proposal | Disagreed | None


class Nearest:
    """Repairs of one rule set; one thread."""

    def __init__(self, rules: RuleSet, program: LinearProgram | None = None) -> None:
        self._rules = rules
        self._program = program if program is not None else LinearProgram()
        self._demands: tuple[Prepared, Demands] | None = None

    def warm(self, prepared: Prepared) -> None:
        """Make ready what every repair over a plan needs."""
        self._over(prepared)

    def repaired(self, asked: Question) -> Answer:
        """A proposal that the judge permits; None where none was found in time."""
        look = _Look(self._rules, asked, self._over(asked.prepared), self._program)
        for room in look.rooms():
            found = look.into(room)
            if found is not None:
                return found
            if asked.late():
                return None
        return look.on_the_way()

    def _over(self, prepared: Prepared) -> Demands:
        if self._demands is None or self._demands[0] is not prepared:
            self._demands = prepared, Demands(self._rules, prepared)
        return self._demands[1]


@dataclass(frozen=True, slots=True)
class _Room:
    """Where to look: the counts of each output, and conditions beside what the rules demand."""

    allowed: Sequence[Spans]
    conditions: Sequence[Condition] = ()
    everything: bool = False  # that a repair may do at all


@dataclass(slots=True)
class _Look:
    """The search for one repair."""

    rules: RuleSet
    asked: Question
    demands: Demands
    program: LinearProgram
    aim: Aim = field(init=False)
    allowed: tuple[Spans, ...] = field(init=False)
    slopes: Slopes = field(init=False)
    known: list[Condition] = field(init=False)  # what every permitted block fulfils
    guesses: list[Condition] = field(default_factory=list)  # what permitted blocks mostly fulfil
    exact: bool = field(init=False)  # every block that does is permitted
    nothing: bool = False  # it was shown that no block is left
    last: Counts | None = None  # refused by the judge
    tries: int = 0

    def __post_init__(self) -> None:
        asked = self.asked
        self.aim = Aim.of(self.rules, asked.facts, asked.wanted)
        self.allowed = domains(self.rules, asked.facts, asked.wanted, asked.restraint)
        self.slopes = Slopes(self.rules, asked.prepared, asked.facts)
        self.known, why = self.demands.everywhere(asked.facts)
        self.exact = not why
        if not self.exact and self._fulfilled(self.aim.wanted):
            self._learn(asked.refused, self.aim.wanted)

    def rooms(self) -> Iterator[_Room]:
        """With something to spare for what is kept back, then without moving that, then everything (S12)."""
        asked = self.asked
        if not all(self.allowed):
            return
        spare = shifts(self.rules, asked.facts, asked.wanted, asked.restraint)
        if spare:
            yield _Room(self.allowed, self.demands.further(asked.facts, spare))
            yield _Room(held(self.rules, asked.facts, self.allowed, spare))
        yield _Room(self.allowed, everything=True)

    def into(self, room: _Room) -> Answer:
        """The nearest permitted proposal in one room."""
        found = self._led(room)
        if self.nothing or not self.guesses or isinstance(found, Disagreed):
            return found
        return self._one_by_one(room, found)

    def _led(self, room: _Room) -> Answer:
        """What is found with the help of guesses: where there were some, something else may be nearer."""
        self.guesses = []
        while self.tries < _MOST_TRIES:
            counts, complete = self._nearest(room)
            if counts is None:
                self.nothing = complete and room.everything and not self.guesses
                return None
            if self.asked.late():
                return None
            judged = self._judged(counts)
            if judged.permitted:
                return self._proposal(counts)
            if self.exact and not judged.undecided:
                return _disagreed("the judge refuses what fulfils every condition of the repair")
            self.last = counts
            if not self._learn(judged, counts):
                self.guesses += self.slopes.cuts(counts, room.allowed)
        return None

    def _one_by_one(self, room: _Room, found: Answer) -> Answer:
        """What was found, or something nearer, or anything, that the guesses had left out."""
        self.guesses = []
        farthest = self._turns_and_key(found) if isinstance(found, Proposal) else None
        doubtful: list[Counts] = []
        for turns, counts in self._in_order(room, *(_ANYTHING if farthest is None else _SOMETHING_NEARER)):
            here = turns, self.aim.key(counts)
            if self.asked.late() or (
                farthest is not None and (here[0], here[1][0]) > (farthest[0], farthest[1][0])
            ):
                break
            if farthest is not None and here >= farthest:
                continue
            if not self.slopes.holds(counts):
                doubtful.append(counts)
            elif self._judged(counts).permitted:
                return self._proposal(counts)
        if found is None:
            while doubtful and self.tries < _MOST_TRIES and not self.asked.late():
                if self._judged(counts := doubtful.pop(0)).permitted:
                    return self._proposal(counts)
        return found

    def _proposal(self, counts: Counts) -> Proposal:
        return as_proposal(self.asked.proposal, registers(self.rules, counts))

    def _judged(self, counts: Counts) -> Judgement:
        self.tries += 1
        return self.asked.judge(self._proposal(counts))

    def on_the_way(self) -> Answer:
        """A permitted proposal between the values in force and what was asked, or nearer than that one."""
        proven = self._permitted(
            itertools.islice(
                repair.candidates(
                    self.rules,
                    self.asked.prepared,
                    self.asked.facts,
                    self.asked.proposal,
                    self.asked.restraint,
                ),
                _MOST_ON_THE_WAY,
            )
        )
        if proven is None:
            return None
        if self.nothing and self._allows(_counts(self.rules, proven)):
            return _disagreed("nothing was found to be permitted, and the judge permits something")
        return self._nearer(proven)

    def _nearer(self, proven: Proposal) -> Proposal:
        if self.last is None or self.asked.late():
            return proven
        asked, at = self.asked, {v.tag: v for v in proven.values}
        beyond = registers(self.rules, self.last)
        found = repair.between(self.rules, asked.prepared, asked.facts, at, beyond)
        if found is None:
            return proven
        each = resolved(self.rules, asked.facts, found, asked.restraint)
        better = self._permitted(as_proposal(asked.proposal, values) for values in each)
        if better is None:
            return proven
        return min(better, proven, key=lambda p: self.aim.key(_counts(self.rules, p)))

    def _permitted(self, candidates: Iterator[Proposal]) -> Proposal | None:
        for candidate in candidates:
            if self.asked.late():
                return None
            if self.asked.judge(candidate).permitted:
                return candidate
        return None

    def _allows(self, counts: Counts) -> bool:
        return all(holds(spans, count) for spans, count in zip(self.allowed, counts, strict=True))

    def _nearest(self, room: _Room) -> tuple[Counts | None, bool]:
        """The nearest counts with the fewest switches turned, and whether all there are were looked at."""
        best: Counts | None = None
        fewest = 0
        allowance = Allowance(_MOST_PARTS, self.asked.late)
        conditions = [*self.known, *self.guesses, *room.conditions]
        for number, (many, allowed) in enumerate(turned(self.rules, room.allowed, self.asked.wanted)):
            if best is not None and many > fewest:
                return best, True
            if number >= _MOST_TURNED or allowance.spent:
                return best, False
            box, gaps = within(allowed)
            most = None if best is None else self.aim.distance(best)
            found = nearest(self.aim, box, [*gaps, *conditions], self.program, allowance, most)
            if found is not None and (best is None or self.aim.key(found) < self.aim.key(best)):
                best, fewest = found, many
        return best, not allowance.spent

    def _fulfilled(self, counts: Counts) -> bool:
        return all(fulfilled(condition, counts) for condition in self.known)

    def _in_order(self, room: _Room, blocks: int, parts: int) -> Iterator[tuple[int, Counts]]:
        """So many counts that may be permitted with how many switches they turn, the nearest first."""
        return itertools.islice(self._all_in_order(room, parts), blocks)

    def _all_in_order(self, room: _Room, parts: int) -> Iterator[tuple[int, Counts]]:
        allowance = Allowance(parts, self.asked.late)
        conditions = [*self.known, *room.conditions]
        combinations = turned(self.rules, room.allowed, self.asked.wanted)
        for many, allowed in itertools.islice(combinations, _MOST_TURNED):
            box, gaps = within(allowed)
            for counts in in_order(self.aim, box, [*gaps, *conditions], self.program, allowance):
                yield many, counts

    def _turns_and_key(self, found: Proposal) -> tuple[int, Key]:
        counts = _counts(self.rules, found)
        switches = [k for k, v in enumerate(self.rules.actions) if v.sort in SWITCHES]
        return sum(counts[k] != self.aim.wanted[k] for k in switches), self.aim.key(counts)

    def _learn(self, judged: Judgement, counts: Counts) -> bool:
        """What a refusal says of every block; where that leaves this one in, that too: False."""
        new = [
            condition
            for shown in judged.violated[:_MOST_LEARNT]
            for condition in self.demands.at(self.asked.facts, shown.finding.witness)
        ]
        self.known += [condition for condition in dict.fromkeys(new) if condition not in self.known]
        if not self._fulfilled(counts):
            return True
        self.known.append(_not(counts))
        return False


def _not(counts: Counts) -> Condition:
    """That a block is another one."""
    sides = ((line({k: 1}, c - 1), line({k: -1}, -c - 1)) for k, c in enumerate(counts))
    return one_of(itertools.chain.from_iterable(sides))


def _disagreed(reason: str) -> Disagreed:
    log.error("judges_disagreed", said=reason)
    return Disagreed(f"the search for a repair and the exact judge disagree: {reason}")


def _counts(rules: RuleSet, proposal: Proposal) -> Counts:
    raw = {v.tag: v.raw for v in proposal.values}
    return tuple(raw[v.tag] for v in rules.actions)
