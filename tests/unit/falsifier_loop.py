"""A plant, a PLC and the gateway's check in a closed loop in which all that may go wrong does.

Readings are old and wrong, writes late or unanswered, cycles missed; the PLC is turned to local or falls back
because nothing is heard; the gateway forgets; somebody moves an output by hand; rules become tighter.
"""

from __future__ import annotations

import copy
import random
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from gateway.core.decision import Permitted, Refused, Repaired, Undetermined
from gateway.core.ports import StateSet
from tests.unit.falsifier_foresight import PATIENCE, Silence, lived, safe
from tests.unit.falsifier_gateway import Decided, Gateway, Rules, second_opinion
from tests.unit.falsifier_judge import EVER, Found, Judge
from tests.unit.falsifier_plant import Plant
from tests.unit.falsifier_plc import PACES, Plc, counted
from tests.unit.falsifier_truth import TICK, Player, Truth, nearest
from tests.unit.falsifier_wishes import Wishes
from tests.unit.falsifier_words import Values

HOPELESS = 3  # cycles
KEPT = frozenset({"permitted", "repaired", "backup", "value in force"})  # what is permitted, by whom it came
MISSING = 0.15  # of the readings of what is flaky
ARRIVES = 0.5  # of the writes that nobody answers
LATEST = Fraction(1, 100)


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """How often, of cycles, each thing happens."""

    late: float = 0.0  # unanswered writes
    missed: float = 0.0
    local: float = 0.0
    restart: float = 0.0
    by_hand: float = 0.0
    swap: float = 0.0
    foreseen: float = 0.3  # what if this decision were the last one
    sampled: float = 0.0  # proposals that vertex sampling looks at
    hasty: float = 0.1  # a further decision soon after


CALM = Trouble()
ROUGH = Trouble(late=0.03, missed=0.03, local=0.02, restart=0.02, by_hand=0.01, swap=0.05)


@dataclass(frozen=True)
class Event:
    """Something that happens between two decisions."""

    at: Fraction
    kind: Literal["read", "takes effect", "confirmed", "falls", "local", "by hand"]
    about: str = ""


@dataclass
class Tally:
    """What a run came to."""

    by: Counter[str] = field(default_factory=Counter)
    safe: int = 0  # proposals that vertex sampling finds nothing against
    unchanged: int = 0  # of these, permitted as they are
    found: list[Found] = field(default_factory=list)
    undetermined: Counter[str] = field(default_factory=Counter)
    cornered: Counter[str] = field(default_factory=Counter)  # nothing permitted though nothing went wrong
    looks: int = 0
    cycles: int = 0
    closest: dict[str, Fraction] = field(default_factory=dict)


