"""Rule sets of any size for the solver's benchmark: tanks side by side, tied together by their rules.

Every family has the demo tank's dynamics for each tank: `level` and `inflow` measured, `pump` an action.
Rules are dealt in turn: limits over time, ramps, sums of two levels, sums of pumps, and, where asked for,
products `level * pump`. The same numbers give the same file, on every machine.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gateway.core.decision import DecisionId, PointId, Proposal, RegisterValue
from gateway.core.ports import CheckRequest, InForce
from gateway.core.quality import StatusCode
from gateway.core.tag import TagDefinition, TagId, TagKind, TagValue
from gateway.solver.modules.compile import compile_module
from gateway.solver.rules.ruleset import RuleSet

NOW = 1_000.0
HOLD_S, DELAY_S = 1.2, 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One size of rule set. `horizon` 0: a safe set and one step; N: N steps and a terminal set."""

    rules: int
    horizon: int = 0
    products: bool = False

    @property
    def tanks(self) -> int:
        """So many that 50 rules speak of about 20 variables."""
        return 3 if self.rules < 50 else 7

    @property
    def name(self) -> str:
        """`50 linear, safe set` and the like."""
        shape = "products" if self.products else "linear"
        return f"{self.rules} {shape}, {f'{self.horizon} steps' if self.horizon else 'safe set'}"


def source(family: Family) -> bytes:
    """The module file."""
    module = {
        "id": "tanks",
        "revision": 1,
        "language": 1,
        "step": "1 s",
        "variables": _variables(family.tanks),
        "dynamics": _dynamics(family.tanks),
        "constraints": list(_rules(family)),
        "backup": list(_backup(family.tanks)),
        "terminal" if family.horizon else "safe_set": list(_kept(family.tanks)),
    }
    if family.horizon:
        module["horizon"] = family.horizon
    return json.dumps(module, indent=1).encode()


def tags(tanks: int) -> dict[TagId, TagDefinition]:
    """Definitions of the tags that a family of so many tanks names."""
    found: dict[TagId, TagDefinition] = {}
    for i in range(tanks):
        for what, unit, scale, writable in (
            ("L", "m", "0.001", False),
            ("F", "m3/h", "0.01", False),
            ("P", "%", "0.1", True),
        ):
            tag = TagId(f"T{i}.{what}")
            found[tag] = analog(tag, unit, scale, writable=writable)
    return found


def rule_set(family: Family, generation: int = 1) -> RuleSet:
    """The family's rules, compiled."""
    return RuleSet.of([compile_module(source(family), "tanks.json", tags(family.tanks))], generation)


def requests(family: Family, count: int, seed: int, *, may_repair: bool) -> Iterator[CheckRequest]:
    """Seeded states and proposals; about every second one is near some limit."""
    chance = random.Random(seed)  # noqa: S311  repeatable on purpose
    definitions = tags(family.tanks)
    for number in range(count):
        near = number % 2 == 1
        inputs: dict[TagId, TagValue] = {}
        history: dict[TagId, tuple[InForce, ...]] = {}
        values: list[RegisterValue] = []
        for i in range(family.tanks):
            low, high = (0.4, 3.5) if near and i == number % family.tanks else (1.2, 2.6)
            level, inflow = chance.uniform(low, high), chance.uniform(5, 25)
            before = Fraction(chance.randrange(300, 501), 10)
            reach = 115 if near and i == (number + 1) % family.tanks else 80
            wanted = before + Fraction(chance.randrange(-reach, reach + 1), 10)
            tag = TagId(f"T{i}.P")
            values.append(RegisterValue(tag, definitions[tag].counts(wanted), wanted))
            history[tag] = (InForce(before, 0.0),)
            inputs[TagId(f"T{i}.L")] = sample(round(level, 3))
            inputs[TagId(f"T{i}.F")] = sample(round(inflow, 2))
        yield asked(number, "tanks", inputs, history, values, may_repair=may_repair)


def analog(tag: TagId, unit: str, scale: str, *, writable: bool) -> TagDefinition:
    """A tag of one register."""
    return TagDefinition(
        id=tag,
        kind=TagKind.REAL,
        unit=unit,
        scale=Fraction(scale),
        raw_range=(0, 65_535) if writable else (-32_768, 32_767),
        writable=writable,
    )


