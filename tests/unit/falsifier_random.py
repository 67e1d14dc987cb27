"""Plants drawn at random, each small and with a few of everything that the language has."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from tests.unit.falsifier_draft import Draft, number, ticks
from tests.unit.falsifier_laws import laws_of
from tests.unit.falsifier_plant import Dwell, Output, Plant, Seen
from tests.unit.falsifier_truth import TICK
from tests.unit.falsifier_words import (
    Entry,
    Form,
    Law,
    Move,
    Upto,
)

LESS = Fraction(3, 10)  # by which a tighter rule is missed sooner


def open_plant(seed: int) -> Plant:
    """A plant of which only single decisions are judged: no set is to be kept for ever."""
    dice = random.Random(seed)  # noqa: S311  repeatable
    draft = Draft(dice, dice.choice((1, 1, 2, 5)))
    _outputs(draft)
    _states(draft)
    _inputs(draft)
    draft.close_bands()
    draft.laws += laws_of(draft)
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
                flaky=draft.chance(0.3),
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


def variants(plant: Plant) -> Iterator[Plant]:
    """The same plant under rule sets that may be swapped in: less room, worse sensors."""
    laws = tuple(_less(law) if law.always else law for law in plant.laws)
    yield replace(plant, laws=laws)
    worse = tuple(replace(s, error=s.error * 3) if s.sort == "real" and s.error else s for s in plant.seen)
    yield replace(plant, seen=worse)


def _less(law: Law) -> Law:
    match law.require:
        case Upto(form, strict):
            return replace(law, require=Upto(Form(form.terms, form.constant + LESS), strict))
        case _:
            return law
