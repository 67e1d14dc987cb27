"""A module's source JSON as the independent checker reads it: by tag, in exact rationals."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from gateway.recheck.language import Evaluate, LanguageError, read

Range = tuple[Fraction, Fraction]
_SECONDS = {"ms": Fraction(1, 1000), "s": Fraction(1), "min": Fraction(60), "h": Fraction(3600)}
_RAMP = re.compile(r"ramp\(\s*(-?[\d.]+)\s*,\s*([\d.]+)\s*\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A variable of a module."""

    tag: str
    action: bool
    error: Fraction
    max_rate: Fraction | None  # per second
    physical: Range | None
    range: Range | None
    min_on: Fraction
    min_off: Fraction


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition that must hold, and how it is called."""

    id: str
    kind: str
    always: bool
    holds: Evaluate
    watched: bool = False  # reported, and refuses nothing (S5)

    @property
    def binding(self) -> bool:
        """Whether a violation refuses."""
        return self.kind != "informational" and not self.watched


@dataclass(frozen=True, slots=True)
class Move:
    """What a backup entry does to actions while `when` holds: text of the move by tag."""

    when: Evaluate | None
    moves: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One module."""

    id: str
    step: Fraction
    names: Mapping[str, str]  # variable -> tag
    quantities: Mapping[str, Quantity]  # by tag
    next_state: Mapping[str, Evaluate]  # by tag: the value one step later
    disturbances: Mapping[str, Range]  # by `module.name`
    requirements: Sequence[Requirement]
    safe_set: Sequence[Requirement]
    backup: Sequence[Move]
    cases: Sequence[Mapping[str, Any]] = field(default=())


def read_source(text: str) -> Source:
    """The module in a source text; raises `LanguageError` for anything this reader does not understand."""
    try:
        return _source(json.loads(text, parse_float=Fraction, object_pairs_hook=_no_doubles))
    except (KeyError, TypeError, AttributeError, ValueError, ZeroDivisionError) as exc:
        raise LanguageError(f"the module cannot be read: {exc!r}") from exc


def duration(text: str) -> Fraction:
    """Seconds of `30 s` and the like."""
    amount, unit = text.split()
    return Fraction(amount) * _SECONDS[unit]


def moved(text: str, value: Fraction, elapsed_s: Fraction) -> Fraction:
    """Where a backup move takes an action's value in a time."""
    if text == "hold":
        return value
    match = _RAMP.fullmatch(text)
    if match is None:
        return Fraction(text)
    target, reach = Fraction(match[1]), Fraction(match[2]) * elapsed_s
    return min(target, value + reach) if target > value else max(target, value - reach)


def _source(raw: Mapping[str, Any]) -> Source:
    module = str(raw["id"])
    names = {name: str(v["tag"]) for name, v in raw["variables"].items()}
    dynamics = dict(raw.get("dynamics", {}))
    disturbances = {name: _range(pair) for name, pair in dynamics.pop("disturbance", {}).items()}
    within = {**names, **{name: f"{module}.{name}" for name in disturbances}}
    return Source(
        id=module,
        step=duration(raw["step"]),
        names=names,
        quantities={names[n]: _quantity(v) for n, v in raw["variables"].items()},
        next_state={names[n]: read(text, within) for n, text in dynamics.items()},
        disturbances={f"{module}.{n}": pair for n, pair in disturbances.items()},
        requirements=[_requirement(c, names) for c in raw["constraints"]],
        safe_set=[
            Requirement(f"safe_set[{i}]", "critical", always=False, holds=read(text, names))
            for i, text in enumerate(raw.get("safe_set", ()), start=1)
        ],
        backup=[_move(entry, names) for entry in raw.get("backup", ())],
        cases=raw.get("cases", ()),
    )


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise LanguageError("a key appears twice")
    return found


def _range(pair: Sequence[Any]) -> Range:
    low, high = pair
    return Fraction(low), Fraction(high)


def _quantity(raw: Mapping[str, Any]) -> Quantity:
    def optional(key: str) -> Range | None:
        return _range(raw[key]) if raw.get(key) is not None else None

    rate = raw.get("max_rate")
    return Quantity(
        tag=str(raw["tag"]),
        action=raw.get("role") == "action",
        error=Fraction(raw.get("error") or 0),
        max_rate=Fraction(str(rate).split()[0]) if rate is not None else None,
        physical=optional("physical"),
        range=optional("range"),
        min_on=duration(raw.get("min_on") or "0 s"),
        min_off=duration(raw.get("min_off") or "0 s"),
    )


def _requirement(raw: Mapping[str, Any], names: Mapping[str, str]) -> Requirement:
    text = f"({raw['require']})"
    if raw.get("when") is not None:
        text = f"({raw['when']}) implies {text}"
    return Requirement(
        raw["id"],
        raw["kind"],
        always=bool(raw.get("always")),
        holds=read(text, names),
        watched=bool(raw.get("monitor")),
    )


def _move(raw: Mapping[str, Any], names: Mapping[str, str]) -> Move:
    moves = {
        names[name]: str(int(value)) if isinstance(value, bool) else str(value)
        for name, value in raw.items()
        if name != "when"
    }
    return Move(read(raw["when"], names) if "when" in raw else None, moves)