class Loop:
    """One run."""

    def __init__(
        self, rules: Sequence[Rules], seed: int, trouble: Trouble, *, opinions: float = 0.02
    ) -> None:
        """`rules`: those in force at first, then tighter ones; `opinions`: share judged by a second judge."""
        self.dice = random.Random(seed)  # noqa: S311  repeatable
        self.rules, self.trouble, self.opinions = list(rules), trouble, opinions
        self.plant: Plant = rules[0].plant
        self.player = Player(self.plant, random.Random(seed + 1))  # noqa: S311  repeatable
        self.truth = Truth(self.plant, self.player)
        self.judge = Judge(self.truth)
        dice = random.Random(seed + 2)  # noqa: S311  repeatable
        self.plc = Plc(self.truth, self.judge, dice, self._polled)
        self.wishes = Wishes(self.plant, self.truth, self.player, self.dice)
        self.gateway = Gateway(rules[0], repair_nearest=self.dice.random() < 0.25)
        self.tally = Tally(found=self.judge.found, closest=self.judge.closest)
        self.readings: dict[str, tuple[float | int | None, Fraction]] = {}
        self.unarmed = 0  # cycles until somebody arms it again
        self.local_left = 0
        self.first_write = False
        self.last_confirmed = self.truth.now
        self.started, self.blind = True, False
        self.calm = False  # since something was permitted nothing went wrong
        self.lost = 0  # cycles in a row in which nothing was permitted
        self.trace: deque[str] = deque(maxlen=40)
        self._read_all()

    def run(self, cycles: int) -> Tally:
        for _ in range(cycles):
            self.cycle()
            self.tally.cycles += 1
            if self.lost > HOPELESS:
                self._begin_anew()
            if self.judge.found or not self.truth.inside():
                break
        self.tally.looks = self.judge.looks
        return self.tally

    def cycle(self) -> None:
        """One decision and what happens until the next."""
        self._between_cycles()
        now = self.truth.now
        if self.blind:  # a start: readings that are older than the first word on the outputs are of no use
            self.blind = False
            self.unarmed = max(self.unarmed, 1)
            self._live([], now + self.plant.period, None, now)
            return
        self.player.begin(self.truth.values(), self.plant.every_law)
        decided, wanted = self._decide(now)
        armed = self._in_control()
        self._judged(decided, wanted, now, armed=armed)
        self.started = False
        if armed and decided.by in KEPT and self.plant.lasting and self.dice.random() < self.trouble.foreseen:
            self._foreseen(decided)
        if self.plant.lasting and self.dice.random() < self.trouble.sampled:
            self._sampled(decided, wanted)
        self._until_next(decided, armed=armed)

    def _until_next(self, decided: Decided, *, armed: bool) -> None:
        now, delay, hold = self.truth.now, self.plant.delay, self.plant.hold
        gap, write = self._gap(), armed and bool(decided.written)
        events: list[Event] = []
        unanswered = write and self._unanswered()
        last = self.last_confirmed
        if write:
            effect = now + self._some(delay)
            if not (unanswered and self.dice.random() < ARRIVES):
                events.append(Event(effect, "takes effect"))
            if unanswered:
                gap = max(min(gap, hold), delay + TICK)
                for name, value in decided.written.items():
                    self.gateway.histories[name].unconfirmed(value, float(now))
            else:
                answer = effect + min(hold - (effect - now), self._some(LATEST)) / 2
                events.append(Event(answer, "confirmed"))
                gap, last = max(gap, answer - now + TICK), now
        elif armed:  # control is given back, and the PLC falls back
            events.append(Event(now + self._some(delay), "falls"))
        if unanswered or gap > hold:
            self.calm = False
        if not unanswered:  # else nobody would see from what it falls back
            events += self._disasters(gap, last)
        self._live(events, now + gap, decided, now)
        if unanswered:
            for history in self.gateway.histories.values():
                history.ended(float(now + delay))

    def _foreseen(self, decided: Decided) -> None:
        """What if this were the last decision."""
        dice, plant, judge = self.dice, self.plant, self.judge
        effect = self._some(plant.delay)
        latest = plant.hold + PATIENCE
        falls = dice.choice((effect, plant.hold, latest, effect + self._some(latest - effect)))
        silence = Silence(effect=effect, falls=max(effect, falls), pace=dice.choice(PACES))
        start = self.truth.state, self.truth.acting
        target = nearest(plant.every_law, self.truth.values())
        other = lived(plant, start, decided.written, silence, target, dice.randint(0, 10**6))
        for one in other.found:
            judge.tell(f"{one.what} after silence", f"{silence}: {one.told}")
        for law, slack in other.closest.items():
            judge.closest[law] = min(slack, judge.closest.get(law, slack))

    def _sampled(self, decided: Decided, wanted: Values) -> None:
        """Counts proposals that vertex sampling finds nothing against, and how many go out as they are."""
        if decided.state is None or isinstance(decided.result.verdict, Undetermined):
            return
        probe = copy.copy(self.judge)
        probe.found = []
        probe.permitted(self.plant, wanted, as_backup=False)
        if probe.found or not safe(
            self.plant, decided.state, self.truth.acting, wanted, self.dice.randint(0, 999)
        ):
            return
        self.tally.safe += 1
        if isinstance(decided.result.verdict, Permitted) and dict(decided.written) == dict(wanted):
            self.tally.unchanged += 1

    def _unanswered(self) -> bool:
        soon = self.truth.now + self.plant.hold + 1 < self.last_confirmed + PATIENCE
        return soon and self.dice.random() < self.trouble.late

    def _disasters(self, gap: Fraction, last: Fraction) -> Iterator[Event]:
        """What nobody asked for; `last` is the last decision that was confirmed."""
        now, dice, trouble = self.truth.now, self.dice, self.trouble
        silent = last + self.plant.hold + self._some(Fraction(PATIENCE))
        if now + gap > silent:
            yield Event(max(silent, now + TICK), "falls")
        if dice.random() < trouble.local and self.plant.lasting and not self.local_left:
            yield Event(now + self._some(gap), "local")
        if dice.random() < trouble.by_hand:
            yield Event(now + gap - TICK, "by hand")

    def _live(self, events: list[Event], until: Fraction, decided: Decided | None, began: Fraction) -> None:
        """What happens until the next decision, readings for it among it."""
        every = sorted([*self._reading_times(until), *events], key=lambda e: e.at)
        for event in every:
            if event.at > until:
                continue
            self.plc.until(event.at)
            if event.kind == "read":
                self._read(event.about)
            else:
                self._note(event.kind)
                assert decided is not None
                self._happens(event, decided, began)
        self.plc.until(until)
        self.truth.still.clear()

    def _happens(self, event: Event, decided: Decided, began: Fraction) -> None:
        self.calm = self.calm and event.kind in {"takes effect", "confirmed"}
        match event.kind:
            case "takes effect" if not self.local_left and not (
                self.plc.falling and self.plc.fell_at > began  # it went its way meanwhile, and nobody saw
            ):
                self.plc.take(decided.written)
            case "confirmed" if not self.local_left and not self.plc.falling:
                for name, value in decided.written.items():
                    self.gateway.histories[name].confirm(value, float(event.at))
                self.last_confirmed = began
            case "falls":
                if not self.plant.lasting:  # then nothing is said of a fallback
                    self.judge.promise.until = Fraction(-1)
                self.plc.fall()
            case "local":
                self.plc.fall()
                self.local_left = self.dice.randint(1, 12)
            case "by hand" if not self.plc.falling:
                self._by_hand()
            case _:
                pass

    def _by_hand(self) -> None:
        """Somebody moves an output: nothing is promised until something is permitted again."""
        output = self.dice.choice(self.plant.outputs)
        self.judge.promise.until = Fraction(-1)
        self.judge.counted = self.truth.now
        self.plc.put({output.name: self.wishes.anywhere(output)})

    def _begin_anew(self) -> None:
        """Nothing is permitted any more, and nothing is promised: another start is more of a trial."""
        self.judge.promise.until = Fraction(-1)
        self.lost = 0
        self.truth.begin_anew()
        for output in self.plant.outputs:
            low, high = output.range
            mid = counted(output, (low + high) / 2) if output.sort == "real" else low
            self.plc.take({output.name: mid if self.dice.random() < 0.5 else low})
        self.gateway.restart()
        self.started, self.unarmed, self.local_left = True, 0, 0
        self.last_confirmed = self.truth.now
        self.judge.forget()
        self._read_all()

    def _between_cycles(self) -> None:
        dice, trouble = self.dice, self.trouble
        if self.local_left:
            self.local_left -= 1
            self.unarmed = max(self.unarmed, 2)
        if dice.random() < trouble.restart:
            self.calm = False
            self.gateway.restart()
            self.started = self.blind = True
            self.unarmed = dice.randint(1, 3)
            self.judge.forget()
        if dice.random() < trouble.swap and len(self.rules) > 1:
            self.rules.append(self.rules.pop(0))
            self.gateway.rules = self.rules[0]
            self.calm = False
        self._polled()
        if self.plc.falling:
            self.judge.counted = self.truth.now

    def _polled(self) -> None:
        """Working values are read back; one that nobody asked for disarms."""
        if self.gateway.observe(self.truth.acting, self.truth.now):
            self.unarmed = max(self.unarmed, self.dice.randint(1, 3))
            self.judge.counted = self.truth.now

    def _in_control(self) -> bool:
        if not self.unarmed:
            return not self.local_left
        self.unarmed, self.first_write = self.unarmed - 1, True
        return False

    def _decide(self, now: Fraction) -> tuple[Decided, Values]:
        self.judge.acquired(started=self.started)
        wanted = self.wishes.wanted()
        if self.first_write and not self.unarmed:
            self.first_write = False
            wanted = dict(self.truth.acting)
        decided = self.gateway.decide(now, self.readings, wanted)
        return decided, wanted

    def _judged(self, decided: Decided, wanted: Values, now: Fraction, *, armed: bool) -> None:
        """What must be true of a decision whatever follows."""
        judge, tally = self.judge, self.tally
        tally.by[decided.by or "nothing"] += armed
        if decided.undetermined:
            tally.undetermined[decided.undetermined.split(":")[0][:60]] += 1
            if "broken assumption" in decided.undetermined or "disagree" in decided.undetermined:
                judge.tell("undetermined though nothing is wrong", decided.undetermined)
        self._in_the_state_set(decided.state)
        plant = self.gateway.rules.plant
        if armed and self.calm and decided.by in {"", "recovery"}:
            tally.cornered[decided.by or "nothing"] += 1
        self.lost = 0 if decided.by in {"permitted", "repaired"} else self.lost + (not plant.lasting)
        if armed and decided.by in KEPT:
            self.calm = plant.lasting
            judge.permitted(plant, decided.written, as_backup=decided.by == "backup")
            judge.promise.plant = plant
            judge.promise.until = EVER if plant.lasting else now + plant.hold
            if self.dice.random() < self.opinions:
                said = second_opinion(self.gateway.rules, decided, decided.state, 4, self.dice.randint(0, 99))
                if said:
                    judge.tell("the second checker differs", said)
        if isinstance(decided.result.verdict, Refused | Repaired):
            self.wishes.mulled = wanted
        judge.look()
        self._note(
            f"{'' if armed else 'not armed, '}wanted {_said(wanted)}: {decided.by} {_said(decided.written)}"
        )

    def _in_the_state_set(self, state: StateSet | None) -> None:
        if state is None:
            return
        for name, value in self.truth.state.items():
            tag = next(t for t in state.intervals if t.lower() in {name, f"first.{name}"})
            interval = state.intervals[tag]
            if not interval.low <= value <= interval.high:
                told = f"{float(value)} is not in {float(interval.low)} to {float(interval.high)}"
                self.judge.tell(f"the state set leaves out `{name}`", told)

    def _note(self, what: str) -> None:
        self.trace.append(f"{float(self.truth.now):.4f} {_said(self.truth.values())} | {what}")

    def _gap(self) -> Fraction:
        """Until the next acquisition."""
        plant, dice = self.plant, self.dice
        if dice.random() < self.trouble.missed:
            return plant.hold + self._some(Fraction(max(PATIENCE, 2 * plant.step)))
        if dice.random() < self.trouble.hasty:
            return self._some(plant.hold)
        return plant.hold - self._some((plant.hold - plant.period) or TICK) + TICK

    def _some(self, most: Fraction) -> Fraction:
        """A time up to that, whole ticks, never 0; often at its ends."""
        ticks = max(1, int(most / TICK))
        share = self.dice.choice((0, ticks, self.dice.randint(0, ticks)))
        return TICK * max(1, share)

    def _reading_times(self, until: Fraction) -> Iterator[Event]:
        """When each sensor is read for the next decision: in groups, not before this one."""
        groups: dict[int, Fraction] = {}
        apart = self.dice.random() < 0.5
        for number, seen in enumerate(s for s in self.plant.seen if not s.hidden):
            group = number if apart else 0
            if group not in groups:
                most = min(seen.max_age, until - self.truth.now, self.plant.period)
                groups[group] = self.dice.choice((Fraction(0), self._some(most) - TICK))
            at = until - min(groups[group], seen.max_age)
            if seen.max_rate is None and seen.name not in self.plant.steps:
                at = until
            yield Event(max(at, self.truth.now), "read", seen.name)

    def _read(self, name: str) -> None:
        seen = next(s for s in self.plant.seen if s.name == name)
        missing = seen.flaky and self.dice.random() < MISSING
        self.judge.usable[name] = not missing
        self.readings[name] = None if missing else self.truth.reading(seen), self.truth.now
        self.truth.still.add(name)

    def _read_all(self) -> None:
        for name in [s.name for s in self.plant.seen if not s.hidden]:
            self._read(name)
        self.truth.still.clear()


def _said(values: Values) -> str:
    return " ".join(f"{name}={float(value):.6g}" for name, value in values.items())
