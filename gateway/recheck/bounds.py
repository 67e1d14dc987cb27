"""A certificate's interval bounds, added up again and held against the module's own words (S7).

Three questions, none answered by the compiler: do the sums come out as told, inside the premises? Does every
requirement have a bound or a solver's word at every instant? And does a bound say what the module says: at
points where its sums stay at or below 0, many of them exactly at it, the requirement is played through step
by step and must hold.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from gateway.recheck.language import Evaluate, LanguageError, number, row_named, truth
from gateway.recheck.overridden import set_aside
from gateway.recheck.points import Points
from gateway.recheck.question import Question
from gateway.recheck.source import Range, Requirement, Source, read_source
from gateway.recheck.sums import Point, Sum, sums_of
from gateway.recheck.symbols import Possible
from gateway.recheck.tree import Node, reads, rows
from gateway.recheck.words import order_rules, words


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What is claimed of one action: premises by symbol, proofs by rule and instant."""

    premises: Mapping[str, Range]
    lines: Sequence[Mapping[str, Any]]
    hold_s: Fraction
    effect_delay_s: Fraction
    as_backup: bool = False
    asked: Question | None = None  # the facts, where premises are held against them
    overridden: tuple[str, ...] = ()  # constraints that are only reported (S25)


def misproved(texts: Sequence[str], bounds: Bounds, *, samples: int = 24, seed: int = 0) -> list[str]:
    """Everything wrong with the bounds of a claim that all requirements hold; empty when nothing is.

    Raises `LanguageError` for a module that cannot be read.
    """
    book = _book(texts, bounds)
    wrong: list[str] = []
    for line in bounds.lines:
        try:
            wrong += book.line(line, samples, random.Random(seed))  # noqa: S311  sampling, repeatable on purpose
        except (KeyError, TypeError, ValueError, ZeroDivisionError, IndexError, AttributeError) as exc:
            wrong.append(f"a bound cannot be read: {exc!r}")
    narrow = [] if book.possible is None else list(book.possible.too_narrow(bounds.premises))
    return wrong + narrow + book.uncovered()


def violated(
    texts: Sequence[str],
    bounds: Bounds,
    rule: str,
    instant: int,
    values: Sequence[str],
    witness: Mapping[str, Fraction],
) -> bool:
    """Whether a witness lies inside the premises and fails a rule at an instant, played through step by step.

    `values` says which actions may do it: `new`, `old`, `b{k}`. Raises `LanguageError` for a module that
    cannot be read.
    """
    if not all(name in bounds.premises for name in witness):
        return False
    if any(not bounds.premises[n][0] <= v <= bounds.premises[n][1] for n, v in witness.items()):
        return False
    book = _book(texts, bounds)
    point = {name: (low + high) / 2 for name, (low, high) in bounds.premises.items()} | dict(witness)
    for source in book.sources:
        holds = words(source, rule)
        if holds is not None:
            moments = [_When(instant, acting, drift) for acting in values for drift in (instant, instant + 1)]
            return any(
                not book.plays(source, holds, near, when)
                for near in Points(book.sources, bounds.premises).with_real_values(point)
                for when in moments
            )
    return False


def _book(texts: Sequence[str], bounds: Bounds) -> _Book:
    sources = set_aside([read_source(text) for text in texts], bounds.overridden)
    return _Book(
        sources,
        bounds,
        of_the_past={f"{s.id}/{r.id}" for s in sources for r in s.requirements if _of_the_past(r.tree)},
        horizon=max((source.horizon for source in sources), default=0),
        terminal={f"{source.id}/{entry.id}": entry.holds for source in sources for entry in source.terminal},
    )


@dataclass(frozen=True, slots=True)
class _When:
    """An instant, the kind of the actions in force, and the instant of what has no dynamics."""

    instant: int
    values: str
    drift: int


