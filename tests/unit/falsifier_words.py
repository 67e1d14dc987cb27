"""Conditions said twice: in the words of a module, and as whoever judges the true plant understands them.

Nothing here reads the language: what a text means is written beside it, from the page that describes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Values = Mapping[str, Fraction]
FAR = Fraction(10**9)  # the slack of a truth


def decimal(value: Fraction) -> str:
    """A number as a module writes it; it must have few decimals."""
    found = f"{float(value):.9f}".rstrip("0").rstrip(".")
    assert Fraction(found) == value, value
    return found


@dataclass(frozen=True)
class Form:
    """A sum of factors times what a key names (`x`, `prev(x)`, `rate(x)`) and a constant."""

    terms: Mapping[str, Fraction]
    constant: Fraction = Fraction(0)

    def at(self, values: Values) -> Fraction:
        return self.constant + sum((f * values[name] for name, f in self.terms.items()), Fraction(0))

    def text(self) -> str:
        parts = [f"({decimal(f)})*{name}" if f != 1 else name for name, f in self.terms.items() if f]
        if self.constant or not parts:
            parts.append(f"({decimal(self.constant)})")
        return " + ".join(parts)


@dataclass(frozen=True)
class Upto:
    """A form is at most 0, or below it."""

    form: Form
    strict: bool = False

    def text(self) -> str:
        bound = decimal(-self.form.constant)
        return f"{Form(self.form.terms).text()} {'<' if self.strict else '<='} {bound}"

    def slack(self, values: Values) -> Fraction:
        return -self.form.at(values)

    def holds(self, values: Values) -> bool:
        return self.form.at(values) < 0 if self.strict else self.form.at(values) <= 0

    def atoms(self) -> Iterator[Form]:
        yield self.form


@dataclass(frozen=True)
class Is:
    """A switch is on, or off; a label or a whole number is the one in force."""

    name: str
    value: int = 1
    label: str = ""
    wanted: bool = True

    def text(self) -> str:
        """`name` may be `good(x)`."""
        if self.label:
            return f"{self.name} {'==' if self.wanted else '!='} {self.label}"
        return self.name if self.wanted else f"not {self.name}"

    def slack(self, values: Values) -> Fraction:
        return FAR if self.holds(values) else -FAR

    def holds(self, values: Values) -> bool:
        return (values[self.name] == self.value) == self.wanted

    def atoms(self) -> Iterator[Form]:
        yield from ()


@dataclass(frozen=True)
class Lasted:
    """A condition has held for so long: who asks knows, by its text, under `for`."""

    part: Condition
    seconds: int

    def text(self) -> str:
        return f"(({self.part.text()}) for {self.seconds} s)"

    def slack(self, values: Values) -> Fraction:
        return FAR if self.holds(values) else -FAR

    def holds(self, values: Values) -> bool:
        return values[self.text()] == 1

    def atoms(self) -> Iterator[Form]:
        yield from ()


@dataclass(frozen=True)
class Median:
    """The middle one of three is at most a bound."""

    names: tuple[str, str, str]
    bound: Fraction

    def text(self) -> str:
        return f"vote(median, {', '.join(self.names)}) <= {decimal(self.bound)}"

    def slack(self, values: Values) -> Fraction:
        return self.bound - sorted(values[name] for name in self.names)[1]

    def holds(self, values: Values) -> bool:
        return self.slack(values) >= 0

    def atoms(self) -> Iterator[Form]:
        yield Form(dict.fromkeys(self.names, Fraction(1)))


@dataclass(frozen=True)
class Joined:
    """All of some conditions, or any of them."""

    how: Literal["and", "or"]
    parts: tuple[Condition, ...]

    def text(self) -> str:
        return f" {self.how} ".join(f"({part.text()})" for part in self.parts)

    def slack(self, values: Values) -> Fraction:
        pick = min if self.how == "and" else max
        return pick(part.slack(values) for part in self.parts)

    def holds(self, values: Values) -> bool:
        every = [part.holds(values) for part in self.parts]
        return all(every) if self.how == "and" else any(every)

    def atoms(self) -> Iterator[Form]:
        for part in self.parts:
            yield from part.atoms()


@dataclass(frozen=True)
class Negated:
    """The opposite."""

    part: Condition

    def text(self) -> str:
        return f"not ({self.part.text()})"

    def slack(self, values: Values) -> Fraction:
        return -self.part.slack(values)

    def holds(self, values: Values) -> bool:
        return not self.part.holds(values)

    def atoms(self) -> Iterator[Form]:
        yield from (Form({n: -f for n, f in a.terms.items()}, -a.constant) for a in self.part.atoms())


@dataclass(frozen=True)
class Product:
    """The product of two names is at most a bound."""

    names: tuple[str, str]
    bound: Fraction

    def text(self) -> str:
        return f"{'*'.join(self.names)} <= {decimal(self.bound)}"

    def slack(self, values: Values) -> Fraction:
        return self.bound - values[self.names[0]] * values[self.names[1]]

    def holds(self, values: Values) -> bool:
        return self.slack(values) >= 0

    def atoms(self) -> Iterator[Form]:
        yield Form(dict.fromkeys(self.names, Fraction(1)))


@dataclass(frozen=True)
class Said:
    """A condition in other words than its own."""

    part: Condition
    words: str

    def text(self) -> str:
        return self.words

    def slack(self, values: Values) -> Fraction:
        return self.part.slack(values)

    def holds(self, values: Values) -> bool:
        return self.part.holds(values)

    def atoms(self) -> Iterator[Form]:
        yield from self.part.atoms()


Condition = Upto | Is | Lasted | Median | Joined | Negated | Product | Said


def within(form: Form, most: Fraction) -> Joined:
    """Its absolute value is at most that."""
    less = {name: -f for name, f in form.terms.items()}
    return Joined(
        "and",
        (Upto(Form(form.terms, form.constant - most)), Upto(Form(less, -form.constant - most))),
    )


def lasting(condition: Condition) -> Iterator[Lasted]:
    """Every `for` in a condition."""
    match condition:
        case Lasted():
            yield condition
        case Joined(_, parts):
            for part in parts:
                yield from lasting(part)
        case Negated(part) | Said(part):
            yield from lasting(part)
        case _:
            return


@dataclass(frozen=True, kw_only=True)
class Law:
    """A rule: where `when` holds, `require` must. `rate_of` names the action whose rate `require` bounds."""

    id: str
    require: Condition
    when: Condition | None = None
    always: bool = False
    rate_of: str = ""
    most: Fraction = Fraction(0)  # of that rate, a second

    def document(self) -> dict[str, object]:
        found: dict[str, object] = {"id": self.id, "kind": "standard", "require": self.text()}
        if self.when is not None:
            found["when"] = self.when.text()
        if self.always:
            found["always"] = True
        return found

    def text(self) -> str:
        return f"abs(rate({self.rate_of})) <= {decimal(self.most)}" if self.rate_of else self.require.text()

    def whole(self) -> Condition:
        return self.require if self.when is None else Joined("or", (Negated(self.when), self.require))

    def holds(self, values: Values) -> bool:
        return self.whole().holds(values)


@dataclass(frozen=True, kw_only=True)
class Move:
    """What the backup does with one output: hold it, set it, or ramp it by `rate` a second."""

    target: Fraction | None = None
    rate: Fraction | None = None

    def word(self, sort: str, labels: Mapping[str, int]) -> object:
        if self.target is None:
            return "hold"
        if sort == "bool":
            return self.target == 1
        if self.rate is None:
            return next((label for label, n in labels.items() if n == self.target), decimal(self.target))
        return f"ramp({decimal(self.target)}, {decimal(self.rate)})"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry of a backup."""

    moves: Mapping[str, Move]
    when: Condition | None = None
