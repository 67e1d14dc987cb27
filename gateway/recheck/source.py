"""A module's source JSON as the independent checker reads it: by tag, in exact rationals."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any

from gateway.recheck.language import Evaluate, as_condition, as_number, parse, seconds_of
from gateway.recheck.numbers import function_of
from gateway.recheck.tree import Kind, LanguageError, Node, Row, Sort

Range = tuple[Fraction, Fraction]
Scalar = str | int | Fraction
_RAMP = re.compile(r"\s*ramp\(\s*([-+]?[\d.]+)\s*,\s*([\d.]+)\s*\)\s*")
_KINDS = {"real": Kind.NUMBER, "int": Kind.NUMBER, "bool": Kind.BOOLEAN, "enum": Kind.ENUM}
_SOURCES_KEPT = 32
_MOST_STATES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A variable of a module. `whole`: only whole numbers; of an enum only `sort.values`."""

    tag: str
    action: bool
    error: Fraction
    max_rate: Fraction | None  # per second
    physical: Range | None
    range: Range | None
    min_on: Fraction
    min_off: Fraction
    sort: Sort
    whole: bool
    max_age: Fraction | None = None
    accepted: frozenset[str] = frozenset()  # qualities beside Good
    hidden: bool = False  # a state that nobody measures: within its physical bounds, and as predicted

    def listed(self, low: Fraction, high: Fraction) -> Sequence[Fraction | int] | None:
        """The values it can have in an interval; None for a real."""
        if self.sort.kind is Kind.ENUM:
            return sorted({value for value in self.sort.values.values() if low <= value <= high})
        if not self.whole:
            return None
        return range(-(-low // 1), high // 1 + 1)


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition that must hold, and how it is called."""

    id: str
    kind: str
    always: bool
    holds: Evaluate
    tree: Node
    watched: bool = False  # reported, and refuses nothing (S5)

    @property
    def binding(self) -> bool:
        """Whether a violation refuses."""
        return self.kind != "informational" and not self.watched


@dataclass(frozen=True, slots=True)
class State:
    """One state of a sequence: how long it must and may last (None: for ever), and what may follow."""

    value: Fraction
    least: Fraction
    most: Fraction | None
    following: frozenset[Fraction]


@dataclass(frozen=True, slots=True)
class Order:
    """A sequence over the states of an enum action, by register value."""

    id: str
    kind: str
    tag: str
    states: Mapping[Fraction, State]
    reported: frozenset[str] = frozenset()  # of `order`, `min` and `max` what is overridden (S25)

    def kind_of(self, end: str) -> str:
        """The kind of its rule `order`, `min` or `max`."""
        return "informational" if end in self.reported else self.kind


@dataclass(frozen=True, slots=True)
class Move:
    """What a backup entry does to actions while `when` holds: text of the move by tag."""

    when: Evaluate | None
    moves: Mapping[str, str]
    tree: Node | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One module."""

    id: str
    step: Fraction
    names: Mapping[str, str]  # variable -> tag
    quantities: Mapping[str, Quantity]  # by tag
    next_state: Mapping[str, Evaluate]  # by tag: the value one step later
    dynamics: Mapping[str, Node]  # the same as trees
    disturbances: Mapping[str, Range]  # by `module.name`
    requirements: Sequence[Requirement]
    safe_set: Sequence[Requirement]
    terminal: Sequence[Requirement]
    horizon: int
    orders: Sequence[Order]
    backup: Sequence[Move]
    cases: Sequence[Mapping[str, Any]] = field(default=())

    @property
    def trees(self) -> list[Node]:
        """Everything that is read of variables."""
        conditions = [r.tree for r in (*self.requirements, *self.safe_set, *self.terminal)]
        guards = [move.tree for move in self.backup if move.tree is not None]
        return [*conditions, *guards, *self.dynamics.values()]


@lru_cache(maxsize=_SOURCES_KEPT)
def read_source(text: str) -> Source:
    """The module in a source text; raises `LanguageError` for anything this reader does not understand."""
    try:
        plain = text.removeprefix("\ufeff")  # a mark of the byte order says nothing of the module
        return _Book(json.loads(plain, parse_float=Fraction, object_pairs_hook=_no_doubles)).source()
    except (KeyError, TypeError, AttributeError, ValueError, ZeroDivisionError) as exc:
        raise LanguageError(f"the module cannot be read: {exc!r}") from exc


def read_sources(texts: Sequence[str]) -> list[Source]:
    """All modules in force; raises `LanguageError`, also where there is none."""
    if not texts:
        raise LanguageError("there is no module: an empty rule set permits nothing")
    sources = [read_source(text) for text in texts]
    if len({source.step for source in sources}) > 1:
        raise LanguageError("modules in force together share one step")
    return sources


def duration(text: str) -> Fraction:
    """Seconds of `30 s` and the like."""
    amount, unit = text.split()
    return seconds_of(amount, unit)


def moved(text: str, value: Fraction, elapsed_s: Fraction) -> Fraction:
    """Where a backup move takes an action's value in a time."""
    if text == "hold":
        return value
    match = _RAMP.fullmatch(text)
    if match is None:
        return Fraction(text)
    target, reach = Fraction(match[1]), Fraction(match[2]) * elapsed_s
    return min(target, value + reach) if target > value else max(target, value - reach)


def value_of(raw: Scalar, sort: Sort) -> Fraction:
    """A value as it stands in a case or a move: a label, a truth or a number."""
    if isinstance(raw, str) and raw in sort.values:
        return sort.values[raw]
    return Fraction(raw)


@dataclass(slots=True)
class _Book:
    raw: Mapping[str, Any]
    id: str = field(init=False)
    names: dict[str, str] = field(init=False)
    sorts: dict[str, Sort] = field(init=False)

    def __post_init__(self) -> None:
        self.id = str(self.raw["id"])
        self.names = {
            name: f"{self.id}.{name}" if _hidden(v) else str(v["tag"])
            for name, v in self.raw["variables"].items()
        }
        self.sorts = {name: _sort(v) for name, v in self.raw["variables"].items()}

    def source(self) -> Source:
        raw, step = self.raw, duration(self.raw["step"])
        if step <= 0:
            raise LanguageError("a step takes time")
        dynamics = dict(raw.get("dynamics", {}))
        disturbances = {name: _range(pair) for name, pair in dynamics.pop("disturbance", {}).items()}
        within = {**self.names, **{name: f"{self.id}.{name}" for name in disturbances}}
        trees = {self.names[n]: as_number(self.tree(text, within)) for n, text in dynamics.items()}
        return Source(
            id=self.id,
            step=step,
            names=self.names,
            quantities={
                self.names[n]: _quantity(self.names[n], v, self.sorts[n]) for n, v in raw["variables"].items()
            },
            next_state={tag: function_of(tree) for tag, tree in trees.items()},
            dynamics=trees,
            disturbances={f"{self.id}.{n}": pair for n, pair in disturbances.items()},
            requirements=[self.requirement(c) for c in raw["constraints"]],
            safe_set=self.set_of("safe_set"),
            terminal=self.set_of("terminal"),
            horizon=int(any([trees, *(raw.get(k) for k in ("safe_set", "terminal"))]))
            if raw.get("horizon") is None
            else int(raw["horizon"]),
            orders=[self.order(entry) for entry in raw.get("sequences", ())],
            backup=[self.move(entry) for entry in raw.get("backup", ())],
            cases=raw.get("cases", ()),
        )

    def tree(self, text: str, names: Mapping[str, str] | None = None) -> Node:
        return parse(text, names or self.names, self.sorts, self.id)

    def requirement(self, raw: Mapping[str, Any]) -> Requirement:
        tree = as_condition(self.tree(raw["require"]))
        if raw.get("when") is not None:
            tree = Node("implies", Kind.CONDITION, (as_condition(self.tree(raw["when"])), tree))
        return self._named(raw["id"], raw["kind"], tree, raw)

    def set_of(self, key: str) -> list[Requirement]:
        return [
            self._named(f"{key}[{place}]", "critical", as_condition(self.tree(text)), {})
            for place, text in enumerate(self.raw.get(key, ()), start=1)
        ]

    def _named(self, name: str, kind: str, tree: Node, raw: Mapping[str, Any]) -> Requirement:
        as_it_is = Node("and", Kind.CONDITION, (tree, tree)) if tree.kind is not Kind.CONDITION else tree
        always, watched = bool(raw.get("always")), bool(raw.get("monitor"))
        return Requirement(name, kind, always, function_of(as_it_is), as_it_is, watched)

    def move(self, raw: Mapping[str, Any]) -> Move:
        moves = {
            self.names[name]: _move(value, self.sorts[name]) for name, value in raw.items() if name != "when"
        }
        tree = as_condition(self.tree(raw["when"])) if "when" in raw else None
        return Move(function_of(tree) if tree is not None else None, moves, tree)

    def order(self, raw: Mapping[str, Any]) -> Order:
        name, listed = raw["variable"], raw["states"]
        values = self.sorts[name].values
        labels = [entry["state"] for entry in listed]
        if not 0 < len(set(labels)) == len(labels) <= _MOST_STATES:
            raise LanguageError("a sequence has up to 16 states, each once")
        after = dict(zip(labels, [*labels[1:], None], strict=True))
        if raw.get("cyclic"):
            after[labels[-1]] = labels[0]
        states = {
            values[entry["state"]]: State(
                values[entry["state"]],
                duration(entry.get("min") or "0 s"),
                duration(entry["max"]) if entry.get("max") is not None else None,
                frozenset(values[label] for label in _following(entry, after)),
            )
            for entry in listed
        }
        return Order(str(raw["id"]), str(raw.get("kind", "standard")), self.names[name], states)


def _following(entry: Mapping[str, Any], after: Mapping[str, str | None]) -> Sequence[str]:
    """What may follow a state: what it says, be it nothing, else the one behind it."""
    if entry.get("next") is not None:
        return list(entry["next"])
    default = after[entry["state"]]
    return [] if default is None else [default]


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise LanguageError("a key appears twice")
    return found


def _range(pair: Sequence[Any]) -> Range:
    low, high = pair
    return Fraction(low), Fraction(high)


def _limits(raw: Mapping[str, Any], key: str) -> Range | None:
    return _range(raw[key]) if raw.get(key) is not None else None


def _sort(raw: Mapping[str, Any]) -> Sort:
    kind = _KINDS[raw["type"]]
    if kind is not Kind.ENUM:
        return Sort(kind)
    told = raw["values"]
    values = told if isinstance(told, dict) else {label: place for place, label in enumerate(told)}
    return Sort(kind, {str(label): Fraction(value) for label, value in values.items()})


def _hidden(raw: Mapping[str, Any]) -> bool:
    return raw.get("role") == "state"


def _quantity(tag: str, raw: Mapping[str, Any], sort: Sort) -> Quantity:
    rate = raw.get("max_rate")
    allowed = _limits(raw, "range")
    if sort.kind is Kind.ENUM:
        allowed = min(sort.values.values()), max(sort.values.values())
    if sort.kind is Kind.BOOLEAN:
        allowed = Fraction(0), Fraction(1)
    return Quantity(
        tag=tag,
        action=raw.get("role") == "action",
        error=Fraction(raw.get("error") or 0),
        max_rate=Fraction(str(rate).split()[0]) if rate is not None else None,
        physical=_limits(raw, "physical"),
        range=allowed,
        min_on=duration(raw.get("min_on") or "0 s"),
        min_off=duration(raw.get("min_off") or "0 s"),
        sort=sort,
        whole=raw["type"] in {"int", "bool"},
        max_age=duration(raw["max_age"]) if raw.get("max_age") is not None else None,
        accepted=frozenset(raw.get("accept_quality", ())),
        hidden=_hidden(raw),
    )


def _move(raw: Scalar, sort: Sort) -> str:
    if isinstance(raw, str) and raw in sort.values:  # a label may be called `hold`
        return str(sort.values[raw])
    if raw == "hold" or (isinstance(raw, str) and _RAMP.fullmatch(raw)):
        return str(raw).strip()
    return str(value_of(raw, sort))


__all__ = ["LanguageError", "Move", "Order", "Quantity", "Range", "Requirement", "Row", "Source", "State"]
__all__ += ["duration", "moved", "read_source", "read_sources", "value_of"]
