"""A certificate's interval bounds, added up again and held against the module's own words (S7).

Three questions, none answered by the compiler: do the sums come out as told, inside the premises? Does every
requirement have a bound or a solver's word at every instant? And does a bound say what the module says: at
points where its sums stay at or below 0, many of them exactly at it, the requirement is played through step
by step and must hold.
"""

from __future__ import annotations

import json
import operator
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from gateway.recheck.language import Evaluate, LanguageError, number, row_named, truth
from gateway.recheck.overridden import set_aside
from gateway.recheck.source import Range, Requirement, Source, read_source
from gateway.recheck.sums import Point, Sum, sums_of
from gateway.recheck.tree import Kind
from gateway.recheck.words import order_rules, words

_PAST = re.compile(r"\b(prev|rate|for|age|good|vote)\b")
_SETTLED = ("kept_on:", "may_rise:", "for:", "good:")  # true or false: never halfway
_AT_ONCE = re.compile(r"x|was|new|old|[pb]\d+")  # symbols of one instant; the others are means of a stretch
_MANY = 1000  # whole numbers that are looked through
_SPREADS = (Fraction(1), Fraction(1), Fraction(10))  # how far outside the premises points may lie


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What is claimed of one action: premises by symbol, proofs by rule and instant."""

    premises: Mapping[str, Range]
    lines: Sequence[Mapping[str, Any]]
    hold_s: Fraction
    effect_delay_s: Fraction
    as_backup: bool = False
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
    return wrong + book.uncovered()


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
                for near in book.with_real_values(point)
                for when in moments
            )
    return False


def _book(texts: Sequence[str], bounds: Bounds) -> _Book:
    sources = set_aside([read_source(text) for text in texts], bounds.overridden)
    return _Book(
        sources,
        bounds,
        of_the_past=set().union(*(_of_the_past(json.loads(text.removeprefix("\ufeff"))) for text in texts)),
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
    seen: set[tuple[str, int, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        if not self.sources:
            raise LanguageError("there is no module: an empty rule set permits nothing")
        self.step = self.sources[0].step
        if not self.horizon:
            self.cuts = [Fraction(0)]
            return
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
        for source in self.sources:
            holds = words(source, rule)
            if holds is None:
                continue
            for point in self._points(sums, samples, chance):
                if all(total.holds(point) for total in sums) and not self.plays(source, holds, point, when):
                    return [f"{name}: the bound says less than the module"]
            return []
        return [f"{name}: no module knows this rule"]

    def _points(self, sums: Sequence[Sum], samples: int, chance: random.Random) -> Iterator[Point]:
        """Random points near the premises, each also moved so that one sum is exactly 0.

        What counts in whole numbers, a label or a switch, has no value in between: words mean nothing there.
        """
        counted = {name: found for name in self.bounds.premises if (found := self._counted(name))}
        for index in range(samples):
            spread = _SPREADS[index % len(_SPREADS)]
            point = {
                name: _one_of(counted[name], ends, spread, chance)
                if name in counted
                else chance.choice((*ends, Fraction(0), Fraction(1)))
                if name.startswith(_SETTLED) and spread > 1
                else max(_near(ends, spread, chance), Fraction(0))
                if name.startswith("held:")
                else _near(ends, spread, chance)
                for name, ends in self.bounds.premises.items()
            }
            yield point
            for total in sums:
                moved = (t for t in total.terms if not t[0].startswith(_SETTLED) and t[0] not in counted)
                free = [(name, m) for name, m, _ in moved]
                if free:
                    name, multiplier = chance.choice(free)
                    yield {**point, name: point[name] - total.at(point) / multiplier}

    def with_real_values(self, point: Point) -> Iterator[Point]:
        """The point, and where a switch or a label stands between its values, the nearest below and above."""
        yield point
        listed = {name: values for name in point if (values := self._counted(name))}
        halfway = {name for name, values in listed.items() if point[name] not in values}
        for pick, past in ((max, operator.le), (min, operator.ge)) if halfway else ():
            near = {name: [v for v in listed[name] if past(v, point[name])] for name in halfway}
            yield {**point, **{name: Fraction(pick(values)) for name, values in near.items() if values}}

    def _counted(self, name: str) -> Sequence[Fraction | int]:
        """All values that a symbol for a whole number or a label may have; none for any other."""
        kind, _, tag = name.partition(":")
        if not _AT_ONCE.fullmatch(kind):
            return ()
        found = (source.quantities[tag] for source in self.sources if tag in source.quantities)
        quantity = next(found, None)
        if quantity is None:
            return ()
        low, high = quantity.range or (Fraction(0), Fraction(1))
        listed = quantity.listed(low, high)
        if listed is None or quantity.sort.kind is Kind.BOOLEAN:
            return listed or ()
        return range(int(low) - 1, int(high) + 2)  # a register may hold what no label stands for

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


def _of_the_past(module: Mapping[str, Any]) -> set[str]:
    return {
        f"{module['id']}/{c['id']}"
        for c in module["constraints"]
        if _PAST.search(f"{c.get('when', '')} {c['require']}")
    }


def _of(point: Point, prefix: str) -> dict[str, Fraction]:
    size = len(prefix)
    return {name[size:]: value for name, value in point.items() if name[:size] == prefix}


def _row(symbol: str) -> str:
    """`SECONDS MODULE/words` of a symbol as this reader names the row."""
    seconds, _, name = symbol.partition(" ")
    return f"{row_named(name)} {seconds}"


def _one_of(
    values: Sequence[Fraction | int], ends: Range, spread: Fraction, chance: random.Random
) -> Fraction:
    """A value inside the premise, or with a wider spread any that there is."""
    inside = (
        [value for value in ends if value in values]
        if len(values) > _MANY
        else [value for value in values if ends[0] <= value <= ends[1]]
    )
    return Fraction(chance.choice(inside if inside and spread == 1 else values))


def _near(ends: Range, spread: Fraction, chance: random.Random) -> Fraction:
    low, high = ends
    reach = (high - low if high > low else max(Fraction(1), abs(high))) * (spread - 1)
    low, high = low - reach, high + reach
    return low + (high - low) * Fraction(chance.randrange(1001), 1000)
