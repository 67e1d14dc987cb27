"""The independent check: simulate the uncondensed steps exactly, at corners and at random points (S7).

It can only find violations; that it finds none is evidence, not proof. The solver's "permitted" must never
meet a violation here.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gateway.recheck.cases import misjudged_cases
from gateway.recheck.language import Evaluate, LanguageError, number, truth
from gateway.recheck.source import Range, Requirement, Source, moved, read_source

__all__ = ["Breach", "Question", "Report", "backup_action", "misjudged_cases", "recheck", "widened"]

_MOST_CORNERS = 512


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
    """The first breach found of each requirement; `runs` trajectories were looked at."""

    breaches: tuple[Breach, ...]
    runs: int

    @property
    def violated(self) -> frozenset[str]:
        """`module/constraint` of every critical or standard requirement that failed."""
        return frozenset(b.name for b in self.breaches if b.kind != "informational")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be checked. All values are by tag, in engineering units.

    `inputs` are the intervals that hold the true state at acquisition. `previous` lists the values that may
    be in force. The proposal takes effect somewhere in `effect_delay_s` and then acts for `hold_s`.
    """

    inputs: Mapping[str, Range]
    previous: Mapping[str, Sequence[Fraction]]
    proposal: Mapping[str, Fraction]
    held_s: Mapping[str, Fraction] = field(default_factory=dict)
    hold_s: Fraction = Fraction(1)
    effect_delay_s: Fraction = Fraction(1)


def recheck(texts: Sequence[str], question: Question, *, samples: int = 32, seed: int = 0) -> Report:
    """Every requirement of every module along every trajectory looked at, and the safe sets at its end.

    Raises `LanguageError` for a module it cannot read.
    """
    if not texts:
        raise LanguageError("there is no module: an empty rule set permits nothing")
    sources = [read_source(text) for text in texts]
    search = _Search(sources, question)
    chance = random.Random(seed)  # noqa: S311  sampling, repeatable on purpose
    for world in _worlds(sources):
        for start in _starts(sources, question, samples, chance):
            for switch in (Fraction(0), question.effect_delay_s / 2, question.effect_delay_s):
                search.run(world, start, switch)
    return Report(breaches=tuple(search.found.values()), runs=search.runs)


def widened(
    texts: Sequence[str], readings: Mapping[str, Fraction], age_s: Mapping[str, Fraction]
) -> dict[str, Range]:
    """State intervals of plain readings: widest error of all modules, movement since, physical bounds."""
    found: dict[str, Range] = {}
    sources = [read_source(text) for text in texts]
    for tag, value in readings.items():
        known = [s.quantities[tag] for s in sources if tag in s.quantities]
        reach = max((q.error for q in known), default=Fraction(0))
        rates = [q.max_rate for q in known if q.max_rate is not None]
        reach += max(rates, default=Fraction(0)) * age_s.get(tag, Fraction(0))
        low, high = value - reach, value + reach
        for quantity in known:
            if quantity.physical is not None:
                low, high = max(low, quantity.physical[0]), min(high, quantity.physical[1])
        found[tag] = low, high
    return found


@dataclass(frozen=True, slots=True)
class _Start:
    state: Mapping[str, Fraction]
    old: Mapping[str, Fraction]
    disturbance: Mapping[str, Fraction]
    drift: Mapping[str, Fraction]  # per second, of measured tags without dynamics
    jump: Mapping[str, Fraction]  # where a tag without dynamics and without max_rate may go at once (S4)


