"""What truly happens: a plant in exact rationals, in steps far shorter than the module's, and who plays it.

The player chooses whatever the module's premises leave open: disturbances, how fast what has no dynamics
moves, how wrong a reading is. It looks at the true state and at the rule that is nearest to be broken.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from tests.unit.falsifier_plant import Plant, Seen, Span
from tests.unit.falsifier_words import Condition, Form, Is, Joined, Law, Negated, Product, Said, Upto, Values

TICK = Fraction(1, 1024)  # all times are whole numbers of it: exact as floating point, too
PARTS = 8  # sub-steps in a step
GRID = 10**12  # of states that move themselves, whose decimals would grow for ever
SPARED = Fraction(1, 10**8)  # of a band, for that
AHEAD = 6  # steps that a push counts for

Mood = Literal["greedy", "random", "frozen", "turning", "contrary"]
MOODS: tuple[Mood, ...] = ("greedy", "random", "frozen", "turning", "contrary")


def nearest(laws: tuple[Law, ...], values: Values) -> Form | None:
    """The form whose growth breaks the rule nearest to its limit."""
    best: tuple[Fraction, Form] | None = None
    for law in laws:
        for slack, form in _limits(law.whole(), values):
            if best is None or slack < best[0]:
                best = slack, form
    return best[1] if best is not None else None


def _limits(condition: Condition, values: Values) -> Iterator[tuple[Fraction, Form]]:
    """Forms that keep a condition true, by how much each may still grow."""
    match condition:
        case Upto(form) | Negated(Upto(form)) if not form.terms.keys() <= values.keys():
            return
        case Upto(form):
            size = max((abs(f) for f in form.terms.values()), default=Fraction(1))
            yield -form.at(values) / size, form
        case Joined("and", parts):
            for part in parts:
                yield from _limits(part, values)
        case Joined("or", parts):
            if not any(
                part.slack(values) > 0 for part in parts if isinstance(part, Is) and part.name in values
            ):
                found = [one for part in parts for one in _limits(part, values)]
                yield from sorted(found, key=lambda one: -one[0])[:1]
        case Said(part):
            yield from _limits(part, values)
        case Product((one, other), bound):
            form = Form({one: values[other], other: values[one]}, -bound)
            yield condition.slack(values) / 10, form
        case Negated(Upto(form)):
            yield form.at(values), Form({n: -f for n, f in form.terms.items()}, -form.constant)
        case _:
            return


@dataclass
class Player:
    """Chooses what the premises leave open."""

    plant: Plant
    dice: random.Random
    mood: Mood = "greedy"
    sensors: Mood = "greedy"
    target: Form | None = None
    _constant: dict[str, Fraction] = field(default_factory=dict)
    _pulls: dict[str, Fraction] = field(default_factory=dict)
    _turn: int = 1

    def begin(self, values: Values, laws: tuple[Law, ...]) -> None:
        """A new cycle: what to aim at, and moods."""
        self.aim(nearest(laws, values))
        if self.dice.random() < 0.1:  # sometimes it plays otherwise for a while
            self.mood = self.dice.choice(MOODS)
            self.sensors = self.dice.choice(MOODS)
        self._turn = -self._turn

    def redraw(self) -> None:
        self.mood = self.dice.choice(MOODS) if self.dice.random() < 0.5 else "greedy"
        self.sensors = self.dice.choice(MOODS)
        self._constant.clear()

    def aim(self, target: Form | None) -> None:
        """From now on pushes bring this up."""
        if target is self.target:
            return
        self.target, self._pulls = target, {}
        if target is None:
            return
        weight = dict(target.terms)
        for ahead in range(AHEAD + 1):
            for name, factor in weight.items():
                if ahead or name not in self.plant.steps:
                    self._pulls[name] = self._pulls.get(name, Fraction(0)) + factor
            before: dict[str, Fraction] = {}
            for tag, factor in weight.items():
                for other, own in self.plant.steps.get(tag, Form({})).terms.items():
                    before[other] = before.get(other, Fraction(0)) + factor * own
            weight = before

    def pull(self, name: str) -> Fraction:
        """How much a push on a disturbance, an output or what drifts brings the target up."""
        return self._pulls.get(name, Fraction(0))

    def within(self, name: str, span: Span, mood: Mood | None = None) -> Fraction:
        """A value in a span."""
        low, high = span
        match mood or self.mood:
            case "greedy":
                return high if self.pull(name) >= 0 else low
            case "contrary":
                return low if self.pull(name) >= 0 else high
            case "frozen":
                share = self._constant.setdefault(name, Fraction(self.dice.randint(0, 4), 4))
                return low + (high - low) * share
            case "turning":
                self._turn = -self._turn if self.dice.random() < 0.5 else self._turn
                return high if self._turn > 0 else low
            case _:
                return low + (high - low) * Fraction(self.dice.randint(0, 8), 8)


class Truth:
    """The true state, what is in force, and the time."""

    def __init__(self, plant: Plant, player: Player) -> None:
        self.plant, self.player = plant, player
        dice = player.dice
        self.now = Fraction(1000)
        self.state: dict[str, Fraction] = {s.name: _first(s, dice) for s in plant.seen}
        self._path = {s.name: self.state[s.name] for s in plant.seen if s.sort == "int"}
        self.acting: dict[str, Fraction] = {o.name: Fraction(o.range[0]) for o in plant.outputs}
        self.still: set[str] = set()  # what must not jump for now
        self.broken = False  # the bands left no way to go: nothing may be concluded from here on
        self._own: dict[str, Form] = {}  # what a state's change owes to states
        for name, form in plant.steps.items():
            own = {n: f - (n == name) for n, f in form.terms.items() if n in plant.steps}
            self._own[name] = Form({n: f for n, f in own.items() if f})
        self._lately: list[tuple[Fraction, dict[str, Fraction]]] = []  # states within the last step

    def begin_anew(self) -> None:
        """Another start, as if this were another day."""
        self.state = {s.name: _first(s, self.player.dice) for s in self.plant.seen}
        self._path = {s.name: self.state[s.name] for s in self.plant.seen if s.sort == "int"}
        self._lately.clear()
        self.player.redraw()

    def values(self) -> dict[str, Fraction]:
        return {**self.state, **self.acting}

    def inside(self) -> bool:
        """Whether every state still is where the bands of the module hold."""
        spans = ((self.state[s.name], s.physical or s.range) for s in self.plant.seen)
        return not self.broken and all(low <= value <= high for value, (low, high) in spans)

    def advance(self, seconds: Fraction) -> Iterator[None]:
        """Time passes; after each sub-step whoever watches may look."""
        left = seconds
        while left > 0:
            part = min(left, Fraction(self.plant.step, PARTS))
            left -= part
            self._pass(part)
            yield

    def _pass(self, seconds: Fraction) -> None:
        plant = self.plant
        share, ends = seconds / plant.step, self.now + seconds
        before, after = self.state, dict(self.state)
        for seen in plant.seen:
            if seen.name not in plant.steps:
                after[seen.name] = self._drifted(seen, seconds)
        during = {**before, **self.acting}
        for seen in plant.seen:
            if seen.name not in plant.steps and seen.sort == "real" and seen.max_rate is not None:
                during[seen.name] = (before[seen.name] + after[seen.name]) / 2
            elif seen.name not in plant.steps:
                during[seen.name] = after[seen.name]
        self._lately = [(at, was) for at, was in self._lately if at >= ends - plant.step]
        self._lately.append((self.now, before))
        for name, form in plant.steps.items():
            own = self._own[name]
            rest = form.constant + sum(
                (f * during[n] for n, f in form.terms.items() if n in during and n not in plant.steps),
                Fraction(0),
            )
            value = before[name] + share * (rest + self._pushed(name, own))
            after[name] = Fraction(round(value * GRID), GRID) if own.terms else value
        self.state, self.now = after, ends

    def _pushed(self, name: str, own: Form) -> Fraction:
        """What states and a disturbance do to a state: in its band seen from wherever in the last step."""
        low, high = self.plant.bands[f"w_{name}"]
        if not own.terms:
            return self.player.within(f"w_{name}", (low, high))
        changes = [own.at(was) for _, was in self._lately]
        low, high = max(changes) + low + SPARED, min(changes) + high - SPARED
        if low > high:
            self.broken = True
            low = high = (low + high) / 2
        return self.player.within(f"w_{name}", (low, high))

    def _drifted(self, seen: Seen, seconds: Fraction) -> Fraction:
        """A variable without dynamics some time later."""
        value = self.state[seen.name]
        low, high = seen.physical or _inside(seen, seen.range)
        if seen.max_rate is None:
            if seen.name in self.still or self.player.dice.random() < 0.7:
                return value
            found = self.player.within(seen.name, (low, high))
            return found if seen.sort == "real" else Fraction(round(found))
        if seen.sort == "int":
            value = self._path[seen.name]
        reach = seen.max_rate * seconds
        value = min(high, max(low, self.player.within(seen.name, (value - reach, value + reach))))
        if seen.sort == "int":
            self._path[seen.name] = value
            return Fraction(round(value))
        return value

    def reading(self, seen: Seen) -> float | int:
        """What a sensor shows now: wrong by as much as it may be, to whichever side suits the player."""
        value = self.state[seen.name]
        if seen.sort != "real":
            return int(value)
        most = self.plant.error(seen) + seen.deadband
        wrong = self.player.within(seen.name, (-most, most), self.player.sensors)
        counts = round((value + wrong) / seen.scale)
        return float(counts * seen.scale)

    def shown(self, names: Mapping[str, Seen]) -> dict[str, Fraction]:
        """What the PLC's own sensors show it, as wrong as the gateway's."""
        found = dict(self.state)
        for name, seen in names.items():
            if seen.sort == "real" and not seen.hidden:
                most = self.plant.error(seen) + seen.deadband
                found[name] += most * self.player.dice.choice((-1, 0, 1))
        return found


def _inside(seen: Seen, span: Span) -> Span:
    """Where its reading is wholly inside its range."""
    edge = seen.off + seen.scale
    return (span[0] + edge, span[1] - edge) if seen.sort == "real" else span


def _first(seen: Seen, dice: random.Random) -> Fraction:
    low, high = seen.start
    value = low + (high - low) * Fraction(dice.randint(0, 16), 16)
    return value if seen.sort == "real" else Fraction(round(value))
