"""Seeded random constraint sets around the demo plant."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from gateway.core.tag import TagDefinition, TagId
from gateway.solver.modules.compile import compile_module
from gateway.solver.rules.ruleset import RuleSet

_MODULE = Path(__file__).parents[2] / "constraints" / "buffer-tank.json"


def random_set(seed: int, tags: dict[TagId, TagDefinition]) -> tuple[RuleSet, tuple[str, ...]]:
    """The demo's module with another of three to six rules, and what these say.

    Each is of a kind that plants have: a cap, a least flow, a ramp, a power budget over several outputs, one
    output that needs another, a limit that depends on the plant's state.
    """
    dice = random.Random(seed)  # noqa: S311  # reproducible, not a secret
    kinds = dice.sample(_KINDS, dice.randint(3, 6))
    rules = [kind(dice) for kind in kinds]
    text = _MODULE.read_text(encoding="utf-8")
    demo = json.loads(text)
    document = {
        "id": f"random-{seed}",
        **{key: demo[key] for key in ("revision", "language", "step", "variables")},
        "constraints": [
            {"id": f"rule-{number}", "kind": "standard", **rule} for number, rule in enumerate(rules)
        ],
    }
    modules = (
        compile_module(text.encode(), "buffer-tank.json", tags),
        compile_module(json.dumps(document).encode(), f"random-{seed}.json", tags),
    )
    said = tuple(" ".join(str(rule[key]) for key in ("when", "require") if key in rule) for rule in rules)
    return RuleSet.of(modules, 1), said


def _cap(dice: random.Random) -> dict[str, Any]:
    return {"require": f"pump <= {dice.randint(30, 60)}"}


def _least(dice: random.Random) -> dict[str, Any]:
    return {"when": f"level > {dice.uniform(1.2, 1.9):.2f}", "require": f"pump >= {dice.randint(10, 31)}"}


def _ramp(dice: random.Random) -> dict[str, Any]:
    return {"require": f"abs(rate(pump)) <= {dice.choice(['0.5', '1', '2', '4'])}"}


def _budget(dice: random.Random) -> dict[str, Any]:
    heater, stage, limit = dice.randint(8, 30), dice.randint(2, 8), dice.randint(34, 70)
    return {"require": f"pump + {heater}*heater + {stage}*mixer <= {limit}"}


def _needs(dice: random.Random) -> dict[str, Any]:
    return {"when": "heater", "require": f"mixer >= {dice.randint(2, 3)}"}


def _mixes(dice: random.Random) -> dict[str, Any]:
    return {"when": f"pump > {dice.randint(15, 30)}", "require": f"mixer >= {dice.randint(2, 3)}"}


def _quiet(dice: random.Random) -> dict[str, Any]:
    return {"when": "not heater", "require": f"mixer <= {dice.randint(0, 1)}"}


def _level(dice: random.Random) -> dict[str, Any]:
    return {"when": f"level < {dice.uniform(1.9, 2.3):.2f}", "require": f"pump <= {dice.randint(12, 30)}"}


def _warm(dice: random.Random) -> dict[str, Any]:
    return {"when": f"temp > {dice.randint(44, 48)}", "require": "not heater"}


_KINDS = (_cap, _least, _ramp, _budget, _needs, _mixes, _quiet, _level, _warm)
