"""Courses of events as straight sums of what is unknown: each step is carried through, none is condensed.

A backup may take over at any moment. A state is straight in that moment as long as no move of the backup
passes an instant; so it is followed from the moments at which one would, and between them nothing is worse
for a rule without alternatives.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.recheck.forms import NotLinearError, Sum, numeric_of, shortened, statement_of
from gateway.recheck.question import Scene
from gateway.recheck.simplex import Terms
from gateway.recheck.source import Range, moved
from gateway.recheck.tree import Node

_MOST_COMBINATIONS = 256
_HALF, _QUARTER = Fraction(1, 2), Fraction(1, 4)


@dataclass(slots=True)
class Moment:
    """One instant of one course: sums of what is read, with the values that act."""

    known: Mapping[tuple[str, str], Sum]
    acting: str  # `new`, `old`, `back`: the backup
    first: bool = False  # the snapshot with the proposal
    last: bool = False  # the end of the hold, or of the horizon


@dataclass(slots=True)
class World:
    """One combination of what is no interval, and bounds of what is one; `limits` keep it physical."""

    box: dict[str, Range]
    limits: list[tuple[Terms, Fraction]]
    moments: list[Moment]
    blind: str = ""  # why nothing is carried through behind the hold


def combinations(scene: Scene) -> Iterator[dict[tuple[str, str], Fraction]]:
    """Every combination of what is no interval; raises `NotLinearError` where they are too many."""
    unknowns = scene.unknowns
    choices: dict[tuple[str, str], Sequence[Fraction | int]] = {}
    for key, values in unknowns.at_first.items():
        if key[0] in {"old", "for"} or key in unknowns.listed:
            choices[key] = unknowns.listed.get(key) or tuple(values)
    total = 1
    for choice in choices.values():
        total *= len(choice)
        if total > _MOST_COMBINATIONS:
            raise NotLinearError("too many combinations of what is no interval")
    for chosen in itertools.product(*choices.values()):
        yield dict(zip(choices, map(Fraction, chosen), strict=True))


def courses(scene: Scene, settled: Mapping[tuple[str, str], Fraction]) -> Iterator[World]:
    """The proposal at once, the old values to the last, and every segment in which it may take over.

    Each with every moment at which the backup may take over then, where there is one.
    """
    timing, book = scene.timing, scene.book
    delayed = [k for k, t in enumerate(timing.cuts[: timing.acting]) if t < timing.delay]
    proposal = scene.question.proposal
    changes = any(proposal.get(tag, v) != v for (of, tag), v in settled.items() if of == "old")
    told = [source for source in book.sources if source.dynamics] or list(book.sources[:1])
    for first in told:
        dynamics: dict[str, Node] = {}
        for source in (first, *told):
            dynamics = {**source.dynamics, **dynamics}
        takes = [-1, *([*delayed, len(timing.cuts)] if changes and timing.delay else [])]
        if changes and timing.delay and not timing.acting:
            takes.append(0)
        for k in takes:
            for falls in _falls(scene, k):
                yield _Course(scene, settled, dynamics, k, falls).world()


def _falls(scene: Scene, takes: int) -> Sequence[Fraction | None]:
    """When the backup takes over, the latest first; None: at no moment."""
    timing = scene.timing
    if not scene.book.terminal or not timing.acting:
        return (None,)
    effect = Fraction(0) if takes < 0 else timing.delay
    if 0 <= takes < timing.acting:
        effect = timing.cuts[takes + 1]
    latest = timing.end + scene.question.patience_s
    found = {effect, timing.end, latest}
    for cut in timing.cuts:
        while cut > effect:
            found.add(cut)
            cut -= timing.step  # noqa: PLW2901
    return sorted((at for at in found if effect <= at <= latest), reverse=True)


@dataclass(slots=True)
class _Course:
    """Sums along one course in which the new values take over within segment `takes` (-1: at once).

    The backup takes over at `falls`. What is before that is told of the latest only.
    """

    scene: Scene
    settled: Mapping[tuple[str, str], Fraction]
    dynamics: Mapping[str, Node]
    takes: int
    falls: Fraction | None
    box: dict[str, Range] = field(default_factory=dict)
    limits: list[tuple[Terms, Fraction]] = field(default_factory=list)
    state: dict[str, Sum] = field(default_factory=dict)
    base: dict[tuple[str, str], Sum] = field(default_factory=dict)

    def world(self) -> World:
        """The whole course."""
        self._begin()
        old_to = min(self.takes, self.scene.timing.acting)
        old, new = self._actions({}), self._actions(self.scene.question.proposal)
        timing, moments = self.scene.timing, []
        told = self.falls is None or self.falls == timing.end + self.scene.question.patience_s
        if self.takes < 0:
            moments.append(self._moment("new", new, first=True, last=timing.acting == 0))
        else:
            moments.append(self._moment("old", old))
        ends = timing.acting
        if self.falls is not None:  # the backup takes over in the segment that begins there or passes it
            ends = sum(cut <= self.falls for cut in timing.cuts[1:])
        for k in range(min(ends, timing.acting)):
            before = timing.cuts[k] < timing.delay
            first, second = (new, new) if k > self.takes or not before else (old, old)
            second = new if k == self.takes and before else second
            self._advance(k, [(first, None), *([(second, None)] if second is not first else [])])
            last, at = k + 1 == timing.acting, timing.cuts[k + 1]
            if k + 1 <= old_to and at <= timing.delay:
                moments.append(self._moment("old", old))
            if k >= self.takes or at >= timing.delay:
                moments.append(self._moment("new", new, last=last))
            if k + 1 == self.takes:  # the new values take over at this very instant
                moments.append(self._moment("new", new))
        moments = moments if told else []
        try:
            moments += (
                self._fallen(self.falls, new, min(ends, timing.acting)) if self.falls is not None else ()
            )
        except NotLinearError as exc:
            return World(self.box, self.limits, moments, blind=str(exc))
        return World(self.box, self.limits, moments)

    def _fallen(self, falls: Fraction, actions: Mapping[str, Sum], start: int) -> list[Moment]:
        """From the segment in which the backup takes over to the end of the horizon.

        Only where what it reads settles what it does.
        """
        timing, moments, acting = self.scene.timing, [], "new"
        for k in range(start, len(timing.cuts) - 1):
            begin, until = timing.cuts[k], timing.cuts[k + 1]
            pieces: list[tuple[Mapping[str, Sum], Fraction | None]] = []
            here = begin
            for at in (*timing.moves(falls, k), until):
                if at > here:
                    pieces.append((actions, (at - here) / (until - begin)))
                if at < until:
                    state = self.state if at == begin else self._on_the_way(k, pieces)
                    actions, acting, here = self._back(actions, state, f"{k} {at}"), "back", at
                    moments.append(self._moment(acting, actions)) if at == begin else None
            self._advance(k, pieces)
            last = k + 2 == len(timing.cuts)
            moments.append(self._moment("back" if last else acting, actions, last=last))
        return moments

    def _back(self, actions: Mapping[str, Sum], state: Mapping[str, Sum], when: str) -> dict[str, Sum]:
        shown = {**state, **actions}
        for op, tag in self.scene.unknowns.at_first:
            if op == "turn" and tag in state:
                error = self.scene.errors[tag]
                shown[tag] = state[tag].plus(self._unknown(f"error {tag} {when}", (-error, error)))
        after, done = dict(actions), set()
        for _, move in self.scene.book.guards:
            holds = move.tree is None or shortened(
                statement_of(move.tree, lambda op, name: shown[name] if op == "now" else self.base[op, name]),
                self.box,
            )
            if not isinstance(holds, bool):
                raise NotLinearError("the backup acts by what it reads")
            for tag, text in move.moves.items() if holds else ():
                if tag in after and tag not in done:
                    done.add(tag)
                    after[tag] = Sum(moved(text, actions[tag].constant, self.scene.timing.step))
        return after

    def _on_the_way(
        self, k: int, pieces: Sequence[tuple[Mapping[str, Sum], Fraction | None]]
    ) -> Mapping[str, Sum]:
        """The state inside a segment, after some pieces of it, as far as a guard may read it."""
        if all(move.tree is None for _, move in self.scene.book.guards):
            return self.state
        if self.state.keys() - self.dynamics.keys():
            raise NotLinearError("the backup acts within a step by what has no dynamics")
        timing, found = self.scene.timing, dict(self.state)
        now = self._now_and_disturbed(self.state, k)
        for tag, tree in self.dynamics.items():
            for actions, share in pieces:
                change = self._along(tag, tree, {**now, **_now(actions)}).plus(self.state[tag], Fraction(-1))
                part = (share or Fraction(0)) * (timing.cuts[k + 1] - timing.cuts[k]) / timing.step
                found[tag] = found[tag].plus(change, part)
        return found

    def _now_and_disturbed(self, means: Mapping[str, Sum], k: int) -> dict[tuple[str, str], Sum]:
        now = _now(means)
        for name, ends in self.scene.unknowns.disturbances.items():
            now["now", name] = self._unknown(f"disturbance {name} {k}", ends)
        return now

    def _unknown(self, name: str, ends: Range) -> Sum:
        if ends[0] == ends[1]:
            return Sum(ends[0])
        self.box[name] = ends
        return Sum(Fraction(0), {name: Fraction(1)})

    def _begin(self) -> None:
        question = self.scene.question
        for key, values in self.scene.unknowns.at_first.items():
            op, name = key
            if op in {"turn", "old"}:
                continue
            settled = self.settled.get(key)
            ends = min(values), max(values)
            value = Sum(settled) if settled is not None else self._unknown(f"{op} {name}", ends)
            if op == "now":
                self.state[name] = value
            else:
                self.base[op, name] = value
        for (op, tag), value_ in self.settled.items():
            if op == "old":
                self.base["prev", tag] = Sum(value_)
        for tag in self.state:
            usable = question.good.get(tag, True) and tag in question.inputs
            self.base["good", tag] = Sum(Fraction(usable))
            if tag in question.age_s:
                self.base["age", tag] = Sum(question.age_s[tag])

    def _actions(self, proposal: Mapping[str, Fraction]) -> dict[str, Sum]:
        return {
            tag: Sum(proposal.get(tag, value)) for (op, tag), value in self.settled.items() if op == "old"
        }

    def _moment(
        self, acting: str, actions: Mapping[str, Sum], *, first: bool = False, last: bool = False
    ) -> Moment:
        now = {**self.state, **actions}
        known = {**self.base, **{("now", tag): value for tag, value in now.items()}}
        for tag, value in now.items():
            if ("prev", tag) in self.base:
                change = value.plus(self.base["prev", tag], Fraction(-1))
                known["rate", tag] = change.scaled(1 / self.scene.timing.step)
        return Moment(known, acting, first, last)

    def _advance(self, k: int, pieces: Sequence[tuple[Mapping[str, Sum], Fraction | None]]) -> None:
        """To the next instant. What acts in it one after the other, with the share of it; None: any share."""
        timing, unknowns = self.scene.timing, self.scene.unknowns
        seconds = timing.cuts[k + 1] - timing.cuts[k]
        after, means = dict(self.state), dict(self.state)
        for tag, roam in unknowns.roaming.items():
            if tag in self.dynamics:
                continue
            if tag in unknowns.discrete:
                raise NotLinearError(f"`{tag}` moves by whole values")
            if roam.rate is None:
                low, high = roam.limits
                ends = (low or Fraction(0)), (high or Fraction(0))
                means[tag] = self._unknown(f"mean {tag} {k}", ends)
                after[tag] = self._unknown(f"now {tag} {k + 1}", ends)
                continue
            reach = roam.rate * seconds
            step_to = self._unknown(f"drift {tag} {k}", (-reach, reach))
            bow = self._unknown(f"bow {tag} {k}", (-reach * _QUARTER, reach * _QUARTER))
            means[tag] = self.state[tag].plus(step_to, _HALF).plus(bow)
            after[tag] = self.state[tag].plus(step_to)
            self._keep_physical(roam.limits, (means[tag], after[tag]))
        now = self._now_and_disturbed(means, k)
        for tag, tree in self.dynamics.items():
            if tag in self.state:
                rate = first = self._along(tag, tree, {**now, **_now(pieces[0][0])})
                for actions, share in pieces[1:]:
                    change = self._along(tag, tree, {**now, **_now(actions)}).plus(first, Fraction(-1))
                    if share is not None:
                        rate = rate.plus(change, share)
                        continue
                    if change.terms:
                        raise NotLinearError(f"the actions bend the dynamics of `{tag}`")
                    rate = rate.plus(
                        self._unknown(f"share new {k}", (Fraction(0), Fraction(1))), change.constant
                    )
                part = seconds / timing.step
                after[tag] = self.state[tag].plus(rate.plus(self.state[tag], Fraction(-1)), part)
        self.state = after

    def _keep_physical(self, limits: tuple[Fraction | None, Fraction | None], sums: Sequence[Sum]) -> None:
        for value, (end, way) in itertools.product(sums, zip(limits, (-1, 1), strict=True)):
            if end is not None and value.terms:
                terms = {name: way * multiplier for name, multiplier in value.terms.items()}
                self.limits.append((terms, way * (end - value.constant)))

    @staticmethod
    def _along(tag: str, tree: Node, env: Mapping[tuple[str, str], Sum]) -> Sum:
        found = numeric_of(tree, lambda op, name: env[op, name])
        if not isinstance(found, Sum):
            raise NotLinearError(f"the dynamics of `{tag}` choose by what is unknown")
        return found


def _now(values: Mapping[str, Sum]) -> dict[tuple[str, str], Sum]:
    return {("now", tag): value for tag, value in values.items()}
