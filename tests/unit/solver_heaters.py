"""A plant of two heaters that warm two places and each other's, in steps of 10 s, with limits on both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from gateway.core.tag import TagDefinition, TagId, TagKind
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Module

NAMES = {"t1": "HT.T1", "t2": "HT.T2", "q1": "HT.Q1.SP", "q2": "HT.Q2.SP"}
TAGS: Mapping[TagId, TagDefinition] = {
    TagId(tag): TagDefinition(
        id=TagId(tag),
        kind=TagKind.REAL,
        unit="degC" if name[0] == "t" else "%",
        scale=Fraction(1, 100) if name[0] == "t" else Fraction(1, 10),
        raw_range=(0, 10_000) if name[0] == "t" else (0, 1_000),
        writable=name[0] == "q",
    )
    for name, tag in NAMES.items()
}
OUTPUTS = (TagId("HT.Q1.SP"), TagId("HT.Q2.SP"))
TERMINAL = ("t1 <= 60", "t2 <= 60", "q1 <= 0", "q2 <= 0")

_TEMPERATURE = {"type": "real", "unit": "degC", "range": ["0", "100"], "error": "0.3", "max_age": "20 s"}
_POWER = {"type": "real", "unit": "%", "range": ["0", "100"], "role": "action"}
_COLD: Mapping[str, str] = {"t1": "40", "t2": "40", "q1": "30", "q2": "30"}


def _case(given: Mapping[str, str], *violated: str) -> dict[str, Any]:
    expect: object = {"violated": list(violated)} if violated else "permitted"
    return {"given": {**_COLD, **given}, "expect": expect}


def document(**more: object) -> dict[str, Any]:
    """The module as data, without a safe set; `more` replaces keys."""
    return {
        "id": "heaters",
        "revision": 1,
        "language": 1,
        "step": "10 s",
        "variables": {
            name: {"tag": tag, **(_TEMPERATURE if name[0] == "t" else _POWER)} for name, tag in NAMES.items()
        },
        "dynamics": {
            "t1": "t1 + 0.06*(22 - t1) + 0.004*(t2 - t1) + 0.05*q1 + 0.004*q2 + w1",
            "t2": "t2 + 0.06*(22 - t2) + 0.004*(t1 - t2) + 0.004*q1 + 0.03*q2 + w2",
            "disturbance": {"w1": ["-0.2", "0.2"], "w2": ["-0.2", "0.2"]},
        },
        "constraints": [
            {"id": "hot1", "kind": "critical", "require": "t1 <= 60", "always": True},
            {"id": "hot2", "kind": "critical", "require": "t2 <= 60", "always": True},
        ],
        "backup": [{"q1": "ramp(0, 2)"}, {"q2": "ramp(0, 2)"}],
        "cases": [
            _case({"t1": "60.2"}, "hot1"),
            _case({"t2": "60.2"}, "hot2"),
            _case({"t1": "60"}),
            _case({"t2": "60"}),
        ],
        **more,
    }


def heaters(**more: object) -> Module:
    """The compiled module."""
    return compile_module(json.dumps(document(**more), indent=1).encode(), "heaters.json", TAGS)
