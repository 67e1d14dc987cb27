"""A plant as a module describes it, and as whoever judges understands it: two tellings, made side by side.

Each state `x` with dynamics has a disturbance `w_x`. A step of the true plant is that of the module seen from
whatever moment in it: where states move one another, its band covers what they do meanwhile (`Truth`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal

from gateway.core.tag import TagDefinition, TagId, TagKind
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Module
from tests.unit.falsifier_words import Entry, Form, Law, decimal

Span = tuple[Fraction, Fraction]
Sort = Literal["real", "int", "bool", "enum"]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What is measured, or a state that is not (`hidden`)."""

    name: str
    range: Span
    start: Span
    sort: Sort = "real"
    error: Fraction = Fraction(0)
    deadband: Fraction = Fraction(0)
    scale: Fraction = Fraction(1, 1000)
    max_age: Fraction = Fraction(2)
    max_rate: Fraction | None = None
    physical: Span | None = None
    hidden: bool = False
    flaky: bool = False  # its reading is missing now and then, and the rules ask `good` of it

    @property
    def off(self) -> Fraction:
        """How far a count may be from the truth, before it is rounded to one."""
        return self.error + self.deadband


@dataclass(frozen=True, kw_only=True)
class Output:
    """What is written."""

    name: str
    range: Span
    sort: Sort = "real"
    scale: Fraction = Fraction(1, 10)
    min_on: int = 0
    min_off: int = 0
    labels: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Dwell:
    """One state of a sequence."""

    label: str
    following: tuple[str, ...]
    least: int = 0
    most: int = 0  # none


