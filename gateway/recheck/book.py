"""All modules in force made ready to be judged along courses of events: one layout, every rule a function."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.recheck.numbers import Condition, Layout, Whole, condition_of, number_of
from gateway.recheck.source import Move, Requirement, Source
from gateway.recheck.tree import LanguageError, Node, reads

_PAST = {"prev", "rate", "good", "age", "for"}
History = Mapping[str, Sequence[tuple[Fraction, Fraction]]]  # value, seconds since it ceased


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of one module as a function; `past`: it speaks of the change itself, or of earlier times."""

    module: str
    constraint: str
    kind: str
    holds: Condition
    past: bool

    @property
    def name(self) -> str:
        """`module/constraint`."""
        return f"{self.module}/{self.constraint}"


@dataclass(frozen=True, slots=True)
class World:
    """How variables move: by place, functions of one step later, each to be multiplied by its factor.

    A function's value counts in units `share` times finer than what it is computed from.
    """

    moving: tuple[tuple[int, Whole, int], ...]
    share: int


@dataclass(slots=True)
class Book:
    """Rules, dynamics and backup over one layout."""

    sources: Sequence[Source]
    history: History = field(default_factory=dict)
    layout: Layout = field(init=False)
    snapshot: list[Rule] = field(default_factory=list)  # judged once, with the proposal
    always: list[Rule] = field(default_factory=list)
    safe: list[Rule] = field(default_factory=list)
    terminal: list[Rule] = field(default_factory=list)
    guards: list[tuple[Condition | None, Move]] = field(default_factory=list)
    worlds: list[World] = field(default_factory=list)
    against: dict[int, Fraction] = field(
        default_factory=dict
    )  # place of an older value in force -> the value
    nonlinear: bool = False

    def __post_init__(self) -> None:
        step = self.sources[0].step
        layout = self.layout = Layout()
        self.nonlinear = any(_nonlinear(tree) for source in self.sources for tree in source.trees)
        tags = {tag for source in self.sources for tag in source.quantities}
        layout.spans = {tag: (layout.place("prev", tag), step) for tag in sorted(tags)}
        for source in self.sources:
            for requirement in source.requirements:
                found = self.always if requirement.always else self.snapshot
                found.extend(self._variants(source, requirement, step))
            self.safe += [_rule(source, entry, layout) for entry in source.safe_set]
            self.terminal += [_rule(source, entry, layout) for entry in source.terminal]
            for move in source.backup:
                guard = condition_of(move.tree, layout) if move.tree is not None else None
                self.guards.append((guard, move))
        self.worlds = list(self._worlds())

    @property
    def horizon(self) -> int:
        """Steps: of several modules the longest applies to all."""
        return max(source.horizon for source in self.sources)

    def rules(self) -> Iterator[Rule]:
        """All of them."""
        yield from itertools.chain(self.snapshot, self.always, self.safe, self.terminal)

    def _variants(self, source: Source, requirement: Requirement, step: Fraction) -> Iterator[Rule]:
        """A ramp once against what may be in force, and once against each value that ceased before (S6)."""
        yield _rule(source, requirement, self.layout)
        ramps = sorted({name for op, name in reads([requirement.tree]) if op == "rate"})
        choices = [[None, *(entry for entry in self.history.get(tag, ()) if entry[1] > 0)] for tag in ramps]
        for chosen in itertools.product(*choices):
            spans = dict(self.layout.spans)
            for tag, entry in zip(ramps, chosen, strict=True):
                if entry is not None:
                    place = self.layout.place("against", f"{tag} {entry[0]}")
                    self.against[place] = entry[0]
                    spans[tag] = place, entry[1] + step
            if any(entry is not None for entry in chosen):
                yield _rule(source, requirement, Layout(self.layout.places, spans))

    def _worlds(self) -> Iterator[World]:
        """Modules that differ in their dynamics each get a world of their own (S3)."""
        told = [source for source in self.sources if source.dynamics]
        for first in told or list(self.sources[:1]):
            trees: dict[str, Node] = {}
            for source in (first, *told):
                trees = {**source.dynamics, **trees}
            yield self._world(trees)

    def _world(self, trees: Mapping[str, Node]) -> World:
        scaled = {tag: number_of(tree, self.layout) for tag, tree in trees.items()}
        for tag, found in scaled.items():
            if found.degree not in {0, 1}:
                raise LanguageError(f"the dynamics of `{tag}` are not affine")
        share = math.lcm(*(found.share for found in scaled.values()))
        return World(
            tuple(
                (self.layout.place("now", tag), _counted(found.of, found.degree), share // found.share)
                for tag, found in scaled.items()
            ),
            share,
        )


def _counted(of: Callable[[list[int]], int | Fraction], degree: int | None) -> Whole:
    """A constant in units, as the rest is."""
    if degree == 0:
        return lambda e: int(of(e)) * e[0]
    return of  # type: ignore[return-value]  # of degree 1 it counts


def _rule(source: Source, requirement: Requirement, layout: Layout) -> Rule:
    return Rule(
        source.id,
        requirement.id,
        requirement.kind if requirement.binding else "informational",
        condition_of(requirement.tree, layout),
        past=any(op in _PAST for op, _ in reads([requirement.tree])),
    )


def _nonlinear(tree: Node) -> bool:
    return any(
        node.op in {"*", "/"} and all(reads([part]) for part in node.parts[node.op == "/" :])
        for node in tree.walk()
    )
