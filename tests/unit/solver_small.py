"""A small plant with one variable of every kind, and check requests for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from gateway.core.decision import (
    CheckRequest,
    CheckResult,
    DecisionId,
    InForce,
    PointId,
    Proposal,
    RegisterValue,
    StateSet,
)
from gateway.core.quality import StatusCode
from gateway.core.tag import TagDefinition, TagId, TagKind, TagValue
from gateway.solver.checking.terms import Budget
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Module
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks

PATIENT = Budget(timeout_ms=10_000)
NOW = 1_000.0


def _tag(
    name: str, kind: TagKind, unit: str = "", scale: str = "1", *, writable: bool = False
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
        _tag("L", TagKind.REAL, "m", "0.001"),
        _tag("Q", TagKind.REAL, "m3/h", "0.01"),
        _tag("T", TagKind.REAL, "degC", "0.01"),
        _tag("G", TagKind.REAL, "bar(g)", "0.01"),
        _tag("B", TagKind.BOOLEAN),
        _tag("N", TagKind.INTEGER),
        _tag("M", TagKind.INTEGER),
        _tag("P", TagKind.REAL, "%", "0.1", writable=True),
        _tag("H", TagKind.BOOLEAN, writable=True),
        _tag("S", TagKind.INTEGER, writable=True),
    )
}

VARIABLES: Mapping[str, Mapping[str, Any]] = {
    "l": {"tag": "L", "type": "real", "unit": "m", "range": ["-1", "5"], "error": "0.01", "max_age": "2 s"},
    "q": {
        "tag": "Q",
        "type": "real",
        "unit": "m3/h",
        "range": ["10", "40"],
        "error": "0.3",
        "max_age": "2 s",
        "max_rate": "2 m3/h/s",
    },
    "t": {"tag": "T", "type": "real", "unit": "degC", "range": ["0", "90"], "error": "0.1", "max_age": "2 s"},
    "g": {
        "tag": "G",
        "type": "real",
        "unit": "bar(g)",
        "range": ["0", "9"],
        "error": "0.1",
        "max_age": "2 s",
    },
    "b": {"tag": "B", "type": "bool", "max_age": "2 s"},
    "n": {"tag": "N", "type": "int", "range": ["0", "20"], "max_age": "2 s"},
    "m": {"tag": "M", "type": "enum", "values": ["off", "auto", "hand"], "max_age": "2 s"},
    "p": {"tag": "P", "type": "real", "unit": "%", "range": ["0", "100"], "role": "action"},
    "h": {"tag": "H", "type": "bool", "role": "action"},
    "s": {"tag": "S", "type": "enum", "values": {"idle": 0, "run": 5, "stop": 9}, "role": "action"},
}


def rule(require: str, name: str = "r", kind: str = "standard", **more: object) -> dict[str, object]:
    return {"id": name, "kind": kind, "require": require, **more}


def document(*rules: Mapping[str, object], id: str = "small", **more: object) -> dict[str, Any]:  # noqa: A002
    """A module as data; `variables` in `more` are joined with the usual ones."""
    changed = more.pop("variables", {})
    assert isinstance(changed, dict)
    variables = {n: {**VARIABLES.get(n, {}), **changed.get(n, {})} for n in {**VARIABLES, **changed}}
    return {
        "id": id,
        "revision": 1,
        "language": 1,
        "step": "1 s",
        "variables": variables,
        "constraints": list(rules),
        **more,
    }


def small(*rules: Mapping[str, object] | str, id: str = "small", **more: object) -> Module:  # noqa: A002
    """A compiled module; a text is a standard rule `r`."""
    given = [rule(r) if isinstance(r, str) else r for r in rules]
    return compile_module(json.dumps(document(*given, id=id, **more)).encode(), f"{id}.json", TAGS)


@dataclass(frozen=True, kw_only=True)
class Plant:
    """Readings, values in force and proposed."""

    l: float = 2.0  # noqa: E741  the variable's own name
    q: float = 20.0
    t: float = 40.0
    g: float = 2.0
    b: bool = False
    n: int = 3
    m: int = 1
    old: Mapping[str, str] = field(default_factory=dict)
    new: Mapping[str, str] = field(default_factory=dict)
    at: float = NOW
    ages: Mapping[str, float] = field(default_factory=dict)
    status: Mapping[str, StatusCode] = field(default_factory=dict)
    held_s: float = 1_000.0
    carried: StateSet | None = None
    hold_s: float = 1.2
    effect_delay_s: float = 0.3

    def request(self) -> CheckRequest:
        inputs = {
            TagId(name.upper()): TagValue(
                value=getattr(self, name),
                status=self.status.get(name.upper(), StatusCode.Good),
                source_ts_ns=None,
                server_ts_ns=0,
                confirmed_at=self.at - self.ages.get(name.upper(), 0.0),
            )
            for name in ("l", "q", "t", "g", "b", "n", "m")
        }
        usual = {"P": "40", "H": "0", "S": "0"}
        old = {TagId(t): Fraction(v) for t, v in {**usual, **self.old}.items()}
        new = {TagId(t): Fraction(v) for t, v in {**usual, **self.old, **self.new}.items()}
        values = tuple(RegisterValue(t, TAGS[t].counts(v), v) for t, v in new.items())
        return CheckRequest(
            decision=DecisionId("d"),
            point=PointId("p"),
            generation=1,
            inputs=inputs,
            taken_at=self.at,
            history={t: (InForce(v, 0.0),) for t, v in old.items()},
            held_s=dict.fromkeys(old, self.held_s),
            proposal=Proposal(values=values, by="test"),
            carried=self.carried,
            hold_s=self.hold_s,
            effect_delay_s=self.effect_delay_s,
            may_repair=False,
        )


def checks(*modules: Module) -> Checks:
    return Checks(RuleSet.of(modules, 1), PATIENT)


def judged(modules: Module | tuple[Module, ...], plant: Plant) -> CheckResult:
    together = (modules,) if isinstance(modules, Module) else modules
    return checks(*together).check(plant.request())[0]


def verdict(modules: Module | tuple[Module, ...], plant: Plant) -> str:
    """`Permitted`, `Refused` or `Undetermined`."""
    return type(judged(modules, plant).verdict).__name__