@dataclass(frozen=True, kw_only=True)
class Plant:
    """Everything of one plant. `worse` are errors that a second module states of the same tags."""

    step: int
    seen: tuple[Seen, ...]
    outputs: tuple[Output, ...]
    steps: Mapping[str, Form]  # a variable's value one step later
    bands: Mapping[str, Span]  # of disturbances
    laws: tuple[Law, ...]
    backup: tuple[Entry, ...] = ()
    sequence: tuple[str, tuple[Dwell, ...]] | None = None
    safe_set: tuple[str, ...] = ()
    terminal: tuple[str, ...] = ()
    horizon: int | None = None
    worse: Mapping[str, Fraction] = field(default_factory=dict)
    others: tuple[Law, ...] = ()  # of the second module
    hold: Fraction = Fraction(1)
    delay: Fraction = Fraction(1, 4)
    period: Fraction = Fraction(1)
    about: str = ""
    given: Mapping[str, Any] | None = None  # the module as it was found, in place of the one that is made

    def error(self, seen: Seen) -> Fraction:
        """The widest that a module in force states."""
        return max(seen.error, self.worse.get(seen.name, seen.error))

    @property
    def every_law(self) -> tuple[Law, ...]:
        return (*self.laws, *self.others)

    @property
    def lasting(self) -> bool:
        """Whether there is a set that the backup is to keep for ever."""
        return bool(self.safe_set or self.terminal)

    def tags(self) -> dict[TagId, TagDefinition]:
        """Definitions of the tags; of states nobody measures there are none."""
        told = self.given["variables"] if self.given is not None else {}
        units = {name: declared.get("unit", "") for name, declared in told.items()}
        found = [_tag(s.name, s.sort, s.scale, s.deadband) for s in self.seen if not s.hidden]
        found += [_tag(o.name, o.sort, o.scale, Fraction(0), writable=True) for o in self.outputs]
        found = [replace(d, unit=units.get(d.id.lower(), "")) for d in found]
        return {d.id: d for d in found}

    def modules(self) -> list[Module]:
        """The module, and the second one where there is one; raises `ModuleRefusedError`."""
        texts = [("first", self.document())]
        if self.others or self.worse:
            texts.append(("second", self.second()))
        tags = self.tags()
        return [compile_module(json.dumps(d).encode(), f"{name}.json", tags) for name, d in texts]

    def document(self, revision: int = 1) -> dict[str, Any]:
        if self.given is not None:
            return dict(self.given)
        found: dict[str, Any] = {
            "id": "first",
            "revision": revision,
            "language": 1,
            "step": f"{self.step} s",
            "variables": {
                **{s.name: self._measured(s) for s in self.seen},
                **{o.name: _action(o) for o in self.outputs},
            },
            "constraints": [law.document() for law in self.laws],
        }
        if self.steps:
            bands = {name: [decimal(low), decimal(high)] for name, (low, high) in self.bands.items()}
            found["dynamics"] = {name: form.text() for name, form in self.steps.items()}
            found["dynamics"]["disturbance"] = bands
        if self.backup:
            found["backup"] = [self._entry(entry) for entry in self.backup]
        if self.sequence is not None:
            found["sequences"] = [_sequence(*self.sequence)]
        for key, texts in (("safe_set", self.safe_set), ("terminal", self.terminal)):
            if texts:
                found[key] = list(texts)
        if self.horizon is not None:
            found["horizon"] = self.horizon
        return found

    def second(self) -> dict[str, Any]:
        """Another module about some of the same tags, whose errors are worse."""
        variables = {s.name: self._measured(s, second=True) for s in self.seen if not s.hidden}
        variables |= {o.name: _action(o) for o in self.outputs}
        laws = self.others or (self.laws[0],)
        return {
            "id": "second",
            "revision": 1,
            "language": 1,
            "priority": 3,
            "step": f"{self.step} s",
            "variables": variables,
            "constraints": [law.document() for law in laws],
        }

    def _measured(self, seen: Seen, *, second: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = {"type": seen.sort}
        if seen.hidden:
            found["role"] = "state"
        else:
            found |= {"tag": seen.name.upper(), "max_age": f"{decimal(seen.max_age)} s"}
        if seen.sort != "bool":
            found |= {"unit": "", "range": list(map(decimal, seen.range))}
        if seen.sort == "real" and not seen.hidden:
            error = self.worse.get(seen.name, seen.error) if second else seen.error
            found["error"] = decimal(error)
            if not error:
                found["error_reason"] = "counted"
        if seen.max_rate is not None:
            found["max_rate"] = f"{decimal(seen.max_rate)} /s"
        if seen.physical is not None:
            found["physical"] = list(map(decimal, seen.physical))
        return found

    def _entry(self, entry: Entry) -> dict[str, Any]:
        about = {o.name: o for o in self.outputs}
        moves = {n: m.word(about[n].sort, about[n].labels) for n, m in entry.moves.items()}
        return moves if entry.when is None else {"when": entry.when.text(), **moves}


def _tag(
    name: str, sort: Sort, scale: Fraction, deadband: Fraction, *, writable: bool = False
) -> TagDefinition:
    kinds = {"real": TagKind.REAL, "bool": TagKind.BOOLEAN, "int": TagKind.INTEGER, "enum": TagKind.INTEGER}
    return TagDefinition(
        id=TagId(name.upper()),
        kind=kinds[sort],
        scale=scale if sort == "real" else Fraction(1),
        deadband=deadband if sort == "real" else Fraction(0),
        raw_range=(-(2**31), 2**31 - 1),
        writable=writable,
    )


def _action(output: Output) -> dict[str, Any]:
    found: dict[str, Any] = {"tag": output.name.upper(), "type": output.sort, "role": "action"}
    if output.sort in {"real", "int"}:
        found |= {"unit": "", "range": list(map(decimal, output.range))}
    if output.sort == "enum":
        found["values"] = dict(output.labels)
    if output.min_on:
        found["min_on"] = f"{output.min_on} s"
    if output.min_off:
        found["min_off"] = f"{output.min_off} s"
    return found


def _sequence(variable: str, states: tuple[Dwell, ...]) -> dict[str, Any]:
    listed: list[dict[str, Any]] = []
    for state in states:
        one: dict[str, Any] = {"state": state.label, "next": list(state.following)}
        if state.least:
            one["min"] = f"{state.least} s"
        if state.most:
            one["max"] = f"{state.most} s"
        listed.append(one)
    return {"id": "course", "variable": variable, "states": listed}
