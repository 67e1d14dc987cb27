"""One course of events walked through instant by instant, every rule judged on the way.

Between two instants everything moves on a straight line: along the old values' dynamics until the proposal
acts, along the proposal's after it, along the backup's once that has taken over. Instants are whole steps,
the effect delay and the end of the hold; behind that the steps of the backup. Where something takes over
between two of them rules are judged there, too. The backup moves when it takes over, and once a step after.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.recheck.book import Book, Rule, World
from gateway.recheck.numbers import Units
from gateway.recheck.source import moved
from gateway.recheck.unknowns import Course

_LONGEST = 4096  # bits of the unit after which common factors are taken out
Acting = list[tuple[int, int]]  # place, value in the course's unit


@dataclass(frozen=True, slots=True)
class Timing:
    """Instants of a course; from `acting` on the proposal has had its time. `delay`: the latest effect."""

    cuts: tuple[Fraction, ...]
    acting: int
    step: Fraction
    delay: Fraction

    @property
    def end(self) -> Fraction:
        """Of the proposal's time."""
        return self.cuts[self.acting]

    def moves(self, falls: Fraction, k: int) -> Iterator[Fraction]:
        """When in a segment the backup moves that takes over at `falls`; its end is the next one's."""
        before, after = self.cuts[k], self.cuts[k + 1]
        at = falls + self.step * max(0, math.ceil((before - falls) / self.step))
        while at < after:
            yield at
            at += self.step


def timing(step: Fraction, horizon: int, terminal: int, delay: Fraction, hold: Fraction) -> Timing:
    """Instants at which rules are judged; `terminal` steps of the backup follow the hold."""
    if not horizon:
        return Timing((Fraction(0),), 0, step, delay)
    end = max(delay + hold, step)
    whole = (step * k for k in range(1, int(end / step) + 1))
    cuts = sorted({Fraction(0), end, *(t for t in (delay, *whole) if 0 < t < end)})
    later = (end + step * k for k in range(1, terminal + 1))
    return Timing((*cuts, *later), len(cuts) - 1, step, delay)


