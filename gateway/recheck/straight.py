"""Courses of events as straight sums of what is unknown: each step is carried through, none is condensed."""

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
    """The proposal at once, the old values to the last, and every segment in which it may take over."""
    timing, book = scene.timing, scene.book
    delayed = [k for k, t in enumerate(timing.cuts[: timing.acting]) if t < timing.delay]
    proposal = scene.question.proposal
    changes = any(proposal.get(tag, v) != v for (of, tag), v in settled.items() if of == "old")
    told = [source for source in book.sources if source.dynamics] or list(book.sources[:1])
    for first in told:
        dynamics: dict[str, Node] = {}
        for source in (first, *told):
            dynamics = {**source.dynamics, **dynamics}
        yield _Course(scene, settled, dynamics, -1).world()
        for k in [*delayed, len(timing.cuts)] if changes and timing.delay else []:
            yield _Course(scene, settled, dynamics, k).world()
        if changes and timing.delay and not timing.acting:
            yield _Course(scene, settled, dynamics, 0).world()


@dataclass(slots=True)
class _Course:
    """Sums along one course in which the new values take over within segment `takes` (-1: at once)."""

    scene: Scene
    settled: Mapping[tuple[str, str], Fraction]
    dynamics: Mapping[str, Node]
    takes: int
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
        if self.takes < 0:
            moments.append(self._moment("new", new, first=True, last=timing.acting == 0))
        else:
            moments.append(self._moment("old", old))
        for k in range(timing.acting):
            before = timing.cuts[k] < timing.delay
            first, second = (new, new) if k > self.takes or not before else (old, old)
            self._advance(k, first, new if k == self.takes and before else second)
            last, at = k + 1 == timing.acting, timing.cuts[k + 1]
            if k + 1 <= old_to and at <= timing.delay:
                moments.append(self._moment("old", old))
            if k >= self.takes or at >= timing.delay:
                moments.append(self._moment("new", new, last=last))
            if k + 1 == self.takes:  # the new values take over at this very instant
                moments.append(self._moment("new", new))
        try:
            moments += self._backed(new) if self.scene.book.terminal else ()
        except NotLinearError as exc:
            return World(self.box, self.limits, moments, blind=str(exc))
        return World(self.box, self.limits, moments)

    def _backed(self, actions: Mapping[str, Sum]) -> list[Moment]:
        """The backup to the end of the horizon, where what it reads settles what it does."""
        timing, moments = self.scene.timing, []
        for k in range(timing.acting, len(timing.cuts) - 1):
            actions = self._back(actions, k)
            moments.append(self._moment("back", actions))
            self._advance(k, actions, actions)
            moments.append(self._moment("back", actions, last=k + 2 == len(timing.cuts)))
        return moments

    def _back(self, actions: Mapping[str, Sum], k: int) -> dict[str, Sum]:
        shown = {**self.state, **actions}
        for op, tag in self.scene.unknowns.at_first:
            if op == "turn" and tag in self.state:
                error = self.scene.errors[tag]
                shown[tag] = self.state[tag].plus(self._unknown(f"error {tag} {k}", (-error, error)))
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

    def _advance(self, k: int, old: Mapping[str, Sum], new: Mapping[str, Sum]) -> None:
        """To the next instant, `new` taking over from `old` somewhere on the way where they differ."""
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
        now = _now(means)
        for name, ends in unknowns.disturbances.items():
            now["now", name] = self._unknown(f"disturbance {name} {k}", ends)
        for tag, tree in self.dynamics.items():
            if tag in self.state:
                rate = self._along(tag, tree, {**now, **_now(old)})
                if new is not old:
                    share = self._unknown(f"share new {k}", (Fraction(0), Fraction(1)))
                    change = self._along(tag, tree, {**now, **_now(new)}).plus(rate, Fraction(-1))
                    if change.terms:
                        raise NotLinearError(f"the actions bend the dynamics of `{tag}`")
                    rate = rate.plus(share, change.constant)
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
