"""Whole modules drawn at random, with every construct that the text of the language names.

What the compiler refuses is thrown away rule by rule; the words of every kept one are for all readers alike.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from gateway.core.tag import TagDefinition, TagId, TagKind
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.language.evaluate import truth
from gateway.solver.language.syntax import Connective, Expr
from gateway.solver.modules.cases import case_point
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Case, Constraint, Module


def _tag(
    name: str, kind: TagKind, scale: str = "1", unit: str = "", *, writable: bool = False
) -> TagDefinition:
    return TagDefinition(
        id=TagId(name),
        kind=kind,
        unit=unit,
        scale=Fraction(scale),
        raw_range=(-32_768, 65_535),
        writable=writable,
    )


TAGS: Mapping[TagId, TagDefinition] = {
    d.id: d
    for d in (
        _tag("X", TagKind.REAL, "0.01"),
        _tag("Y", TagKind.REAL, "0.01"),
        _tag("Z", TagKind.REAL, "0.01"),
        _tag("T", TagKind.REAL, "0.1", "degC"),
        _tag("N", TagKind.INTEGER),
        _tag("B", TagKind.BOOLEAN),
        _tag("M", TagKind.INTEGER),
        _tag("P", TagKind.REAL, "0.1", writable=True),
        _tag("K", TagKind.INTEGER, writable=True),
        _tag("H", TagKind.BOOLEAN, writable=True),
        _tag("S", TagKind.INTEGER, writable=True),
    )
}
REALS, BOOLS = ("x", "y", "z"), ("b", "h")
MEASURED = ("x", "y", "z", "t", "n", "b", "m")
LABELS = {"m": ("off", "auto", "hand"), "s": ("idle", "run", "stop")}
REGISTERS = {"m": (0, 1, 2), "s": (0, 5, 9)}
NUMBERS = ("0", "0.5", "1", "1.5", "2", "3", "0.25", "7")
SPANS = {"x": (-2, 6), "y": (-2, 6), "z": (1, 5), "t": (0, 90), "n": (0, 6), "p": (0, 8), "k": (0, 4)}

REST = {name: Fraction(2) for name in ("x", "y", "z", "n", "p", "k")} | {"t": Fraction(40)}
VARIABLES: Mapping[str, Mapping[str, Any]] = {
    "x": {"tag": "X", "type": "real", "range": ["-2", "6"], "error": "0.05", "max_age": "2 s"},
    "y": {
        "tag": "Y",
        "type": "real",
        "range": ["-2", "6"],
        "error": "0.1",
        "max_age": "2 s",
        "max_rate": "0.5 1/s",
    },
    "z": {
        "tag": "Z",
        "type": "real",
        "range": ["1", "5"],
        "error": "0",
        "error_reason": "counted",
        "max_age": "2 s",
    },
    "t": {"tag": "T", "type": "real", "unit": "degC", "range": ["0", "90"], "error": "0.5", "max_age": "2 s"},
    "n": {"tag": "N", "type": "int", "range": ["0", "6"], "max_age": "2 s"},
    "b": {"tag": "B", "type": "bool", "max_age": "2 s"},
    "m": {"tag": "M", "type": "enum", "values": ["off", "auto", "hand"], "max_age": "2 s"},
    "p": {"tag": "P", "type": "real", "range": ["0", "8"], "role": "action"},
    "k": {"tag": "K", "type": "int", "range": ["0", "4"], "role": "action"},
    "h": {"tag": "H", "type": "bool", "role": "action"},
    "s": {"tag": "S", "type": "enum", "values": {"idle": 0, "run": 5, "stop": 9}, "role": "action"},
}


@dataclass
class Words:
    """Texts of the language for one place. `past`: what looks back or asks for qualities has a meaning."""

    dice: random.Random
    past: bool = True
    lasting: bool = True  # `for` has a meaning
    of_a_row: bool = False  # inside of `for`
    hidden: bool = False

    def one(self, *texts: str) -> str:
        return self.dice.choice(texts)

    def number(self, depth: int) -> str:
        """A number, put into parentheses wherever it could be read otherwise."""
        if depth <= 0:
            return self._leaf()
        made: Sequence[Callable[[int], str]] = (
            lambda d: f"({self.number(d)} {self.one('+', '-')} {self.number(d)})",
            lambda d: f"{self.one(*NUMBERS)}*{self.number(d)}",
            lambda d: f"{self.number(d)}*{self._leaf()}",
            lambda d: f"{self.number(d)}/{self.one('2', '4', '0.5', '-2')}",
            lambda d: f"({self.number(d)}/{self.one('z', '(z + 1)', '(x + 9)', '(0 - z)')})",
            lambda d: f"-{self.number(d)}",
            lambda d: f"abs({self.number(d)})",
            lambda d: f"{self.one('min', 'max', 'sum')}({self._several(self.number, d, 1)})",
            lambda d: f"vote(median, {self.number(d)}, {self._leaf()}, {self._leaf()})",
            lambda d: f"vote({self.one('min', 'max')}, {self._several(self.number, d, 1)})",
            lambda d: f"count({self._several(self.condition, d - 1, 1)})",
            lambda d: f"(if {self.condition(d - 1)} then {self.number(d)} else {self.number(d)})",
        )
        return self.dice.choice(made)(depth - 1)

    def condition(self, depth: int) -> str:
        """A condition, in parentheses where it has an operator."""
        if depth <= 0:
            return self._fact()
        joined: Sequence[Callable[[int], str]] = (
            lambda d: f"({self.condition(d)} {self.one('and', 'or', 'implies', 'iff')} {self.condition(d)})",
            lambda d: f"(not {self.condition(d)})",
            lambda d: f"({self.number(d)} {self._order()} {self.number(d)})",
            lambda d: f"({self.number(d)} {self._order()} {self.number(d)})",
            lambda d: f"({self.number(d)} {self._order()} {self.number(d)} {self._order()} {self.number(d)})",
            lambda d: f"{self.one('at_most', 'exactly')}({self.one('0', '1', '2.0')}, {self._conditions(d)})",
            lambda d: f"(if {self.condition(d)} then {self.condition(d)} else {self.condition(d)})",
            lambda d: f"({' '.join(self._bare(d))})",
        )
        if self.lasting and not self.of_a_row and self.dice.random() < 0.15:
            inner = Words(self.dice, past=self.past, of_a_row=True, hidden=self.hidden)
            seconds = self.one("2 s", "0 s", "1 s", "3000 ms", "0.05 min")
            return f"({inner.condition(depth - 1)} for {seconds})"
        return self.dice.choice(joined)(depth - 1)

    def _bare(self, depth: int) -> list[str]:
        """A chain of connectives without parentheses: precedence decides."""
        found = [self.one("", "not ") + self.condition(depth - 1)]
        for _ in range(self.dice.randrange(1, 4)):
            found += [
                self.one("and", "or", "implies", "iff"),
                self.one("", "not ") + self.condition(depth - 1),
            ]
        return found

    def _several(self, made: Callable[[int], str], depth: int, least: int) -> str:
        return ", ".join(made(depth) for _ in range(self.dice.randrange(least, 4)))

    def _conditions(self, depth: int) -> str:
        return self._several(self.condition, depth, 2)

    def _order(self) -> str:
        return self.one("<", "<=", ">", ">=", "<=", "==", "!=")

    def _proposed(self, name: str) -> str:
        """An action: proposed, or in force before; inside of `for` only the latter has a meaning."""
        return f"prev({name})" if self.of_a_row or self.dice.random() < 0.25 else name

    def _leaf(self) -> str:
        pick = self.dice.random()
        if pick < 0.3:
            return self.one(*NUMBERS)
        if pick < 0.5:
            return self._proposed(self.one("p", "k", "h"))
        kinds = {"now": ("x", "y", "z", "n", "b", "x", "z"), "degrees": ("(t - 40)", "(t - 0)/10")}
        if not self.of_a_row:
            kinds["moves"] = ("rate(p)", "rate(k)")
        if self.past:
            past = ("prev(x)", "rate(x)", "prev(z)", "rate(y)", "prev(n)", "age(x)", "age(y)", "prev(b)")
            kinds["past"] = past
        if self.hidden:
            kinds["hidden"] = ("c",)
        return self.one(*kinds[self.one(*kinds, "now", "now")])

    def _fact(self) -> str:
        pick = self.dice.random()
        if pick < 0.3:
            return self._labels()
        if pick < 0.38 and self.past:
            return self.one("good(x)", "good(y)", "good(m)", "good(b)")
        if pick < 0.45:
            return self.one("true", "false")
        if pick < 0.52:
            return f"(n in ({self._several(lambda _: self.one('0', '1', '3', '-1'), 0, 1)}))"
        if pick < 0.6:
            return f"({self._leaf()} {self._order()} {self._leaf()})"
        return self.one("b", self._proposed("h"), "b")

    def _labels(self) -> str:
        """Enums and labels in every way that they may be compared."""
        name = self.one("m", "s")
        here = self._proposed(name) if name == "s" else self.one("m", "prev(m)") if self.past else "m"
        label, other = (self.one(*LABELS[name]) for _ in range(2))
        sign = self.one("==", "!=")
        chosen = f"(if {self.one('b', 'x > 1')} then {here} else {label})"
        return self.one(
            f"({here} {sign} {label})",
            f"({label} {sign} {here})",
            f"({here} {sign} ({label}))",
            f"({here} in ({label}, {other}))",
            f"({here} {sign} (if b then {label} else {other}))",
            f"({chosen} {sign} {other})",
            f"({here} {sign} {here} {sign} {label})",
        )


@dataclass
class Draft:
    """A module in the making, as data that always compiles."""

    dice: random.Random
    document: dict[str, Any] = field(default_factory=dict)

    def add(self, key: str, entry: object, *also: tuple[str, object]) -> bool:
        """One more entry of a list, with what it needs; left out again where the compiler refuses."""
        changed = json.loads(json.dumps(self.document))
        changed.setdefault(key, []).append(entry)
        for name, value in also:
            changed[name] = value
        if compiled(changed) is None:
            return False
        self.document = changed
        return True

    def add_rule(self, rule: dict[str, Any]) -> bool:
        """One more rule, turned round where it fails at rest: else next to nothing would be permitted."""
        alone = compiled({**self.document, "constraints": [rule]})
        if alone is None:
            return False
        if not truth(whole(alone.rules[0]), at_rest(alone)):
            rule = {**rule, "require": f"not {rule['require']}"}
        if self.dice.random() < 0.6:
            easy = self.dice.choice(
                ["x <= 4", "not b", "p <= 3", "m != hand", "z < 4 and n < 5", "y > 0 or h"]
            )
            rule = {**rule, "require": f"({rule['require']} or {easy})"}
        return self.add("constraints", rule)


def compiled(document: Mapping[str, Any]) -> Module | None:
    """The module, None where the compiler refuses it."""
    try:
        return compile_module(json.dumps(document).encode(), "random.json", TAGS)
    except ModuleRefusedError:
        return None


def whole(rule: Constraint) -> Expr:
    """All that a rule demands, with its `when`."""
    return rule.require if rule.when is None else Connective(0, "implies", rule.when, rule.require)


def at_rest(module: Module) -> dict[str, Fraction]:
    """Everything in the middle, as it has been for long."""
    given = {name: REST.get(name, Fraction(0)) for name in module.variables}
    return case_point(module, Case(given=given, previous={}, held_s={}, violated=frozenset(), line=0))


def whole_module(seed: int, rules: int = 5) -> Module:
    """A module of a seed, always the same one."""
    dice = random.Random(seed)  # noqa: S311  # a repeatable sample
    draft = Draft(dice, _empty(dice))
    hidden = "c" in draft.document["variables"]
    wanted, tries = rules, 0
    while wanted and tries < 400:
        tries += 1
        wanted -= draft.add_rule(_rule(dice, wanted, hidden=hidden))
    draft.document["constraints"] = draft.document["constraints"][1:]
    if "dynamics" in draft.document and dice.random() < 0.5:
        _sets(draft, dice)
    if dice.random() < 0.5:
        _sequence(draft, dice)
    module = compiled(draft.document)
    assert module is not None, draft.document
    return module


def _empty(dice: random.Random) -> dict[str, Any]:
    variables = {name: dict(v) for name, v in VARIABLES.items()}
    if dice.random() < 0.5:
        variables["h"] |= {
            "min_on": dice.choice(["0 s", "2 s", "1 min"]),
            "min_off": dice.choice(["0 s", "3 s"]),
        }
    if dice.random() < 0.5:
        variables["x"] |= {"physical": ["-1", "5"]}
    if dice.random() < 0.3:
        variables["n"] |= {"max_rate": "1 1/s"}
    if dice.random() < 0.3:
        variables["y"] |= {"accept_quality": ["Uncertain"]}
    document: dict[str, Any] = {
        "id": "whole",
        "revision": 1,
        "language": 1,
        "step": "1 s",
        "variables": variables,
        "constraints": [{"id": "placeholder", "kind": "standard", "require": "p <= 8"}],
    }
    if dice.random() < 0.6:
        turn = dice.choice(["0.9", "1", "0.5"])
        document["dynamics"] = {
            "x": f"{turn}*x + {dice.choice(['0.1', '0.05', '-0.1'])}*p + {dice.choice(['0', '0.1'])}*y + w",
            "disturbance": {"w": ["-0.05", "0.05"]},
        }
        if dice.random() < 0.4:
            variables["c"] = {"role": "state", "type": "real", "range": ["-9", "9"], "physical": ["-4", "4"]}
            document["dynamics"]["c"] = "0.5*c + 0.1*p - 0.2*h"
            document["dynamics"]["x"] += " + 0.1*c"
    elif dice.random() < 0.5:
        document["horizon"] = 1
    return document


def _rule(dice: random.Random, number: int, *, hidden: bool) -> dict[str, Any]:
    always = dice.random() < 0.35
    words = Words(dice, past=not always, lasting=not always, hidden=hidden)
    depth = dice.choice([1, 2, 2, 3])
    rule: dict[str, Any] = {
        "id": f"r{number}",
        "kind": dice.choice(["standard", "standard", "standard", "informational"]),
        "require": words.condition(depth),
        "always": always,
    }
    if dice.random() < 0.3:
        rule["when"] = words.condition(1)
    if dice.random() < 0.1:
        rule["monitor"] = True
    return rule


def _sets(draft: Draft, dice: random.Random) -> None:
    words = Words(dice, past=False, lasting=False)
    guard = dice.choice(["x > 2", "x > 2 or b", "prev(h)", "x + y > 3 and not (m == hand)"])
    entries: list[dict[str, Any]] = [
        {"when": guard, "p": dice.choice(["ramp(0, 2)", "ramp( 8 , 1.5 )", "0", "hold"])},
        {"p": dice.choice(["ramp(0, 1)", "hold", "4"]), "k": dice.choice(["0", "hold"])},
        {"h": dice.choice([False, "hold"]), "s": dice.choice(["idle", "hold", "stop"])},
    ]
    horizon = dice.choice([1, 2, 3])
    kind, extra = dice.choice([("safe_set", 1), ("terminal", horizon)])
    for _ in range(20):
        text = dice.choice([f"x <= {dice.choice(['4', '5', '3.5'])}", words.condition(1), "h implies x >= 0"])
        draft.add(kind, text, ("backup", entries), ("horizon", extra))


def _sequence(draft: Draft, dice: random.Random) -> None:
    states: list[dict[str, Any]] = [{"state": label} for label in LABELS["s"][: dice.choice([2, 3])]]
    for state in states:
        if dice.random() < 0.4:
            state["min"] = dice.choice(["0 s", "2 s", "500 ms"])
        if dice.random() < 0.3:
            state["max"] = dice.choice(["2 s", "5 s"])
        if dice.random() < 0.4:
            count = dice.randrange(len(states) + 1)
            state["next"] = [s["state"] for s in dice.sample(states, count)]
    kind = dice.choice(["standard", "critical", "informational"])
    draft.add(
        "sequences",
        {"id": "seq", "variable": "s", "kind": kind, "cyclic": dice.random() < 0.5, "states": states},
    )