@dataclass(slots=True)
class _Book:
    sources: Sequence[Source]
    bounds: Bounds
    cuts: list[Fraction] = field(init=False)
    step: Fraction = field(init=False)
    of_the_past: set[str]  # rules about the change itself, not about the plant with the values in force
    horizon: int
    terminal: Mapping[str, Evaluate]  # by rule
    acting: int = 0  # segments before the backup acts
    possible: Possible | None = field(init=False, default=None)
    seen: set[tuple[str, int, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        if not self.sources:
            raise LanguageError("there is no module: an empty rule set permits nothing")
        self.step = self.sources[0].step
        self.cuts = [Fraction(0)]
        if self.horizon:
            self._cut()
        if self.bounds.asked is not None:
            asked = self.bounds.asked
            self.possible = Possible(self.sources, asked, self.cuts, self.acting, self.step)

    def _cut(self) -> None:
        delay, end = (
            self.bounds.effect_delay_s,
            max(self.bounds.hold_s, self.step, self.bounds.effect_delay_s),
        )
        whole = (self.step * k for k in range(1, int(end / self.step) + 1))
        self.cuts = sorted({Fraction(0), end, *(t for t in (delay, *whole) if 0 < t < end)})
        self.acting = len(self.cuts) - 1
        if self.terminal:  # the backup acts from there on
            self.cuts += [end + self.step * k for k in range(1, self.horizon + 1)]

    def line(self, line: Mapping[str, Any], samples: int, chance: random.Random) -> list[str]:
        """What is wrong with one bound."""
        rule, instant, values = str(line["rule"]), int(line["instant"]), str(line["values"])
        drift = int(line["drift"])
        name = f"{rule} at instant {instant}, values {values}"
        phases = {"new", "old", f"b{instant}", f"b{instant - 1}"}
        if values not in phases or Fraction(line["at_s"]) != self.cuts[instant] or instant < 0:
            return [f"{name}: no such instant"]
        if drift not in {instant, min(instant + 1, len(self.cuts) - 1)}:
            return [f"{name}: no such time of the values without dynamics"]
        self.seen.add((rule, instant, values))
        proof = line["proof"]
        if proof == "solver":
            return []
        sums = list(sums_of(proof))
        wrong = [f"{name}: {problem}" for total in sums for problem in self._added(total)]
        return wrong or self._meant(name, rule, _When(instant, values, drift), sums, samples, chance)

    def uncovered(self) -> list[str]:
        """Requirements that have no line where they need one."""
        missing: list[str] = []
        delay = self.bounds.effect_delay_s
        for source in self.sources:
            for requirement in source.requirements:
                if not requirement.binding:
                    continue
                name = f"{source.id}/{requirement.id}"
                for instant, values in self._owed(source, requirement):
                    if (name, instant, values) not in self.seen:
                        missing.append(f"{name} has no bound at instant {instant}, values {values}")
            missing += self._uncovered_actions(source)
            for number_, _ in enumerate(source.safe_set, start=1):
                for instant, at in enumerate(self.cuts[: self.acting + 1]):
                    safe = f"{source.id}/safe_set[{number_}]"
                    if at >= delay and (safe, instant, "new") not in self.seen:
                        missing.append(f"{safe} has no bound at instant {instant}")
        last = len(self.cuts) - 1
        missing += self._nested()
        missing += [
            f"{rule} has no bound at the end"
            for rule in self.terminal
            if (rule, last, f"b{last - 1}") not in self.seen
        ]
        return missing

    def _nested(self) -> Iterator[str]:
        """Until the proposal's time ends, what the backup may do in a segment it may in the next."""
        known = self.bounds.premises
        for name, (low, high) in known.items() if self.terminal else ():
            kind, _, tag = name.partition(":")
            if kind[:1] == "b" and int(kind[1:]) < self.acting:
                later = known.get(f"b{int(kind[1:]) + 1}:{tag}")
                if later is not None and not later[0] <= low <= high <= later[1]:
                    yield f"`{name}` may be where the backup is not a segment later"

    def _owed(self, source: Source, requirement: Requirement) -> Iterator[tuple[int, str]]:
        """Instants and actions at which a requirement must hold."""
        yield 0, "new"
        if not requirement.always:
            return
        for instant, at in enumerate(self.cuts[: self.acting + 1]):
            yield instant, "new"
            if self._owed_before(source, requirement, at):
                yield instant, "old"
        if self.terminal and f"{source.id}/{requirement.id}" not in self.of_the_past:
            for k in range(len(self.cuts) - 1):
                yield k, f"b{k}"
                if k >= self.acting:  # before that the next line stands for it: `_nested`
                    yield k + 1, f"b{k}"

    def _uncovered_actions(self, source: Source) -> Iterator[str]:
        """Ranges, minimum times and sequences of actions, owed once."""
        for variable, tag in source.names.items():
            quantity = source.quantities[tag]
            owed = [] if self.bounds.as_backup else ["min_on"] * (quantity.min_on > 0)
            owed += [] if self.bounds.as_backup else ["min_off"] * (quantity.min_off > 0)
            for kind in ["range", *owed] if quantity.action else []:
                if (f"{source.id}/{variable}.{kind}", 0, "new") not in self.seen:
                    yield f"{source.id}/{variable}.{kind} has no bound"
        for order in source.orders:
            for name in order_rules(source, order):
                kind = order.kind_of(name.rpartition(".")[2])
                if kind != "informational" and (name, 0, "new") not in self.seen:
                    yield f"{name} has no bound"

    def _owed_before(self, source: Source, requirement: Requirement, at: Fraction) -> bool:
        """Whether the values in force must keep a requirement until the proposal acts."""
        if not requirement.always or not 0 < self.bounds.effect_delay_s >= at:
            return False
        return f"{source.id}/{requirement.id}" not in self.of_the_past

    def _added(self, total: Sum) -> Iterator[str]:
        worst = total.constant
        for name, multiplier, end in total.terms:
            low, high = self.bounds.premises[name]
            if end != (high if multiplier > 0 else low):
                yield f"`{name}` counts with an end that its premise has not"
            worst += multiplier * end
        if worst != total.worst:
            yield f"the sum is {worst}, not {total.worst}"
        if worst > 0 or (worst == 0 and total.strict):
            yield f"the sum {worst} misses the limit"

    def _meant(
        self,
        name: str,
        rule: str,
        when: _When,
        sums: Sequence[Sum],
        samples: int,
        chance: random.Random,
    ) -> list[str]:
        """Points at which the sums say yes and the module's own words say no."""
        points = Points(self.sources, self.bounds.premises)
        for source in self.sources:
            holds = words(source, rule)
            if holds is None:
                continue
            for point in points.near_limits(sums, samples, chance):
                if all(total.holds(point) for total in sums) and not self.plays(source, holds, point, when):
                    return [f"{name}: the bound says less than the module"]
            if self._moves_ahead(rule, when) and not self._ahead(source, holds, when, samples, chance):
                return [f"{name}: it does not hold until the next instant"]
            return []
        return [f"{name}: no module knows this rule"]

    def _moves_ahead(self, rule: str, when: _When) -> bool:
        """Whether what has no dynamics may break a rule before the rest has moved to the next instant."""
        if self.possible is None or when.instant >= self.acting or when.values not in {"new", "old"}:
            return False
        moving = {tag for source in self.sources for tag in source.next_state}
        still = {*self.possible.asked.inputs, *self.possible.asked.unseen} - moving
        for source in self.sources:
            for requirement in source.requirements:
                if f"{source.id}/{requirement.id}" == rule and requirement.always:
                    named = {tag for op, tag in reads([requirement.tree]) if op == "now"}
                    return bool(named & moving) and bool(named & still)
        return False

    def _ahead(
        self, source: Source, holds: Evaluate, when: _When, samples: int, chance: random.Random
    ) -> bool:
        """Inside the premises it holds with what has no dynamics where it may be at the next instant."""
        later = _When(when.instant, when.values, when.instant + 1)
        asked = self.possible.asked if self.possible is not None else None
        tags = {*asked.inputs, *asked.unseen} if asked is not None else set()
        named = [f"{kind}:{tag}" for tag in sorted(tags) for kind in ("x", f"p{later.drift}")]
        reaches = {n: reach for n in named if self.possible and (reach := self.possible.of(n)) is not None}
        points = Points(self.sources, {**reaches, **self.bounds.premises})
        return all(self.plays(source, holds, points.inside(chance), later) for _ in range(samples))

    def plays(self, source: Source, holds: Evaluate, point: Point, when: _When) -> bool:
        """Whether a requirement holds at an instant of the course of events that a point describes."""
        state = {name[2:]: value for name, value in point.items() if name[:2] == "x:"}
        dynamics = {tag: step_on for s in reversed(self.sources) for tag, step_on in s.next_state.items()}
        for k in range(when.instant):
            state = self._later(dynamics, state, point, k, backup=when.values[0] == "b")
        if when.drift != when.instant:
            state |= {t: v for t, v in _of(point, f"p{when.drift}:").items() if t not in dynamics}
        env = {**state, **_of(point, f"{when.values}:")}
        for kind in ("rate", "kept_on", "may_rise", "held", "good", "age"):
            env |= {f"{kind} {tag}": value for tag, value in _of(point, f"{kind}:").items()}
        env |= {f"prev {tag}": value for tag, value in _of(point, "old:").items()}
        env |= {f"lasted {_row(name)}": value for name, value in _of(point, "for:").items()}
        for tag, value in _of(point, "was:").items():
            env |= {f"prev {tag}": value, f"rate {tag}": (state[tag] - value) / self.step}
        try:
            return truth(holds(env))
        except KeyError as exc:
            raise LanguageError(
                f"`{source.id}` reads {exc}, of which the certificate has no premise"
            ) from exc

    def _later(
        self, dynamics: Mapping[str, Evaluate], state: Point, point: Point, k: int, *, backup: bool
    ) -> dict[str, Fraction]:
        """After a segment; `backup`: in the course in which the backup may act from the effect on."""
        part = (self.cuts[k + 1] - self.cuts[k]) / self.step
        mixed = self.cuts[k] < self.bounds.effect_delay_s
        kind = f"e{k}" if mixed else "new"
        if backup:
            kind = f"c{k}" if mixed else f"b{k}"
        env = {**state, **_of(point, f"m{k}:"), **_of(point, f"{kind}:")}
        if backup:  # its mean over the segment, where the certificate tells one apart
            env |= _of(point, f"u{k}:")
        for source in self.sources:
            for name in source.disturbances:
                own = name.removeprefix(f"{source.id}.")
                env[name] = point.get(f"d{k}:{own}", Fraction(0))
        env |= {tag: value for tag, value in state.items() if tag in dynamics}
        after = {**state, **_of(point, f"p{k + 1}:")}
        for tag, step_on in dynamics.items():
            after[tag] = state[tag] + part * (number(step_on(env)) - state[tag])
        return after


def _of_the_past(tree: Node) -> bool:
    return any(op != "now" for op, _ in reads([tree])) or bool(rows([tree]))


def _of(point: Point, prefix: str) -> dict[str, Fraction]:
    size = len(prefix)
    return {name[size:]: value for name, value in point.items() if name[:size] == prefix}


def _row(symbol: str) -> str:
    """`SECONDS MODULE/words` of a symbol as this reader names the row."""
    seconds, _, name = symbol.partition(" ")
    return f"{row_named(name)} {seconds}"
