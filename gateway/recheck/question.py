"""What is asked of the checker, and the scene that a question sets: what is fixed, what is unknown."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.recheck.book import Book, History, Rule
from gateway.recheck.numbers import Units
from gateway.recheck.source import Range, Source, moved
from gateway.recheck.tree import LanguageError, Row, reads, rows
from gateway.recheck.unknowns import Key, Unknowns, range_of, roaming_of
from gateway.recheck.walk import Timing, Walker, timing

_MOST_OLD = 4096
_PATIENCE_S = Fraction(4)  # period, lease time-out and scan


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be checked. All values are by tag, in engineering units.

    `inputs` are the intervals that hold the true state at acquisition. `previous` lists the values that may
    be in force. The proposal takes effect somewhere in `effect_delay_s` and then acts for `hold_s`. Where
    there is a `terminal` set the PLC may fall back to the backup at any moment from the effect on, at the
    latest `patience_s` after the proposal's time (S11).

    `held_s` is how long an action has had its value; what is not in it has no minimum times to keep.
    `history` adds values that ceased, with the seconds since. `good` and `age_s` are of measured variables;
    what `good` leaves out is; where one that is not may be all the same, `unseen` tells, else its range.
    `previous_inputs` are intervals of measured variables one step ago.
    `for_held` tells of `MODULE/condition`, words joined by single blanks, with ` for 10 s` behind it or not,
    whether it has surely and has possibly held long enough; of what it leaves out either may be true.
    """

    inputs: Mapping[str, Range]
    previous: Mapping[str, Sequence[Fraction]]
    proposal: Mapping[str, Fraction]
    held_s: Mapping[str, Fraction] = field(default_factory=dict)
    hold_s: Fraction = Fraction(1)
    effect_delay_s: Fraction = Fraction(1)
    patience_s: Fraction = _PATIENCE_S
    good: Mapping[str, bool] = field(default_factory=dict)
    unseen: Mapping[str, Range] = field(default_factory=dict)
    age_s: Mapping[str, Fraction] = field(default_factory=dict)
    previous_inputs: Mapping[str, Range] = field(default_factory=dict)
    for_held: Mapping[str, tuple[bool, bool]] = field(default_factory=dict)
    history: History = field(default_factory=dict)


@dataclass(slots=True)
class Scene:
    """A question with everything that follows from it."""

    book: Book
    question: Question
    timing: Timing
    unknowns: Unknowns
    undetermined: tuple[str, ...]

    @property
    def errors(self) -> dict[str, Fraction]:
        """Of the sensors, by tag: the widest of all modules (S3)."""
        return _errors(self.book.sources)

    def old_values(self) -> Iterator[dict[str, Fraction]]:
        """Every combination of values that may be in force; raises `LanguageError` beyond some thousand."""
        olds = {tag: values for (of, tag), values in self.unknowns.at_first.items() if of == "old"}
        if math.prod(len(values) for values in olds.values()) > _MOST_OLD:
            raise LanguageError("too many values may be in force")
        for values in itertools.product(*olds.values()):
            yield dict(zip(olds, values, strict=True))

    def walker(self, failed: Callable[[Rule, Fraction, Units], None]) -> Walker:
        """What walks courses of this scene."""
        layout, count, known = self.book.layout, self.unknowns.count, self.unknowns.at_first
        fixed = {place: count(value) for place, value in self.book.against.items()}
        for (op, name), place in layout.places.items():
            if op == "good":
                usable = self.question.good.get(name, True) and name in self.question.inputs
                fixed[place] = count(int(usable))
            if op == "age":
                fixed[place] = count(self.question.age_s[name])
        return Walker(
            self.book,
            self.timing,
            self.unknowns.unit,
            fixed,
            {tag: count(error) for tag, error in self.errors.items()},
            {tag: count(value) for tag, value in self.question.proposal.items() if ("old", tag) in known},
            failed,
            frozenset(tag for tag, roam in self.unknowns.roaming.items() if roam.rate is None),
            frozenset(self.unknowns.discrete),
        )


def scene_of(sources: Sequence[Source], question: Question) -> Scene:
    """The scene of a question; raises `LanguageError` where it leaves out what a rule needs."""
    book = Book(sources, question.history)
    terminal = book.horizon if book.terminal else 0
    times = timing(sources[0].step, book.horizon, terminal, question.effect_delay_s, question.hold_s)
    return Scene(book, question, times, *_unknowns(book, question, times))


def _unknowns(book: Book, question: Question, times: Timing) -> tuple[Unknowns, tuple[str, ...]]:
    trees = [tree for source in book.sources for tree in source.trees]
    needed = reads(trees)
    told = _Told(book.sources, question)
    for op, name in sorted(needed):
        told.add(op, name)
    for row in rows(trees):
        told.row(row)
    for tag in question.proposal:
        if any(tag in source.quantities for source in book.sources):
            told.action(tag)
    measured = [tag for op, tag in told.at_first if op == "now"]
    moving = {tag for source in book.sources for tag in source.dynamics}
    if book.terminal:
        guards = [move.tree for _, move in book.guards if move.tree is not None]
        for tag in {name for _, name in reads(guards)} & set(measured):
            told.at_first["turn", tag] = [Fraction(-1), Fraction(1)]
    roaming = {tag: roaming_of(book.sources, tag) for tag in measured if tag not in moving}
    if times.acting:
        for tag, roam in roaming.items():
            if roam.rate is None and None in roam.limits:
                raise LanguageError(f"nothing is told of where `{tag}` may go")
    unknowns = Unknowns(
        at_first=told.at_first,
        listed=told.listed,
        roaming=roaming,
        discrete={
            t: q for s in book.sources for t, q in s.quantities.items() if q.listed(*_POINT) is not None
        },
        disturbances={n: ends for s in book.sources for n, ends in s.disturbances.items()},
        cuts=times.cuts,
        others=[*_others(book, question, times), *told.others],
    )
    return unknowns, tuple(dict.fromkeys(told.undetermined))


