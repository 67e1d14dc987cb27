"""One course of events walked through instant by instant, every rule judged on the way.

Between two instants everything moves on a straight line: along the old values' dynamics until the proposal
acts, along the proposal's after it. Instants are whole steps, the effect delay and the end of the hold.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.recheck.book import Book, Rule, World
from gateway.recheck.numbers import Units
from gateway.recheck.source import moved
from gateway.recheck.unknowns import Course

_LONGEST = 4096  # bits of the unit after which common factors are taken out
Acting = list[tuple[int, int]]  # place, value in the course's unit


@dataclass(frozen=True, slots=True)
class Segment:
    """From one instant to the next: parts of it, of `whole` of a step, with the old and the new values."""

    old: int
    new: int
    whole: int


@dataclass(frozen=True, slots=True)
class Timing:
    """Instants of a course; from `acting` on the backup acts, for a step each. `delay`: the latest effect."""

    cuts: tuple[Fraction, ...]
    acting: int
    step: Fraction
    delay: Fraction

    def segments(self, switch: Fraction) -> list[Segment]:
        """What acts between the instants when the proposal takes effect at `switch`."""
        found = []
        for before, after in itertools.pairwise(self.cuts[: self.acting + 1]):
            old = max(Fraction(0), min(switch, after) - before) / self.step
            new = (after - before) / self.step - old
            whole = math.lcm(old.denominator, new.denominator)
            found.append(Segment(int(old * whole), int(new * whole), whole))
        return found


def timing(step: Fraction, horizon: int, terminal: int, delay: Fraction, hold: Fraction) -> Timing:
    """Instants at which rules are judged; `terminal` steps of the backup follow the hold."""
    if not horizon:
        return Timing((Fraction(0),), 0, step, delay)
    end = max(delay + hold, step)
    whole = (step * k for k in range(1, int(end / step) + 1))
    cuts = sorted({Fraction(0), end, *(t for t in (delay, *whole) if 0 < t < end)})
    later = (end + step * k for k in range(1, terminal + 1))
    return Timing((*cuts, *later), len(cuts) - 1, step, delay)


@dataclass(slots=True)
class Walker:
    """Walks courses; `judge` is told each rule that fails, when, and with which values."""

    book: Book
    timing: Timing
    unit: int
    fixed: Mapping[int, int]  # by place, in the unit
    errors: Mapping[str, int]  # of the sensors, in the unit
    proposal: Mapping[str, int]
    failed: Callable[[Rule, Fraction, Units], None]
    snapshot: list[Rule] = field(init=False)
    always: list[Rule] = field(init=False)
    as_before: list[Rule] = field(init=False)  # what the values in force must keep too
    runs: int = 0

    def __post_init__(self) -> None:
        self.snapshot, self.always = list(self.book.snapshot), list(self.book.always)
        self.as_before = [rule for rule in self.always if not rule.past]

    def walk(self, world: World, course: Course, switch: Fraction) -> None:
        """One course of events in which the proposal takes effect at `switch`."""
        self.runs += 1
        old = [(self._place(tag), value) for (of, tag), value in course.at_first.items() if of == "old"]
        new = list({**dict(old), **{self._place(tag): value for tag, value in self.proposal.items()}}.items())
        run = _Run(self, world, course, [0] * (len(self.book.layout.places) + 1))
        run.begin()
        if switch:
            run.judge(self.as_before, old, Fraction(0))
        else:
            run.judge(self.snapshot, new, Fraction(0))
            run.judge(self.always, new, Fraction(0))
        for k, segment in enumerate(self.timing.segments(switch)):
            until = self.timing.cuts[k + 1]
            run.advance(k, segment, old, new, switch)
            if switch >= until:
                run.judge(self.as_before, old, until)
            if switch <= until:
                run.judge(self.always, new, until)
        if self.timing.acting:
            run.judge(self.book.safe, new, self.timing.cuts[self.timing.acting])
        if self.book.terminal:
            run.back(new)

    def forget(self, rule: Rule) -> None:
        """A rule that was found to fail is not judged again."""
        for rules in (self.snapshot, self.always, self.as_before, self.book.safe, self.book.terminal):
            rules[:] = [other for other in rules if other.name != rule.name]

    def _place(self, tag: str) -> int:
        return self.book.layout.place("now", tag)


@dataclass(slots=True)
class _Run:
    walker: Walker
    world: World
    course: Course
    e: Units
    finer: int = 1  # units now per unit of the course
    roaming: list[tuple[int, Sequence[int], Sequence[int]]] = field(default_factory=list)
    disturbing: list[tuple[int, Sequence[int]]] = field(default_factory=list)

    def begin(self) -> None:
        """The snapshot."""
        layout, e, course = self.walker.book.layout, self.e, self.course
        e[0] = self.walker.unit
        for place, value in self.walker.fixed.items():
            e[place] = value
        for (op, name), value in course.at_first.items():
            if (op, name) in layout.places:
                e[layout.places[op, name]] = value
            if op == "old":
                e[layout.places["prev", name]] = value
        moving = {place for place, _, _ in self.world.moving}
        self.roaming = [
            (layout.places["now", tag], path, course.means[tag])
            for tag, path in course.paths.items()
            if ("now", tag) in layout.places and layout.places["now", tag] not in moving
        ]
        self.disturbing = [
            (layout.places["now", name], values)
            for name, values in course.disturbances.items()
            if ("now", name) in layout.places
        ]

    def judge(self, rules: Sequence[Rule], acting: Acting, at: Fraction) -> None:
        """Every rule at one instant."""
        e = self.e
        self._act(e, acting)
        for rule in tuple(rules):  # what fails is taken out
            if not rule.holds(e):
                self.walker.failed(rule, at, e)

    def _act(self, e: Units, acting: Acting) -> None:
        for place, value in acting:
            e[place] = value * self.finer

    def advance(self, k: int, segment: Segment, old: Acting, new: Acting, switch: Fraction) -> None:
        """To the next instant."""
        e, world = self.e, self.world
        for place, _, means in self.roaming:
            e[place] = means[k] * self.finer
        for place, values in self.disturbing:
            e[place] = values[k] * self.finer
        before = [e[place] for place, _, _ in world.moving]
        ways = []
        for acting, part in ((old, segment.old), (new, segment.new)):
            if part:
                self._act(e, acting)
                ways.append([part * (of(e) * ratio - e[at] * world.share) for at, of, ratio in world.moving])
        times = world.share * segment.whole
        self._refine(times)
        if segment.old and segment.new:
            self._at_switch(
                k, [b * times + w for b, w in zip(before, ways[0], strict=True)], old, new, switch
            )
        for index, (place, _, _) in enumerate(world.moving):
            self.e[place] = before[index] * times + sum(way[index] for way in ways)
        for place, path, _ in self.roaming:
            self.e[place] = path[k + 1] * self.finer
        if self.e[0].bit_length() > _LONGEST:
            self._coarsen()

    def _at_switch(self, k: int, state: Sequence[int], old: Acting, new: Acting, switch: Fraction) -> None:
        """The moment inside a segment at which the new values take over."""
        cuts = self.walker.timing.cuts
        share = (switch - cuts[k]) / (cuts[k + 1] - cuts[k])
        for (place, _, _), value in zip(self.world.moving, state, strict=True):
            self.e[place] = value
        for place, path, _ in self.roaming:
            way = path[k + 1] - path[k]
            gone = abs(way) * share.numerator // share.denominator
            self.e[place] = (path[k] + (gone if way >= 0 else -gone)) * self.finer
        self.judge(self.walker.as_before, old, switch)
        self.judge(self.walker.always, new, switch)

    def _refine(self, times: int) -> None:
        self.e[:] = [value * times for value in self.e]
        self.finer *= times

    def _coarsen(self) -> None:
        common = math.gcd(self.finer, *self.e)
        self.e[:] = [value // common for value in self.e]
        self.finer //= common

    def back(self, acting: Acting) -> None:
        """The backup for the rest of the horizon, and the terminal set at its end."""
        timing = self.walker.timing
        now = dict(acting)
        for k in range(timing.acting, len(timing.cuts) - 1):
            now = self._backed(now)
            steps = list(now.items())
            self.judge(self.walker.as_before, steps, timing.cuts[k])
            self.advance(k, Segment(0, 1, 1), [], steps, timing.cuts[k])
            self.judge(self.walker.as_before, steps, timing.cuts[k + 1])
        self.judge(self.walker.book.terminal, list(now.items()), timing.cuts[-1])

    def _backed(self, acting: Mapping[int, int]) -> dict[int, int]:
        """What the backup writes, reading what the sensors may show (S1)."""
        e, book, walker = list(self.e), self.walker.book, self.walker
        self._act(e, list(acting.items()))
        for (op, tag), turn in self.course.at_first.items():
            if op == "turn" and ("now", tag) in book.layout.places:
                e[book.layout.places["now", tag]] += turn * walker.errors[tag] * self.finer // walker.unit
        after, done = dict(acting), set()
        for guard, move in book.guards:
            if guard is not None and not guard(e):
                continue
            for tag, text in move.moves.items():
                place = book.layout.place("now", tag)
                if place not in done and place in acting:
                    done.add(place)
                    value = moved(text, Fraction(acting[place], walker.unit), walker.timing.step)
                    after[place] = value.numerator * walker.unit // value.denominator
        return after
