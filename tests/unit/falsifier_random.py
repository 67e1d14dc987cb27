"""Plants drawn at random, each small and with a few of everything that the language has."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from tests.unit.falsifier_plant import Dwell, Output, Plant, Seen, Span
from tests.unit.falsifier_truth import TICK
from tests.unit.falsifier_words import (
    Condition,
    Entry,
    Form,
    Is,
    Joined,
    Lasted,
    Law,
    Median,
    Move,
    Negated,
    Upto,
    within,
)

PLACES = 10**6
SPARE = Fraction(6, 10)  # of the fastest move of all states at once


def number(value: float | str) -> Fraction:
    """A short decimal."""
    return Fraction(str(value))


def ticks(seconds: Fraction) -> Fraction:
    """The nearest whole number of ticks, at least one."""
    return max(1, round(seconds / TICK)) * TICK


@dataclass
class Draft:
    """A plant in the making."""

    dice: random.Random
    step: int
    seen: list[Seen] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    steps: dict[str, Form] = field(default_factory=dict)
    bands: dict[str, Span] = field(default_factory=dict)
    laws: list[Law] = field(default_factory=list)

    def some(self, *values: float | str) -> Fraction:
        return number(self.dice.choice(values))

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def close_bands(self) -> None:
        """Bands wide enough for what a step leaves out of states that move one another while it lasts."""
        spans: dict[str, Span] = {s.name: s.physical or s.range for s in self.seen}
        spans |= {o.name: o.range for o in self.outputs} | self.bands
        most = {name: max(map(abs, _ends(_change(name, f), spans))) for name, f in self.steps.items()}
        for name, form in self.steps.items():
            change = _change(name, form)
            left = sum((abs(f) * most[n] / 2 for n, f in change.terms.items() if n in most), Fraction(0))
            low, high = self.bands[f"w_{name}"]
            if left:
                left = Fraction(int(left * SPARE * PLACES) + 1, PLACES)
                self.bands[f"w_{name}"] = min(low, -left), max(high, left)


def _change(name: str, form: Form) -> Form:
    return Form({**form.terms, name: form.terms.get(name, Fraction(0)) - 1}, form.constant)


def _ends(form: Form, spans: Mapping[str, Span]) -> Span:
    low = high = form.constant
    for name, factor in form.terms.items():
        ends = sorted(factor * end for end in spans[name])
        low, high = low + ends[0], high + ends[1]
    return low, high


def open_plant(seed: int) -> Plant:
    """A plant of which only single decisions are judged: no set is to be kept for ever."""
    dice = random.Random(seed)  # noqa: S311  repeatable
    draft = Draft(dice, dice.choice((1, 1, 2, 5)))
    _outputs(draft)
    _states(draft)
    _inputs(draft)
    draft.close_bands()
    draft.laws += _laws(draft)
    sequence = _sequence(draft)
    period = draft.step * draft.some("0.3", 1, 1, 1, "1.7")
    delay = ticks(draft.some("0.05", "0.2", "0.4", "1.1") * min(1, draft.step))
    hold = max(ticks(period * draft.some("1.04", "1.2")), delay + 8 * TICK)
    worse = {s.name: s.error * 2 for s in draft.seen if s.sort == "real" and not s.hidden and s.error}
    second = draft.chance(0.3)
    others = tuple(law for law in draft.laws if _tagged(law, draft) and law.id.endswith("0"))
    return Plant(
        step=draft.step,
        seen=tuple(draft.seen),
        outputs=tuple(draft.outputs),
        steps=draft.steps,
        bands=draft.bands,
        laws=tuple(draft.laws),
        backup=tuple(_backup(draft)),
        sequence=sequence,
        worse=worse if second and others else {},
        others=others if second else (),
        hold=hold,
        delay=delay,
        period=min(ticks(period), hold),
        about=f"open {seed}",
    )


def _tagged(law: Law, draft: Draft) -> bool:
    hidden = {s.name for s in draft.seen if s.hidden}
    return all(not (form.terms.keys() & hidden) for form in law.whole().atoms())


def _outputs(draft: Draft) -> None:
    low = draft.some(0, 0, -20)
    scale = draft.some("0.1", "0.5", 1)
    draft.outputs.append(Output(name="p", range=(low, Fraction(100)), scale=scale))
    if draft.chance(0.4):
        draft.outputs.append(Output(name="v", range=(Fraction(0), Fraction(50)), scale=Fraction(1, 4)))
    if draft.chance(0.5):
        least, most = draft.dice.choice(((0, 0), (3, 0), (5, 7), (0, 4)))
        span = (Fraction(0), Fraction(1))
        draft.outputs.append(Output(name="h", range=span, sort="bool", min_on=least, min_off=most))
    if draft.chance(0.3):
        draft.outputs.append(Output(name="k", range=(Fraction(0), Fraction(3)), sort="int"))
    if draft.chance(0.3):
        labels = {"idle": 0, "run": 5, "stop": 9}
        draft.outputs.append(Output(name="s", range=(Fraction(0), Fraction(9)), sort="enum", labels=labels))


def _states(draft: Draft) -> None:
    names = ["x", "y", "z"][: draft.dice.choice((1, 1, 2, 3))]
    feeds = draft.chance(0.4)
    for number_, name in enumerate(names):
        hidden = number_ > 0 and feeds and draft.chance(0.5)
        span = Fraction(-3), Fraction(9)
        draft.seen.append(
            Seen(
                name=name,
                range=span if not hidden else (Fraction(-5), Fraction(10)),
                start=(number("1.6"), number("2.4")),
                error=draft.some("0.01", "0.05", "0.002"),
                deadband=draft.some(0, 0, "0.02"),
                scale=draft.some("0.001", "0.01", "0.05"),
                hidden=hidden,
                physical=span if hidden or draft.chance(0.3) else None,
                max_age=Fraction(2),
            )
        )
        terms: dict[str, Fraction] = {name: Fraction(1), f"w_{name}": Fraction(1)}
        constant = Fraction(0)
        if feeds and draft.chance(0.7):
            own = draft.some("0.02", "0.05")
            terms[name] -= own
            constant += own * 2
        if feeds and number_ and draft.chance(0.8):
            other, own = draft.dice.choice(names[:number_]), draft.some("0.03", "-0.02")
            terms[other] = terms.get(other, Fraction(0)) + own
            constant -= own * 2
        for output in draft.outputs:
            if output.sort != "enum" and (draft.chance(0.7) or output.name == "p"):
                wide = output.range[1] - output.range[0]
                push = draft.some("0.1", "-0.1", "0.04", "-0.3")
                terms[output.name] = Fraction(round(push / wide * 10**5), 10**5)
        draft.steps[name] = Form(terms, constant)
        wide = draft.some(0, "0.004", "0.02")
        draft.bands[f"w_{name}"] = -wide, wide * draft.some(0, "0.5", 1)


def _inputs(draft: Draft) -> None:
    """What has no dynamics."""
    if draft.chance(0.6):
        physical = (Fraction(0), Fraction(36)) if draft.chance(0.7) else None
        draft.seen.append(
            Seen(
                name="q",
                range=(Fraction(-5), Fraction(45)),
                start=(Fraction(4), Fraction(10)),
                error=draft.some("0.3", "0.1"),
                scale=draft.some("0.01", "0.1"),
                max_rate=draft.some(2, "0.5", 8) if physical else draft.some("0.5"),
                physical=physical,
            )
        )
        if physical is not None and draft.chance(0.7):
            name = draft.dice.choice(list(draft.steps))
            form = draft.steps[name]
            draft.steps[name] = Form({**form.terms, "q": draft.some("0.003", "-0.002")}, form.constant)
    if draft.chance(0.3):
        rate = draft.some("0.5", 1)
        for name in ("ra", "rb", "rc"):
            draft.seen.append(
                Seen(
                    name=name,
                    range=(Fraction(-100), Fraction(200)),
                    start=(Fraction(40), Fraction(50)),
                    error=draft.some("0.5", 1),
                    scale=Fraction(1, 10),
                    max_rate=rate,
                    physical=(Fraction(0), Fraction(90)),
                )
            )
    if draft.chance(0.3):
        paced = draft.some("0.3", 2) if draft.chance(0.5) else None
        draft.seen.append(
            Seen(
                name="n",
                sort="int",
                range=(Fraction(0), Fraction(20)),
                start=(Fraction(3), Fraction(8)),
                max_rate=paced,
                physical=(Fraction(0), Fraction(20)) if paced is not None else None,
            )
        )
    if draft.chance(0.2):
        span = (Fraction(0), Fraction(1))
        draft.seen.append(Seen(name="b", sort="bool", range=span, start=(Fraction(0), Fraction(0))))


def _laws(draft: Draft) -> Iterator[Law]:
    found: list[Law] = []
    states = [s.name for s in draft.seen if s.name in draft.steps]
    for name in states:
        if draft.chance(0.8):
            found.append(_upper(draft, name))
        if draft.chance(0.6):
            found.append(_lower(draft, name))
    if len(states) > 1 and draft.chance(0.5):
        one = Fraction(1)
        form = Form({states[0]: one, states[1]: draft.some(1, -1, "0.5")}, -draft.some(4, 5))
        found.append(Law(id="", require=Upto(form), always=True))
    for one_more in (_of_inputs, _of_outputs, _looking_back):
        found += one_more(draft, states)
    for index, law in enumerate(found):
        yield Law(
            id=f"r{index}",
            require=law.require,
            when=law.when,
            always=law.always,
            rate_of=law.rate_of,
            most=law.most,
        )


def _upper(draft: Draft, name: str) -> Law:
    terms = {name: Fraction(1)}
    bound = draft.some("2.8", "3.2", "3.6")
    if draft.chance(0.3):
        terms["p"] = draft.some("0.004", "-0.004")
    names = [s.name for s in draft.seen]
    if "q" in names and draft.chance(0.3):
        terms["q"] = draft.some("0.01", "-0.01")
    return Law(id="", require=Upto(Form(terms, -bound)), when=_guard(draft), always=draft.chance(0.9))


def _lower(draft: Draft, name: str) -> Law:
    bound = draft.some("0.4", "0.8", "1.2")
    return Law(
        id="", require=Upto(Form({name: Fraction(-1)}, bound)), when=_guard(draft), always=draft.chance(0.9)
    )


def _guard(draft: Draft) -> Condition | None:
    """A condition about outputs alone."""
    if draft.chance(0.5):
        return None
    output = draft.dice.choice(draft.outputs)
    if output.sort == "bool":
        return Is(output.name, wanted=draft.chance(0.7))
    if output.sort == "enum":
        return Is(output.name, 5, "run", wanted=draft.chance(0.7))
    bound = draft.some(0, 1) if output.sort == "int" else draft.some(10, 20, 30)
    sign = 1 if draft.chance(0.3) else -1
    return Upto(Form({output.name: Fraction(sign)}, -sign * bound), strict=draft.chance(0.5))


def _of_inputs(draft: Draft, states: list[str]) -> Iterator[Law]:
    names = {s.name: s for s in draft.seen}
    if "ra" in names:
        wanted = Median(("ra", "rb", "rc"), draft.some(45, 48, 55))
        yield Law(id="", require=wanted, when=_guard(draft), always=draft.chance(0.6))
    if "n" in names:
        few = Upto(Form({"n": Fraction(1)}, -draft.some(6, 9)))
        rated = names["n"].max_rate is not None
        yield Law(id="", require=few, when=_guard(draft), always=rated and draft.chance(0.6))
    if "b" in names:
        spared = Joined("or", (Is("b", wanted=False), Upto(Form({"p": Fraction(1)}, Fraction(-60)))))
        yield Law(id="", require=spared)
    if "q" in names and draft.chance(0.6):
        some = Upto(Form({"q": Fraction(1)}, -draft.some(9, 14)))
        either = Joined("or", (some, Upto(Form({"p": Fraction(-1)}, Fraction(30)))))
        yield Law(id="", require=either, always=draft.chance(0.5))
    del states


def _of_outputs(draft: Draft, states: list[str]) -> Iterator[Law]:
    del states
    ramp = draft.some(5, 10, 30) / draft.step
    if draft.chance(0.7):
        require = within(Form({"rate(p)": Fraction(1)}), ramp)
        yield Law(id="", require=require, rate_of="p", most=ramp)
    names = {o.name for o in draft.outputs}
    if "v" in names and draft.chance(0.6):
        both = Form({"p": Fraction(1), "v": draft.some(1, -1)})
        yield Law(id="", require=within(both, draft.some(70, 90)))
    if "h" in names and draft.chance(0.5):
        either = Joined("or", (Is("h", wanted=False), Upto(Form({"p": Fraction(1)}, Fraction(-70)))))
        yield Law(id="", require=either)


def _looking_back(draft: Draft, states: list[str]) -> Iterator[Law]:
    name = states[0]
    if draft.chance(0.25):
        lasted = Lasted(Upto(Form({name: Fraction(-1)}, draft.some("1.9", "2.2"))), draft.step * 3)
        enough = Upto(Form({"p": Fraction(-1)}, Fraction(20)))
        yield Law(id="", require=Joined("or", (Negated(lasted), enough)))
    if draft.chance(0.2):
        slow = Upto(Form({f"rate({name})": Fraction(1)}, -draft.some("0.2", "0.4")))
        yield Law(id="", require=Joined("or", (slow, Upto(Form({"p": Fraction(1)}, Fraction(-90))))))
    elif draft.chance(0.2):
        form = Form({name: Fraction(1), f"prev({name})": Fraction(-1), "p": number("0.001")}, -number("0.5"))
        yield Law(id="", require=Upto(form))


def _sequence(draft: Draft) -> tuple[str, tuple[Dwell, ...]] | None:
    if not any(o.name == "s" for o in draft.outputs) or draft.chance(0.4):
        return None
    least = draft.dice.choice((0, 3))
    return "s", (
        Dwell(label="idle", following=("run",)),
        Dwell(label="run", following=("stop",), least=least, most=draft.dice.choice((0, 20))),
        Dwell(label="stop", following=("idle", "run"), least=least),
    )


def _backup(draft: Draft) -> Iterator[Entry]:
    name = draft.seen[0].name
    if draft.chance(0.5):
        when = Upto(Form({name: Fraction(-1)}, draft.some("1.8", "2.2")))
        yield Entry(when=when, moves={"p": _move(draft, "p")})
    moves = {o.name: _move(draft, o.sort if o.name != "p" else "p") for o in draft.outputs}
    yield Entry(moves=moves)


def _move(draft: Draft, kind: str) -> Move:
    match kind:
        case "p" | "real":
            target, rate = draft.some(0, 30, 50), draft.some(2, 5, 10) / draft.step
            return draft.dice.choice((Move(), Move(target=target), Move(target=target, rate=rate)))
        case "bool":
            return Move(target=Fraction(0))
        case _:
            return Move()
