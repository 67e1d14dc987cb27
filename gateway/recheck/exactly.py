"""The exact worst case of every linear rule over everything unknown (S7): not at samples, over the whole box.

Each step is carried as straight sums of what is unknown; what the sums reach is then a matter of ends of
intervals and, where a rule has alternatives, of small linear programs in rationals.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from gateway.recheck.check import declared
from gateway.recheck.forms import (
    Below,
    Joined,
    NotLinearError,
    Statement,
    Sum,
    all_of,
    negated,
    opened,
    shortened,
    statement_of,
)
from gateway.recheck.question import Question, Scene, scene_of
from gateway.recheck.simplex import Terms, greatest
from gateway.recheck.source import Range, Requirement, Source, read_sources
from gateway.recheck.straight import Moment, World, combinations, courses
from gateway.recheck.tree import Node, reads

_MOST_PROGRAMS = 400  # a rule at an instant
HOLDS, VIOLATED, OPEN = "holds", "violated", "open"


@dataclass(frozen=True, slots=True)
class Worst:
    """What is shown of one rule: `holds` over everything unknown, `violated` at a point of it, or `open`.

    `why` tells of an open one why nothing is shown. `witness` gives a violated one's unknowns.
    """

    says: str
    why: str = ""
    witness: Mapping[str, Fraction] = field(default_factory=dict)


def recheck_exactly(texts: Sequence[str], question: Question) -> dict[str, Worst]:
    """What is shown of every rule that may refuse, by `module/rule`.

    Raises `LanguageError` as `recheck` does, also where the question is undetermined.
    """
    sources = read_sources(texts)
    scene = scene_of(sources, question)
    if scene.undetermined:
        raise NotLinearError(scene.undetermined[0])
    broken = [breach for breach in declared(scene, question) if breach.kind != "informational"]
    found = {breach.name: Worst(VIOLATED, witness=breach.witness) for breach in broken}
    shown = _Shown(scene)
    for source in sources:
        for requirement in (*source.requirements, *source.safe_set, *source.terminal):
            if requirement.binding:
                found[f"{source.id}/{requirement.id}"] = shown.of(source, requirement)
    return found


@dataclass(slots=True)
class _Shown:
    scene: Scene
    worlds: list[World] = field(default_factory=list)
    why: str = ""

    def __post_init__(self) -> None:
        try:
            for settled in combinations(self.scene):
                self.worlds += courses(self.scene, settled)
        except NotLinearError as exc:
            self.why = str(exc)

    def of(self, source: Source, requirement: Requirement) -> Worst:
        """What is shown of one rule."""
        if self.why:
            return Worst(OPEN, self.why)
        blind = next((world.blind for world in self.worlds if world.blind), "")
        if blind and (requirement.always or requirement in source.terminal):
            return Worst(OPEN, f"{blind}: sampled only")
        past = any(op in {"prev", "rate"} for op, _ in reads([requirement.tree]))
        try:
            for world in self.worlds:
                owed = [m for m in world.moments if _owed(source, requirement, m, past=past)]
                for moment in itertools.chain.from_iterable(self._ramps(requirement, m) for m in owed):
                    witness = _refuted(world, requirement.tree, moment)
                    if witness is not None:
                        return _confirmed(world, requirement.tree, moment, witness)
        except NotLinearError as exc:
            return Worst(OPEN, f"{exc}: sampled only")
        return Worst(HOLDS)

    def _ramps(self, requirement: Requirement, moment: Moment) -> Iterator[Moment]:
        """The change against what may be in force, and against each value that ceased before (S6)."""
        tags = sorted({name for op, name in reads([requirement.tree]) if op == "rate"})
        older = [[None, *(e for e in self.scene.question.history.get(tag, ()) if e[1] > 0)] for tag in tags]
        for chosen in itertools.product(*older):
            known = dict(moment.known)
            for tag, entry in zip(tags, chosen, strict=True):
                if entry is not None:
                    change = known["now", tag].plus(Sum(entry[0]), Fraction(-1))
                    known["rate", tag] = change.scaled(1 / (entry[1] + self.scene.timing.step))
            yield replace(moment, known=known)


def _owed(source: Source, requirement: Requirement, moment: Moment, *, past: bool) -> bool:
    if requirement in source.safe_set:
        return moment.last and moment.acting == "new"
    if requirement in source.terminal:
        return moment.last and moment.acting == "back"
    if moment.first:
        return True
    return requirement.always and (moment.acting == "new" or not past)


def _refuted(world: World, tree: Node, moment: Moment) -> Mapping[str, Fraction] | None:
    """A point of the box at which a rule fails; None where there is none."""
    fails = negated(statement_of(tree, lambda op, name: moment.known[op, name]))
    return _Search(world.box, world.limits).point(fails, [])


def _confirmed(world: World, tree: Node, moment: Moment, witness: Mapping[str, Fraction]) -> Worst:
    """A violation counts where values without dynamics move evenly; where only bows reach it, it is open."""
    straight = {
        name: (Fraction(0), Fraction(0)) if name.startswith("bow ") else ends
        for name, ends in world.box.items()
    }
    if any(witness.get(name) for name in straight if name.startswith("bow ")):
        even = _refuted(World(straight, world.limits, []), tree, moment)
        if even is None:
            return Worst(OPEN, "it fails, if at all, by less than a reading may bow within a step")
        witness = even
    return Worst(VIOLATED, witness=witness)


@dataclass(slots=True)
class _Search:
    """Looks for a point of a box at which a statement holds, exactly."""

    box: Mapping[str, Range]
    limits: Sequence[tuple[Terms, Fraction]]
    programs: int = 0

    def point(self, wanted: Statement, settled: list[Below]) -> Mapping[str, Fraction] | None:
        """Where `wanted` and all of `settled` hold; None where nowhere."""
        wanted = shortened(wanted, self.box)
        if wanted is False:
            return None
        if isinstance(wanted, Joined) and wanted.how == "any":
            points = (self.point(part, settled) for part in wanted.parts)
            return next((found for found in points if found is not None), None)
        parts = wanted.parts if isinstance(wanted, Joined) else (wanted,)
        sums = [*settled, *(part for part in parts if isinstance(part, Below))]
        rest = [part for part in parts if isinstance(part, Joined)]
        found = self._program(sums)
        return self._split(rest, sums) if rest and found is not None else found

    def _split(self, parts: Sequence[Statement], settled: list[Below]) -> Mapping[str, Fraction] | None:
        first, others = parts[0], parts[1:]
        for choice in first.parts if isinstance(first, Joined) else (first,):
            found = self.point(all_of([choice, *opened(others)]), settled)
            if found is not None:
                return found
        return None

    def _program(self, sums: Sequence[Below]) -> Mapping[str, Fraction] | None:
        """Where all sums are below 0, the strict ones by as much as can be."""
        self.programs += 1
        if self.programs > _MOST_PROGRAMS:
            raise NotLinearError("too many linear programs")
        box = {**self.box, "_": (Fraction(0), Fraction(1))}
        limits = list(self.limits)
        for below in sums:
            terms = {**below.sum.terms, "_": Fraction(1)} if below.strict else below.sum.terms
            limits.append((terms, -below.sum.constant))
        best = greatest({"_": Fraction(1)}, box, limits)
        if best is None or (any(below.strict for below in sums) and best.value <= 0):
            return None
        return {name: value for name, value in best.at.items() if name != "_"}
