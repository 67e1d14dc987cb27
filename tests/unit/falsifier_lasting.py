"""Random plants with a set that their backup keeps for ever: a point may be armed on each of them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from gateway.solver.analysis import suggest
from gateway.solver.analysis.asking import Allowance
from gateway.solver.proofs.safeset import prove
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.falsifier_draft import Draft, number, ticks
from tests.unit.falsifier_plant import Output, Plant, Seen
from tests.unit.falsifier_truth import TICK
from tests.unit.falsifier_words import Entry, Form, Is, Law, Move, Upto, within

ONE = Fraction(1)


def heated(seed: int) -> Plant:
    """Something that is warmed and cools by itself, with a `terminal` set: everything off."""
    dice = random.Random(seed)  # noqa: S311  repeatable
    draft = Draft(dice, dice.choice((1, 2, 5)))
    most = draft.some(6, 7)
    draft.outputs.append(Output(name="p", range=(Fraction(0), Fraction(100)), scale=draft.some("0.1", 1)))
    if draft.chance(0.6):
        least = draft.dice.choice((0, 3 * draft.step))
        span = Fraction(0), ONE
        draft.outputs.append(Output(name="h", range=span, sort="bool", min_on=least, min_off=least))
    adds_up = draft.chance(0.5)  # and loses a fixed amount
    names = ["x"] if adds_up or draft.chance(0.3) else ["x", "z"]
    for name in names:
        hidden = name == "z" and draft.chance(0.7)
        draft.seen.append(
            Seen(
                name=name,
                range=(Fraction(-20 if adds_up else 0), Fraction(12)),
                start=(Fraction(4), Fraction(6)),
                error=draft.some("0.02", "0.1"),
                scale=draft.some("0.01", "0.001"),
                hidden=hidden,
                physical=(Fraction(0), Fraction(10)) if hidden else None,
            )
        )
        own, wide = draft.some("0.03", "0.1"), draft.some("0.005", "0.02")
        terms = {name: ONE - own, f"w_{name}": ONE, "p": draft.some("0.006", "0.012")}
        if name == "x" and "z" in names:
            swap = draft.some("0.05", "0.1")
            terms["x"] -= swap
            terms["z"] = swap
            terms["p"] = draft.some(0, "0.004")
        if len(draft.outputs) > 1 and (name == "z" or names == ["x"]):
            terms["h"] = draft.some("0.1", "0.2")
        if adds_up:
            terms[name] = ONE
        drift = -draft.some("0.04", "0.1") if adds_up else own * 2
        draft.steps[name] = Form({n: f for n, f in terms.items() if f}, drift)
        draft.bands[f"w_{name}"] = -wide, wide
    draft.close_bands()
    draft.laws.append(Law(id="hot", require=Upto(Form({"x": ONE}, -most)), always=True))
    if "z" in names and draft.chance(0.5):
        draft.laws.append(Law(id="core", require=Upto(Form({"z": ONE}, -most - 1)), always=True))
    ramp = draft.some(10, 20) / draft.step
    draft.laws.append(Law(id="ramp", require=within(Form({"rate(p)": ONE}), ramp), rate_of="p", most=ramp))
    if len(draft.outputs) > 1 and draft.chance(0.5):
        either = Upto(Form({"x": ONE, "h": ONE / 2}, -most))
        draft.laws.append(Law(id="switch", require=either, always=True))
    down = Move(target=Fraction(0), rate=ramp)
    entries = [Entry(moves={"p": down})]
    if draft.chance(0.3):  # a guard that spares what is cool
        entries.insert(
            0, Entry(moves={"p": Move()}, when=Upto(Form({"x": ONE, "p": number("0.02")}, -ONE * 3)))
        )
    if len(draft.outputs) > 1:
        entries.append(Entry(moves={"h": Move(target=Fraction(0))}))
    sets = [f"{name} <= {float(most)}" for name in names]
    sets += ["p <= 0"] if len(entries) < 3 and entries[0].when is None else []
    sets += ["not h"] if len(draft.outputs) > 1 else []
    return _timed(draft, entries, f"heated {seed}", terminal=tuple(sets), horizon=dice.choice((8, 12, 16)))


def tank(seed: int) -> Plant:
    """Something that is filled and emptied, for which `fitted` finds a safe set."""
    dice = random.Random(seed)  # noqa: S311  repeatable
    draft = Draft(dice, dice.choice((1, 1, 2)))
    strong = draft.some("0.002", "0.001")
    draft.outputs.append(Output(name="p", range=(Fraction(0), Fraction(100)), scale=draft.some("0.1", "0.5")))
    terms = {"x": ONE, "p": -strong, "w_x": ONE}
    if draft.chance(0.6):
        least = draft.dice.choice((0, 4))
        span = Fraction(0), ONE
        draft.outputs.append(Output(name="h", range=span, sort="bool", min_on=least, min_off=least))
        terms["h"] = draft.some("0.02", "0.01")
    draft.seen.append(
        Seen(
            name="x",
            range=(Fraction(-3), Fraction(9)),
            start=(Fraction(2), Fraction(3)),
            error=draft.some("0.01", "0.03"),
            deadband=draft.some(0, "0.01"),
            scale=draft.some("0.001", "0.01"),
            max_age=Fraction(2),
        )
    )
    if draft.chance(0.7):
        draft.seen.append(
            Seen(
                name="q",
                range=(Fraction(-5), Fraction(45)),
                start=(Fraction(4), Fraction(10)),
                error=draft.some("0.3", "0.1"),
                scale=draft.some("0.01", "0.1"),
                max_rate=draft.some(2, 8),
                physical=(Fraction(0), Fraction(36)),
            )
        )
        terms["q"] = strong
    wide = strong * 10
    draft.steps["x"] = Form(terms)
    draft.bands["w_x"] = -wide, wide * draft.some(0, 1)
    draft.close_bands()
    draft.laws.append(Law(id="high", require=Upto(Form({"x": ONE}, -number("4.2"))), always=True))
    running = Upto(Form({"p": Fraction(-1)}), strict=True)
    draft.laws.append(
        Law(id="low", require=Upto(Form({"x": -ONE}, number("0.6"))), when=running, always=True)
    )
    if len(draft.outputs) > 1:
        draft.laws.append(Law(id="wet", require=Upto(Form({"x": -ONE}, ONE)), when=Is("h"), always=True))
    ramp = draft.some(10, 20) / draft.step
    draft.laws.append(Law(id="ramp", require=within(Form({"rate(p)": ONE}), ramp), rate_of="p", most=ramp))
    upward = Entry(
        moves={"p": Move(target=Fraction(100), rate=ramp)}, when=Upto(Form({"x": -ONE}, number("2.4")))
    )
    rest = {"p": Move(target=Fraction(0), rate=ramp)}
    if len(draft.outputs) > 1:
        rest["h"] = Move(target=Fraction(0))
    return _timed(draft, [upward, Entry(moves=rest)], f"tank {seed}")


def _timed(
    draft: Draft,
    entries: Sequence[Entry],
    about: str,
    *,
    terminal: tuple[str, ...] = (),
    horizon: int | None = None,
) -> Plant:
    period = Fraction(draft.step) * (draft.some("0.5", 1, 1) if terminal else 1)
    delay = ticks(draft.some("0.05", "0.1", "0.3") * min(2, draft.step))
    hold = max(ticks(period * number("1.06")), delay + 16 * TICK)
    return Plant(
        step=draft.step,
        seen=tuple(draft.seen),
        outputs=tuple(draft.outputs),
        steps=draft.steps,
        bands=draft.bands,
        laws=tuple(draft.laws),
        backup=tuple(entries),
        terminal=terminal,
        horizon=horizon,
        hold=hold,
        delay=delay,
        period=min(ticks(period), hold),
        about=about,
    )


def fitted(plant: Plant, seconds: float = 8.0) -> Plant | None:
    """The plant with the safe set that is suggested for it; None where there is none in that time."""
    modules = plant.modules()
    rules = RuleSet.of(modules, 1)
    finding = suggest.examine(rules, modules[0], Allowance(seconds=seconds), lambda _done, _of: None)
    lines = "".join(finding.lines).removeprefix('"safe_set": ').removesuffix(",")
    return replace(plant, safe_set=tuple(json.loads(lines))) if lines else None


def proved(plant: Plant, seconds: float = 20.0) -> bool:
    """Whether the set is shown to be kept."""
    return prove(RuleSet.of(plant.modules(), 1), budget_s=seconds).holds


def lasting(seeds: Sequence[int], *, suggested: bool) -> Iterator[Plant]:
    """Plants on which a point may be armed; those whose set is not shown to be kept are left out."""
    for seed in seeds:
        plant = fitted(tank(seed)) if suggested else heated(seed)
        if plant is not None and (suggested or proved(plant)):
            yield plant
