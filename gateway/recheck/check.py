"""The independent check: simulate the uncondensed steps exactly, at corners and at random points (S7).

It can only find violations; that it finds none is evidence, not proof. The solver's "permitted" must never
meet a violation here.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gateway.recheck.book import Book, Rule
from gateway.recheck.cases import misjudged_cases
from gateway.recheck.declared import faults
from gateway.recheck.language import truth
from gateway.recheck.numbers import Units
from gateway.recheck.overridden import set_aside
from gateway.recheck.question import Question, Scene, scene_of
from gateway.recheck.source import Range, moved, read_source, read_sources
from gateway.recheck.unknowns import cut, physical_of, rate_of
from gateway.recheck.walk import Walker

__all__ = ["Breach", "Question", "Report", "backup_action", "misjudged_cases", "recheck", "widened"]

_EIGHTHS = 8  # of the effect delay, at which a proposal may take effect in random courses
_CURVED = 4  # times as many random courses where a rule multiplies or divides variables


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """A requirement that fails somewhere inside the assumptions, and where."""

    module: str
    constraint: str
    kind: str
    at_s: Fraction
    witness: Mapping[str, Fraction]

    @property
    def name(self) -> str:
        """`module/constraint`."""
        return f"{self.module}/{self.constraint}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The first breach found of each requirement; `runs` trajectories were looked at.

    `undetermined`: why nothing may be permitted whatever the rules say; empty when nothing stands against it.
    """

    breaches: tuple[Breach, ...]
    runs: int
    undetermined: tuple[str, ...] = ()

    @property
    def violated(self) -> frozenset[str]:
        """`module/constraint` of every critical or standard requirement that failed."""
        return frozenset(b.name for b in self.breaches if b.kind != "informational")


def recheck(
    texts: Sequence[str],
    question: Question,
    *,
    samples: int = 32,
    seed: int = 0,
    overridden: Collection[str] = (),
) -> Report:
    """Every requirement of every module along every trajectory looked at, and the sets at its end.

    Of `overridden` constraints (`MODULE/CONSTRAINT`) a breach is only reported. Raises `LanguageError` for a
    module it cannot read, an override that cannot be, and where the question leaves out what a rule needs.
    """
    sources = set_aside(read_sources(texts), overridden)
    scene = scene_of(sources, question)
    if scene.undetermined:
        return Report(breaches=(), runs=0, undetermined=scene.undetermined)
    found: dict[str, Breach] = {breach.name: breach for breach in declared(scene, question)}
    book = scene.book

    def failed(rule: Rule, at: Fraction, e: Units) -> None:
        found.setdefault(rule.name, _breach(book, rule, at, e))
        walker.forget(rule)

    walker = scene.walker(failed)
    chance = random.Random(seed)  # noqa: S311  sampling, repeatable on purpose
    _courses(scene, walker, samples * (_CURVED if book.nonlinear else 1), chance)
    return Report(breaches=tuple(found.values()), runs=walker.runs)


def _courses(scene: Scene, walker: Walker, samples: int, chance: random.Random) -> None:
    delay = scene.timing.delay
    for course in scene.unknowns.courses(samples, chance):
        for world in walker.book.worlds:
            unchanged = all(
                walker.proposal.get(tag, value) == value
                for (of, tag), value in course.at_first.items()
                if of == "old"
            )
            switches = {Fraction(0), delay}
            if scene.timing.acting and not unchanged:
                switches |= {delay * chance.randrange(1, _EIGHTHS) / _EIGHTHS}
            for switch in [Fraction(0)] if unchanged else sorted(switches):
                for falls in _falls(scene, switch, chance):
                    walker.walk(world, course, switch, falls)


def _falls(scene: Scene, switch: Fraction, chance: random.Random) -> Sequence[Fraction | None]:
    """When the backup takes over: at the effect, at the end of the proposal's time, and some time between.

    Also a little later, as the PLC waits before it falls back (S11).
    """
    timing = scene.timing
    if not scene.book.terminal:
        return (None,)
    if not timing.acting:  # the snapshot only
        return (Fraction(0),)
    latest = timing.end + scene.question.patience_s
    between = switch + (latest - switch) * chance.randrange(1, _EIGHTHS) / _EIGHTHS
    instants = [at for at in timing.cuts[1 : timing.acting] if at > switch]
    return tuple(dict.fromkeys([switch, timing.end, chance.choice([between, latest, *instants])]))


def declared(scene: Scene, question: Question) -> Iterator[Breach]:
    """Ranges, minimum times and sequences, against every value that may be in force."""
    held: dict[str, Fraction | None] = dict(question.held_s)
    for old in scene.old_values():
        new = {**old, **question.proposal}
        for source in scene.book.sources:
            for fault in faults(source, old, new, held):
                yield Breach(
                    module=source.id,
                    constraint=fault.id,
                    kind=fault.kind,
                    at_s=Fraction(0),
                    witness={**new},
                )


def _breach(book: Book, rule: Rule, at: Fraction, e: Units) -> Breach:
    values = {
        name: Fraction(e[place], e[0]) for (op, name), place in book.layout.places.items() if op == "now"
    }
    return Breach(module=rule.module, constraint=rule.constraint, kind=rule.kind, at_s=at, witness=values)


def widened(
    texts: Sequence[str], readings: Mapping[str, Fraction], age_s: Mapping[str, Fraction]
) -> dict[str, Range]:
    """State intervals of plain readings: widest error of all modules, movement since, physical bounds."""
    found: dict[str, Range] = {}
    sources = [read_source(text) for text in texts]
    for tag, value in readings.items():
        known = [s.quantities[tag] for s in sources if tag in s.quantities]
        reach = max((q.error for q in known), default=Fraction(0))
        reach += (rate_of(sources, tag) or Fraction(0)) * age_s.get(tag, Fraction(0))
        found[tag] = cut((value - reach, value + reach), physical_of(sources, tag))
    return found


def backup_action(
    texts: Sequence[str], state: Mapping[str, Fraction], old: Mapping[str, Fraction], elapsed_s: Fraction
) -> dict[str, Fraction]:
    """What the backup writes from a state: per action the first entry whose `when` holds (S1)."""
    action = dict(old)
    done: set[str] = set()
    for source in map(read_source, texts):
        for entry in source.backup:
            if entry.when is not None and not truth(entry.when({**state, **old})):
                continue
            for tag, move in entry.moves.items():
                if tag not in done:
                    done.add(tag)
                    action[tag] = moved(move, old[tag], elapsed_s)
    return action