_POINT = (Fraction(0), Fraction(0))


def _others(book: Book, question: Question, times: Timing) -> Iterator[Fraction]:
    """What else must be a whole number of units."""
    yield from question.proposal.values()
    yield from book.against.values()
    yield from _errors(book.sources).values()
    for source in book.sources:
        for move in source.backup:
            for text in move.moves.values():
                yield moved(text, Fraction(0), times.step)
                yield moved(text, Fraction(10**9), times.step)
                yield moved(text, Fraction(-(10**9)), times.step)
                if text.startswith("ramp"):
                    yield moved(text, Fraction(0), Fraction(10**12))


def _errors(sources: Sequence[Source]) -> dict[str, Fraction]:
    found: dict[str, Fraction] = {}
    for source in sources:
        for tag, quantity in source.quantities.items():
            found[tag] = max(quantity.error, found.get(tag, Fraction(0)))
    return found


@dataclass(slots=True)
class _Told:
    """What a question tells of what rules read."""

    sources: Sequence[Source]
    question: Question
    at_first: dict[Key, list[Fraction]] = field(default_factory=dict)
    listed: dict[Key, Sequence[Fraction | int]] = field(default_factory=dict)
    undetermined: list[str] = field(default_factory=list)
    others: list[Fraction] = field(default_factory=list)

    def add(self, op: str, name: str) -> None:
        """One thing that is read."""
        known = [source.quantities[name] for source in self.sources if name in source.quantities]
        if not known:
            return  # a disturbance
        if any(quantity.action for quantity in known):
            self.action(name)
            return
        if op == "age":
            if name not in self.question.age_s:
                raise LanguageError(f"nothing is told of the age of `{name}`")
            self.others.append(self.question.age_s[name])
        self._measured(name)
        if op in {"prev", "rate"}:
            ends = self.question.previous_inputs.get(name)
            if ends is None:
                self.undetermined.append(f"nothing is known of `{name}` one step ago")
            else:
                self._between("prev", name, ends)

    def action(self, tag: str) -> None:
        """The values of an action that may be in force."""
        asked = self.question
        values = list(asked.previous.get(tag, ()))
        if not values and tag in asked.proposal:
            values = [asked.proposal[tag]]
        if not values:
            raise LanguageError(f"nothing is told of the action `{tag}`")
        self.at_first["old", tag] = values

    def row(self, row: Row) -> None:
        """Whether a condition has held long enough: surely, possibly, or either."""
        surely, possibly = self.question.for_held.get(
            _called(row, seconds=True),
            self.question.for_held.get(_called(row, seconds=False), (False, True)),
        )
        surely = surely or not row.seconds
        answers = [Fraction(1)] if surely else [Fraction(0), *([Fraction(1)] if possibly else [])]
        self.at_first["for", row.name] = answers

    def _measured(self, tag: str) -> None:
        if ("now", tag) in self.at_first:
            return
        asked_of = [
            source
            for source in self.sources
            if tag in source.quantities and {("good", tag), ("age", tag)} & reads(source.trees)
        ]
        using = [source for source in self.sources if tag in source.quantities]
        hidden = next((q.physical for s in using if (q := s.quantities[tag]).hidden and q.physical), None)
        if hidden is not None:
            self._between("now", tag, self.question.inputs.get(tag, hidden))
            return
        bad = not self.question.good.get(tag, True)
        if bad or tag not in self.question.inputs:
            ends = self.question.unseen.get(tag, range_of(self.sources, tag))
            if len(asked_of) < len(using) or ends is None:
                self.undetermined.append(f"`{tag}` is not usable")
                return
            self._between("now", tag, ends)
            return
        self._between("now", tag, self.question.inputs[tag])

    def _between(self, op: str, tag: str, ends: Range) -> None:
        quantity = next(source.quantities[tag] for source in self.sources if tag in source.quantities)
        listed = quantity.listed(*ends)
        if ends[0] > ends[1]:
            self.undetermined.append(f"what is known of `{tag}` contradicts itself")
        elif listed is None:
            self.at_first[op, tag] = list(ends)
        elif listed:
            ends = Fraction(listed[0]), Fraction(listed[-1])
            self.at_first[op, tag] = list(ends) if quantity.whole else [Fraction(v) for v in listed]
            self.listed[op, tag] = listed
        else:
            self.undetermined.append(f"`{tag}` has none of its values")


def _called(row: Row, *, seconds: bool) -> str:
    name = f"{row.module}/{row.words}"
    return f"{name} for {row.told}" if seconds else name