@dataclass(slots=True)
class _Search:
    """Runs trajectories and keeps the first breach of each requirement."""

    sources: Sequence[Source]
    question: Question
    found: dict[str, Breach] = field(default_factory=dict)
    runs: int = 0

    def run(self, world: Mapping[str, tuple[Evaluate, Fraction]], start: _Start, switch: Fraction) -> None:
        """One trajectory: old values until `switch`, the proposal after it, to the end of its hold."""
        self.runs += 1
        end = self.question.effect_delay_s + self.question.hold_s
        longest = min(source.step for source in self.sources) / 2
        state, now = dict(start.state), Fraction(0)
        new = {**start.old, **self.question.proposal}
        if switch > 0:
            self._look(state, start.old, start.old, now, everything=False)
        while now < end:
            until = switch if now < switch else end
            part = min(longest, until - now)
            acting = start.old if now < switch else new
            if now == switch:
                self._look(state, start.old, new, now, everything=switch == 0)
            state = self._advanced(world, state, acting, start, part)
            now += part
            self._look(state, acting, acting, now, everything=False)
        env = _environment(state, new, new, Fraction(1))
        for source in self.sources:
            for requirement in source.safe_set:
                self._judge(source, requirement, env, now)

    def _look(
        self,
        state: Mapping[str, Fraction],
        old: Mapping[str, Fraction],
        acting: Mapping[str, Fraction],
        at_s: Fraction,
        *,
        everything: bool,
    ) -> None:
        """Judge one instant; `everything`: also what is claimed of the snapshot and the change alone."""
        for source in self.sources:
            env = _environment(state, old, acting, source.step)
            for requirement in source.requirements:
                if everything or requirement.always:
                    self._judge(source, requirement, env, at_s)
        if everything:
            self._dwell(old, acting, state)

    def _judge(
        self, source: Source, requirement: Requirement, env: Mapping[str, Fraction], at_s: Fraction
    ) -> None:
        name = f"{source.id}/{requirement.id}"
        if name not in self.found and not truth(requirement.holds(env)):
            self.found[name] = Breach(
                module=source.id,
                constraint=requirement.id,
                kind=requirement.kind if requirement.binding else "informational",
                at_s=at_s,
                witness={k: v for k, v in env.items() if " " not in k},
            )

    def _dwell(
        self, old: Mapping[str, Fraction], new: Mapping[str, Fraction], state: Mapping[str, Fraction]
    ) -> None:
        """Minimum times on and off, where it is told how long the value has been held."""
        for source in self.sources:
            for tag, quantity in source.quantities.items():
                held = self.question.held_s.get(tag)
                if held is None or old.get(tag) == new.get(tag):
                    continue
                needed = quantity.min_on if old[tag] >= 1 else quantity.min_off
                name = "min_on" if old[tag] >= 1 else "min_off"
                if held < needed:
                    key = f"{source.id}/{name}({tag})"
                    self.found.setdefault(
                        key,
                        Breach(
                            module=source.id,
                            constraint=f"{name}({tag})",
                            kind="standard",
                            at_s=Fraction(0),
                            witness=state,
                        ),
                    )

    def _advanced(
        self,
        world: Mapping[str, tuple[Evaluate, Fraction]],
        state: Mapping[str, Fraction],
        acting: Mapping[str, Fraction],
        start: _Start,
        part: Fraction,
    ) -> dict[str, Fraction]:
        """The state `part` seconds later; within a step every value moves on a straight line."""
        env = {**state, **acting, **start.disturbance}
        later = {**state, **start.jump}
        for tag, (step_on, step) in world.items():
            if tag in state:
                later[tag] = state[tag] + part / step * (number(step_on(env)) - state[tag])
        for tag, rate in start.drift.items():
            later[tag] = state[tag] + part * rate
            for source in self.sources:
                physical = source.quantities[tag].physical if tag in source.quantities else None
                if physical is not None:
                    later[tag] = min(max(later[tag], physical[0]), physical[1])
        return later


def _environment(
    state: Mapping[str, Fraction], old: Mapping[str, Fraction], acting: Mapping[str, Fraction], step: Fraction
) -> dict[str, Fraction]:
    env = {**state, **acting}
    for tag, value in acting.items():
        before = old.get(tag, value)
        env[f"prev {tag}"] = before
        env[f"rate {tag}"] = (value - before) / step
    return env


def _worlds(sources: Sequence[Source]) -> Iterator[dict[str, tuple[Evaluate, Fraction]]]:
    """Next-state functions by tag with their step; modules that differ each get a world of their own (S3)."""
    told = [source for source in sources if source.next_state] or list(sources[:1])
    for first in told:
        world: dict[str, tuple[Evaluate, Fraction]] = {}
        for source in [first, *told]:
            for tag, step_on in source.next_state.items():
                world.setdefault(tag, (step_on, source.step))
        yield world


def _starts(
    sources: Sequence[Source], question: Question, samples: int, chance: random.Random
) -> Iterator[_Start]:
    """Corners of everything unknown, all of them where they are few, then random points inside."""
    moving = {tag for source in sources for tag in source.next_state}
    spread: dict[tuple[str, str], Sequence[Fraction]] = {}
    for tag, ends in question.inputs.items():
        spread["state", tag] = ends
        rates = [
            s.quantities[tag].max_rate for s in sources if tag in s.quantities and s.quantities[tag].max_rate
        ]
        ranges = [r for s in sources if tag in s.quantities and (r := s.quantities[tag].range) is not None]
        if tag not in moving and not rates and ranges:
            spread["jump", tag] = (min(low for low, _ in ranges), max(high for _, high in ranges))
        if tag not in moving and rates:
            most = max(rate for rate in rates if rate is not None)
            spread["drift", tag] = (-most, Fraction(0), most)
    for source in sources:
        for name, ends in source.disturbances.items():
            spread["disturbance", name] = ends
    for tag, values in question.previous.items():
        spread["old", tag] = tuple(values)
    keys = list(spread)
    if _count(spread) <= _MOST_CORNERS:
        corners = list(itertools.product(*(sorted(set(spread[key])) for key in keys)))
    else:
        corners = [tuple(chance.choice(spread[key]) for key in keys) for _ in range(_MOST_CORNERS)]
    for corner in corners:
        yield _start(dict(zip(keys, corner, strict=True)))
    for _ in range(samples):
        yield _start({key: _inside(key[0], spread[key], chance) for key in keys})


def _inside(part: str, ends: Sequence[Fraction], chance: random.Random) -> Fraction:
    if part == "old":
        return chance.choice(ends)
    low, high = min(ends), max(ends)
    return low + (high - low) * Fraction(chance.randrange(1001), 1000)


def _count(spread: Mapping[tuple[str, str], Sequence[Fraction]]) -> int:
    total = 1
    for values in spread.values():
        total *= len(set(values))
    return total


def _start(chosen: Mapping[tuple[str, str], Fraction]) -> _Start:
    def part(name: str) -> dict[str, Fraction]:
        return {tag: value for (kind, tag), value in chosen.items() if kind == name}

    return _Start(part("state"), part("old"), part("disturbance"), part("drift"), part("jump"))


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