@dataclass(frozen=True, slots=True)
class Turns:
    """When in a segment something takes over, its start first; parts of `whole` of a step from each on."""

    times: tuple[Fraction, ...]
    until: Fraction
    moves: frozenset[Fraction]  # those at which it is the backup
    parts: tuple[int, ...]
    whole: int


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
    jumping: Collection[str] = ()  # tags without a rate
    stepping: Collection[str] = ()  # tags that have no values between two of theirs
    snapshot: list[Rule] = field(init=False)
    always: list[Rule] = field(init=False)
    as_before: list[Rule] = field(init=False)  # what the values in force must keep too
    runs: int = 0
    # INVARIANT: holds only what its keys tell, of one question's few moments.
    _turns: dict[tuple[int, Fraction, Fraction | None], Turns] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.snapshot, self.always = list(self.book.snapshot), list(self.book.always)
        self.as_before = [rule for rule in self.always if not rule.past]

    def walk(self, world: World, course: Course, switch: Fraction, falls: Fraction | None = None) -> None:
        """One course of events in which the proposal takes effect at `switch`.

        The backup takes over at `falls`, not before that; None: it does not.
        """
        self.runs += 1
        old = [(self._place(tag), value) for (of, tag), value in course.at_first.items() if of == "old"]
        new = list({**dict(old), **{self._place(tag): value for tag, value in self.proposal.items()}}.items())
        run = _Run(self, world, course, [0] * (len(self.book.layout.places) + 1), old, new, switch, falls)
        run.begin()
        if switch:
            run.judge(self.as_before, old, Fraction(0))
        else:
            run.judge(self.snapshot, new, Fraction(0))
            run.judge(self.always, new, Fraction(0))
            if not self.timing.delay and self.timing.acting:
                run.judge(self.book.safe, new, Fraction(0))
        segments = self.timing.acting if falls is None else len(self.timing.cuts) - 1
        for k in range(segments):
            run.through(k)
        if falls is not None:
            run.judge(self.book.terminal, run.acting if segments else new, self.timing.cuts[-1])

    def turns(self, k: int, switch: Fraction, falls: Fraction | None) -> Turns:
        """Of one segment."""
        key = (k, switch, falls)
        if key not in self._turns:
            timing = self.timing
            start, until = timing.cuts[k], timing.cuts[k + 1]
            moves = frozenset(timing.moves(falls, k)) if falls is not None else frozenset[Fraction]()
            times = sorted({start, *moves, *([switch] if start < switch < until else [])})
            parts = [(after - at) / timing.step for at, after in itertools.pairwise([*times, until])]
            whole = math.lcm(*(part.denominator for part in parts))
            self._turns[key] = Turns(
                tuple(times), until, moves, tuple(int(part * whole) for part in parts), whole
            )
        return self._turns[key]

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
    old: Acting
    new: Acting
    switch: Fraction
    falls: Fraction | None
    backed: dict[int, int] | None = None  # what the backup does, once it does
    acting: Acting = field(init=False)
    finer: int = 1  # units now per unit of the course
    roaming: list[tuple[int, Sequence[int], Sequence[int]]] = field(default_factory=list)
    jumping: Collection[int] = ()  # places of what may be anywhere at once
    stepping: Collection[int] = ()  # places of what stays until it is another value
    disturbing: list[tuple[int, Sequence[int]]] = field(default_factory=list)

    def begin(self) -> None:
        """The snapshot."""
        self.acting = self.old if self.switch else self.new
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
        self.jumping = {
            layout.places["now", tag] for tag in self.walker.jumping if ("now", tag) in layout.places
        }
        self.stepping = {
            layout.places["now", tag] for tag in self.walker.stepping if ("now", tag) in layout.places
        }
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

    def through(self, k: int) -> None:
        """To the next instant; rules are judged there, and where something takes over on the way."""
        world, turns = self.world, self.walker.turns(k, self.switch, self.falls)
        start, until, moves, whole = turns.times[0], turns.until, turns.moves, turns.whole
        if start >= self.switch and self.backed is None:
            self.acting = self.new
        if start in moves:
            self._take_over(start)
        times = world.share * whole
        self._jump(k)
        self._during(k)
        state = [self.e[place] * times for place, _, _ in world.moving]
        for at, part in zip(turns.times, turns.parts, strict=True):
            if at > start:
                self._turn(k, at, state, times, moves)
            self._act(self.e, self.acting)
            ways = (of(self.e) * ratio - self.e[place] * world.share for place, of, ratio in world.moving)
            state = [here + part * way for here, way in zip(state, ways, strict=True)]
        self._refine(times)
        for (place, _, _), value in zip(world.moving, state, strict=True):
            self.e[place] = value
        for place, path, _ in self.roaming:
            self.e[place] = path[k + 1] * self.finer
        if self.e[0].bit_length() > _LONGEST:
            self._coarsen()
        self._judge_at(until)

    def _jump(self, k: int) -> None:
        """What may be anywhere at once is there before anything else has moved (S4)."""
        jumping = [(place, path) for place, path, _ in self.roaming if place in self.jumping]
        if not jumping:
            return
        start = self.walker.timing.cuts[k]
        for place, path in jumping:
            self.e[place] = path[k + 1] * self.finer
        if self.backed is None and start >= self.switch:
            self.judge(self.walker.always, self.new, start)
        else:
            self.judge(self.walker.as_before, self.acting, start)

    def _during(self, k: int) -> None:
        """What the dynamics see of all that they do not move."""
        for place, _, means in self.roaming:
            self.e[place] = means[k] * self.finer
        for place, values in self.disturbing:
            self.e[place] = values[k] * self.finer

    def _judge_at(self, until: Fraction) -> None:
        walker = self.walker
        if self.backed is not None:
            self.judge(walker.as_before, self.acting, until)
            return
        if self.switch >= until:
            self.judge(walker.as_before, self.old, until)
        if self.switch <= until:
            self.judge(walker.always, self.new, until)
            if walker.timing.delay <= until <= walker.timing.end:  # a decision may come at any moment (S1)
                self.judge(walker.book.safe, self.new, until)

    def _turn(
        self, k: int, at: Fraction, state: Sequence[int], times: int, moves: Collection[Fraction]
    ) -> None:
        """A moment inside a segment at which something takes over; the way there goes on from its start."""
        kept, finer = list(self.e), self.finer
        self._refine(times)
        cuts = self.walker.timing.cuts
        share = (at - cuts[k]) / (cuts[k + 1] - cuts[k])
        for (place, _, _), value in zip(self.world.moving, state, strict=True):
            self.e[place] = value
        for place, path, _ in self.roaming:
            way = path[k + 1] - path[k]
            gone = 0 if place in self.stepping else abs(way) * share.numerator // share.denominator
            self.e[place] = (path[k] + (gone if way >= 0 else -gone)) * self.finer
        if at == self.switch:
            self.judge(self.walker.as_before, self.old, at)
            self.acting = self.new
        if self.backed is None:
            self.judge(self.walker.always, self.new, at)
        else:
            self.judge(self.walker.as_before, self.acting, at)
        if at in moves:
            self._take_over(at)
        self.e[:], self.finer = kept, finer

    def _take_over(self, at: Fraction) -> None:
        """A move of the backup."""
        self.backed = self._backed(dict(self.acting))
        self.acting = list(self.backed.items())
        self.judge(self.walker.as_before, self.acting, at)

    def _refine(self, times: int) -> None:
        self.e[:] = [value * times for value in self.e]
        self.finer *= times

    def _coarsen(self) -> None:
        common = math.gcd(self.finer, *self.e)
        self.e[:] = [value // common for value in self.e]
        self.finer //= common

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
