"""Rules drawn for a plant: of states, inputs and outputs, looking back, in other words of the language."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from tests.unit.falsifier_draft import Draft, number
from tests.unit.falsifier_words import (
    Condition,
    Form,
    Is,
    Joined,
    Lasted,
    Law,
    Median,
    Negated,
    Product,
    Said,
    Upto,
    within,
)


def laws_of(draft: Draft) -> Iterator[Law]:
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
    for one_more in (_of_inputs, _of_outputs, _looking_back, _in_other_words):
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
    if "q" in names and names["q"].flaky:
        blind = Joined("or", (Is("good(q)"), Upto(Form({"p": Fraction(1)}, Fraction(-40)))))
        yield Law(id="", require=blind)
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


def _in_other_words(draft: Draft, states: list[str]) -> Iterator[Law]:
    """Functions and choices of the language."""
    low, high = draft.some("2.4", "2.8"), draft.some("3.2", "3.6")
    one, last = states[0], states[-1]
    if one != last and draft.chance(0.4):
        both = Joined("and", (_most(one, high), _most(last, high)))
        yield Law(id="", require=Said(both, f"max({one}, {last}) <= {float(high)}"), always=True)
    if one != last and draft.chance(0.4):
        apart = within(Form({one: Fraction(1), last: Fraction(-1)}), low - 1)
        yield Law(id="", require=Said(apart, f"abs({one} - {last}) <= {float(low - 1)}"), always=True)
    names = {o.name for o in draft.outputs}
    if "h" in names and draft.chance(0.4):
        off, on = (
            Joined("or", (Is("h"), _most(one, high))),
            Joined("or", (Is("h", wanted=False), _most(one, low))),
        )
        words = f"if h then {one} <= {float(low)} else {one} <= {float(high)}"
        yield Law(id="", require=Said(Joined("and", (off, on)), words), always=True)
    if "h" in names and draft.chance(0.3):
        few = Joined("or", (Is("h", wanted=False), Upto(Form({"p": Fraction(1)}, Fraction(-60)))))
        yield Law(id="", require=Said(few, "count(h, p > 60) <= 1"), always=draft.chance(0.5))
    if draft.chance(0.3):
        yield Law(id="", require=Product((one, "p"), draft.some(90, 150)), always=draft.chance(0.7))
    if any(s.name == "q" for s in draft.seen) and draft.chance(0.4):
        yield Law(id="", require=Product(("p", "q"), draft.some(400, 900)), always=draft.chance(0.7))


def _most(name: str, bound: Fraction) -> Upto:
    return Upto(Form({name: Fraction(1)}, -bound))
