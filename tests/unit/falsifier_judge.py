"""Judges a true course of events by what a module's page says its rules mean. It has not seen the solver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from tests.unit.falsifier_plant import Plant
from tests.unit.falsifier_truth import Truth
from tests.unit.falsifier_words import Condition, Law, Values, lasting

EVER = Fraction(10**9)
GAP_STEPS = 10  # a row of checks ends with a longer gap
ABOUT = Fraction(1, 4)  # of a step: how far "one step ago" may be off


@dataclass(frozen=True)
class Found:
    """A promise that was not kept."""

    what: str
    at: Fraction
    told: str

    def __str__(self) -> str:
        return f"{float(self.at):.3f} s: {self.what}: {self.told}"


@dataclass
class Promise:
    """Which rules are promised, and until when; nothing is before the first that is permitted."""

    plant: Plant
    until: Fraction = Fraction(-1)

    def covers(self, at: Fraction) -> bool:
        return at <= self.until


@dataclass
class Stretch:
    """A value an output had, from when until when."""

    value: Fraction
    since: Fraction
    until: Fraction | None = None


@dataclass
class Judge:
    """Looks on, moment by moment."""

    truth: Truth
    found: list[Found] = field(default_factory=list)
    promise: Promise = field(init=False)
    looks: int = 0
    closest: dict[str, Fraction] = field(default_factory=dict)
    past: dict[str, list[Stretch]] = field(default_factory=dict)  # newest last
    checks: list[tuple[Fraction, dict[str, Fraction]]] = field(default_factory=list)  # true values then
    began: Fraction = field(init=False)  # the first check since a start
    counted: Fraction = Fraction(0)  # since when maximum times are
    usable: dict[str, bool] = field(default_factory=dict)  # whether a tag's reading is, by name

    def __post_init__(self) -> None:
        self.promise = Promise(self.truth.plant)
        self.began = self.truth.now
        for name, value in self.truth.acting.items():
            self.past[name] = [Stretch(value, self.truth.now)]

    def look(self, acting: Values | None = None) -> None:
        """Every rule that holds at every moment."""
        if not self.promise.covers(self.truth.now):
            return
        self.looks += 1
        values = {**self.truth.state, **(self.truth.acting if acting is None else acting)}
        for law in self.promise.plant.every_law:
            if not law.always:
                continue
            slack = law.whole().slack(values)
            if slack < self.closest.get(law.id, EVER):
                self.closest[law.id] = slack
            if not law.holds(values):
                self.tell(f"`{law.id}` is broken", f"{law.text()} at {_told(values)}")

    def changed(self, name: str, value: Fraction) -> None:
        """An output takes another value now."""
        now = self.truth.now
        if value != self.past[name][-1].value:
            self.past[name][-1].until = now
            self.past[name].append(Stretch(value, now))

    def forget(self) -> None:
        """The gateway has no record of what was in force before now."""
        for name, stretches in self.past.items():
            self.past[name] = stretches[-1:]
        self.counted = self.truth.now

    def acquired(self, *, started: bool) -> None:
        """A check begins: what is true now counts for rules that look back."""
        now = self.truth.now
        step = self.truth.plant.step
        if started or (self.checks and now - self.checks[-1][0] > GAP_STEPS * step):
            self.checks.clear()
        if not self.checks:
            self.began = now
        self.checks.append((now, self.truth.values()))
        del self.checks[:-400]

    def permitted(self, plant: Plant, written: Values, *, as_backup: bool) -> None:
        """What was permitted at this check keeps every rule of the snapshot; called before it acts."""
        values = self.truth.values() | {name: written[name] for name in self.truth.acting}
        for output in plant.outputs:
            values[f"prev({output.name})"] = self.truth.acting[output.name]
        values |= self._step_ago(plant)
        values |= {f"good({s.name})": Fraction(self.usable.get(s.name, True)) for s in plant.seen}
        for law in plant.every_law:
            if law.always:
                continue
            if law.rate_of:
                self._ramped(law, values)
            elif any(not law.holds({**values, **row}) for row in self._rows(law.whole())):
                self.tell(f"`{law.id}` is broken by what was permitted", f"{law.text()} at {_told(values)}")
        for output in plant.outputs:
            low, high = output.range
            if not low <= values[output.name] <= high:
                self.tell(f"`{output.name}` is outside its range", str(values[output.name]))
        if not as_backup:
            self._kept(plant, values)
        self._in_order(plant, values)

    def tell(self, what: str, told: str) -> None:
        self.found.append(Found(what, self.truth.now, told))

    def _ramped(self, law: Law, values: Values) -> None:
        step, now, name = self.truth.plant.step, self.truth.now, law.rate_of
        for stretch in self.past[name]:
            ago = Fraction(0) if stretch.until is None else now - stretch.until
            if abs(values[name] - stretch.value) > law.most * (ago + step):
                told = f"{float(values[name])} after {float(stretch.value)} {float(ago)} s ago"
                self.tell(f"`{law.id}`: {name} moved too fast", told)

    def _kept(self, plant: Plant, values: Values) -> None:
        """Minimum times of switches."""
        for output in plant.outputs:
            newest = self.past[output.name][-1]
            least = output.min_on if newest.value == 1 else output.min_off
            if output.sort == "bool" and values[output.name] != newest.value and least:
                lasted = self.truth.now - newest.since
                if lasted < least:
                    self.tell(f"`{output.name}` turns too soon", f"after {float(lasted)} s of {least} s")

    def _in_order(self, plant: Plant, values: Values) -> None:
        if plant.sequence is None:
            return
        name, states = plant.sequence
        about = next(o for o in plant.outputs if o.name == name)
        labels = {number: label for label, number in about.labels.items()}
        newest = self.past[name][-1]
        was, becomes = labels[int(newest.value)], labels[int(values[name])]
        here = next(s for s in states if s.label == was)
        lasted = self.truth.now - newest.since
        if becomes != was and becomes not in here.following:
            self.tell(f"`{name}` leaves its order", f"{was} to {becomes}")
        if becomes != was and lasted < here.least:
            self.tell(f"`{name}` leaves too soon", f"{was} after {float(lasted)} s")
        lasted = self.truth.now - max(newest.since, self.counted) - plant.hold  # nobody sees it at once
        if becomes == was and here.most and lasted >= here.most:
            self.tell(f"`{name}` stays too long", f"{was} for {float(lasted)} s")

    def _step_ago(self, plant: Plant) -> dict[str, Fraction]:
        """What measured variables truly were at the check nearest to one step ago; nothing without one."""
        now, step = self.truth.now, Fraction(plant.step)
        earlier = [(at, was) for at, was in self.checks[:-1] if abs(now - at - step) <= step * ABOUT]
        if not earlier:
            return {}
        _, was = min(earlier, key=lambda one: abs(now - one[0] - step))
        found: dict[str, Fraction] = {}
        for seen in plant.seen:
            found[f"prev({seen.name})"] = was[seen.name]
            found[f"rate({seen.name})"] = (self.truth.state[seen.name] - was[seen.name]) / step
        return found

    def _rows(self, condition: Condition) -> Sequence[dict[str, Fraction]]:
        """Every answer that a `for` may have."""
        ways: list[dict[str, Fraction]] = [{}]
        for one in lasting(condition):
            answers = self._lasted(one.part, one.seconds)
            ways = [{**way, one.text(): Fraction(answer)} for way in ways for answer in answers]
        return ways

    def _lasted(self, part: Condition, seconds: int) -> tuple[bool, ...]:
        since = None
        for at, values in reversed(self.checks):
            if not part.holds(values):
                break
            since = at
        if since is None:
            return (False,)
        if self.truth.now - since >= seconds:
            return (True,)
        return (False, True) if since == self.began else (False,)


def _told(values: Values) -> str:
    return ", ".join(f"{name} {float(value):.6g}" for name, value in values.items())