def sample(value: float) -> TagValue:
    """A good reading, 50 ms old."""
    return TagValue(
        value=value, status=StatusCode.Good, source_ts_ns=None, server_ts_ns=0, confirmed_at=NOW - 0.05
    )


def asked(
    number: int,
    point: str,
    inputs: Mapping[TagId, TagValue],
    history: Mapping[TagId, tuple[InForce, ...]],
    values: Sequence[RegisterValue],
    *,
    may_repair: bool = False,
) -> CheckRequest:
    """A decision without a state carried in, its outputs in force for long."""
    return CheckRequest(
        decision=DecisionId(f"d-{number}"),
        point=PointId(point),
        generation=1,
        inputs=inputs,
        taken_at=NOW,
        history=history,
        held_s=dict.fromkeys(history, 1_000.0),
        proposal=Proposal(values=tuple(values), by="model"),
        carried=None,
        hold_s=HOLD_S,
        effect_delay_s=DELAY_S,
        may_repair=may_repair,
    )


def _variables(tanks: int) -> dict[str, Mapping[str, object]]:
    found: dict[str, Mapping[str, object]] = {}
    for i in range(tanks):
        found[f"level{i}"] = {
            "tag": f"T{i}.L",
            "type": "real",
            "unit": "m",
            "range": ["-0.1", "5"],
            "error": "0.01",
            "max_age": "2 s",
        }
        found[f"inflow{i}"] = {
            "tag": f"T{i}.F",
            "type": "real",
            "unit": "m3/h",
            "range": ["-1", "40"],
            "error": "0.3",
            "max_age": "2 s",
            "max_rate": "2 m3/h/s",
            "physical": ["0", "36"],
        }
        found[f"pump{i}"] = {
            "tag": f"T{i}.P",
            "type": "real",
            "unit": "%",
            "range": ["0", "100"],
            "role": "action",
        }
    return found


def _dynamics(tanks: int) -> dict[str, object]:
    steps: dict[str, object] = {
        f"level{i}": f"level{i} + 0.000138889*inflow{i} - 0.0000625*pump{i} + leak{i}" for i in range(tanks)
    }
    steps["disturbance"] = {f"leak{i}": ["-0.0005", "0.0005"] for i in range(tanks)}
    return steps


def _backup(tanks: int) -> Iterator[Mapping[str, object]]:
    for i in range(tanks):
        yield {"when": f"level{i} >= 2", f"pump{i}": "ramp(100, 10)"}
        yield {f"pump{i}": "ramp(0, 10)"}


def _kept(tanks: int) -> Iterator[str]:
    for i in range(tanks):
        yield f"level{i} <= 3.6 - 0.0006*(100 - pump{i})"
        yield f"pump{i} > 0 implies level{i} >= 0.31 + 0.0007*pump{i}"


def _rules(family: Family) -> Iterator[Mapping[str, object]]:
    chance = random.Random(family.rules)  # noqa: S311  repeatable on purpose
    for number in range(family.rules):
        i, turn = number % family.tanks, number // family.tanks
        other = (i + 1 + turn) % family.tanks
        other = other if other != i else (i + 1) % family.tanks
        yield {"id": f"r{number}", "kind": "standard", **_rule(family, turn, i, other, chance)}


def _rule(family: Family, turn: int, i: int, other: int, chance: random.Random) -> Mapping[str, object]:
    tight = round(chance.uniform(0, 0.2), 3)
    shapes: list[Mapping[str, object]] = [
        {"require": f"level{i} <= {3.6 - tight:.3f}", "always": True},
        {"when": f"pump{i} > 0", "require": f"level{i} >= {0.3 + tight:.3f}", "always": True},
        {"require": f"abs(rate(pump{i})) <= 10"},
        {"require": f"level{i} + level{other} <= {6.2 - tight:.3f}", "always": True},
        {"require": f"pump{i} + pump{other} <= {118 - 10 * tight:.2f}"},
        {
            "when": f"pump{i} > 20",
            "require": f"level{i} - level{other} >= {-2.9 + tight:.3f}",
            "always": True,
        },
        {"require": f"{0.5 + tight:.3f}*pump{i} + 0.3*pump{other} - 5*level{i} <= {60:.2f}"},
    ]
    if family.products and turn % 2 == 1:
        return {"require": f"level{i}*pump{other} <= {150 + 100 * tight:.2f}"}
    return shapes[turn % len(shapes)]
