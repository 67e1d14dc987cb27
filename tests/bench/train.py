"""A rule set whose states all move each other: a train of heated stages, for the solver's benchmark.

It stands for plants in which heat or mass goes from one part to the next: heat exchangers in series, zones of
a furnace or an extruder, tanks that overflow into each other. Each stage's temperature follows that of the
stage before it (what flows in), of the one after it (what is conducted back), its own heater, a load that is
measured, and a loss that nobody measures; with `returns` the last stage flows back into the first. So after
two steps each state depends on nearly all others, and on every disturbance since: rows that tanks side by
side (`synthetic`) do not have. Factors have three and four decimals, as those that are identified from
recordings have. Temperatures are in K above the surroundings.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from gateway.core.decision import RegisterValue
from gateway.core.ports import CheckRequest, InForce
from gateway.core.tag import TagDefinition, TagId, TagValue
from gateway.solver.modules.compile import compile_module
from gateway.solver.rules.ruleset import RuleSet
from tests.bench.synthetic import analog, asked, sample

STAGES = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """One size of rule set. `horizon` 0: a safe set and one step; N: N steps and a terminal set."""

    rules: int
    horizon: int = 0
    returns: bool = True

    @property
    def name(self) -> str:
        """`50 in a ring, 5 steps` and the like."""
        shape = "in a ring" if self.returns else "in series"
        return f"{self.rules} {shape}, {f'{self.horizon} steps' if self.horizon else 'safe set'}"


def source(train: Train) -> bytes:
    """The module file."""
    module = {
        "id": "train",
        "revision": 1,
        "language": 1,
        "step": "1 s",
        "variables": _variables(),
        "dynamics": _dynamics(returns=train.returns),
        "constraints": list(_rules(train)),
        "backup": [{f"heat{i}": "0"} for i in range(STAGES)],
        "terminal" if train.horizon else "safe_set": [f"temp{i} <= 127" for i in range(STAGES)],
    }
    if train.horizon:
        module["horizon"] = train.horizon
    return json.dumps(module, indent=1).encode()


def tags() -> dict[TagId, TagDefinition]:
    """Definitions of the tags that a train names."""
    found: dict[TagId, TagDefinition] = {}
    for i in range(STAGES):
        for what, unit, scale, writable in (
            ("T", "K", "0.01", False),
            ("F", "m3/h", "0.01", False),
            ("H", "%", "0.1", True),
        ):
            tag = TagId(f"S{i}.{what}")
            found[tag] = analog(tag, unit, scale, writable=writable)
    return found


def rule_set(train: Train) -> RuleSet:
    """The train's rules, compiled."""
    return RuleSet.of([compile_module(source(train), "train.json", tags())], 1)


def requests(count: int, seed: int) -> Iterator[CheckRequest]:
    """Seeded states and proposals for every train; about every second one is near some limit."""
    chance = random.Random(seed)  # noqa: S311  repeatable on purpose
    definitions = tags()
    for number in range(count):
        near = number % 2 == 1
        usual = chance.uniform(60, 100)
        inputs: dict[TagId, TagValue] = {}
        history: dict[TagId, tuple[InForce, ...]] = {}
        values: list[RegisterValue] = []
        for i in range(STAGES):
            temp, load = usual + chance.uniform(-12, 12), chance.uniform(5, 25)
            if near and i == number % STAGES:
                temp = chance.uniform(70, 129)
            before = Fraction(chance.randrange(300, 501), 10)
            reach = 115 if near and i == (number + 1) % STAGES else 80
            wanted = before + Fraction(chance.randrange(-reach, reach + 1), 10)
            tag = TagId(f"S{i}.H")
            values.append(RegisterValue(tag, definitions[tag].counts(wanted), wanted))
            history[tag] = (InForce(before, 0.0),)
            inputs[TagId(f"S{i}.T")] = sample(round(temp, 2))
            inputs[TagId(f"S{i}.F")] = sample(round(load, 2))
        yield asked(number, "train", inputs, history, values)


def _variables() -> dict[str, Mapping[str, object]]:
    found: dict[str, Mapping[str, object]] = {}
    for i in range(STAGES):
        found[f"temp{i}"] = {
            "tag": f"S{i}.T",
            "type": "real",
            "unit": "K",
            "range": ["-10", "280"],
            "error": "0.2",
            "max_age": "2 s",
        }
        found[f"load{i}"] = {
            "tag": f"S{i}.F",
            "type": "real",
            "unit": "m3/h",
            "range": ["-1", "40"],
            "error": "0.3",
            "max_age": "2 s",
            "max_rate": "2 m3/h/s",
            "physical": ["0", "36"],
        }
        found[f"heat{i}"] = {
            "tag": f"S{i}.H",
            "type": "real",
            "unit": "%",
            "range": ["0", "100"],
            "role": "action",
        }
    return found


def _dynamics(*, returns: bool) -> dict[str, object]:
    steps: dict[str, object] = {}
    for i in range(STAGES):
        flow = f"{0.083 + 0.011 * (3 * i % 5):.3f}"
        back = f"{0.031 + 0.007 * (2 * i % 4):.3f}"
        lost = f"{0.0137 + 0.0021 * (i % 3):.4f}"
        before = f"temp{i - 1}" if i else f"temp{STAGES - 1}" if returns else "0"
        terms = [f"temp{i}", f"{flow}*({before} - temp{i})"]
        if i + 1 < STAGES and returns:
            terms.append(f"{back}*(temp{i + 1} - temp{i})")
        terms += [f"0.0471*heat{i}", f"loss{i}"]
        steps[f"temp{i}"] = " + ".join(terms) + f" - {lost}*temp{i} - 0.0217*load{i}"
    steps["disturbance"] = {f"loss{i}": ["-0.05", "0.05"] for i in range(STAGES)}
    return steps


def _rules(train: Train) -> Iterator[Mapping[str, object]]:
    chance = random.Random(train.rules)  # noqa: S311  repeatable on purpose
    for number in range(train.rules):
        i, turn = number % STAGES, number // STAGES
        other = (i + 1 + turn) % STAGES
        other = other if other != i else (i + 1) % STAGES
        shapes = _shapes(i, other, round(chance.uniform(0, 2), 2))
        yield {"id": f"r{number}", "kind": "standard", **shapes[turn % len(shapes)]}


def _shapes(i: int, other: int, tight: float) -> list[Mapping[str, object]]:
    """Limits over time, ramps, differences between stages, sums: each harder by `tight`."""
    return [
        {"require": f"temp{i} <= {130 - tight:.2f}", "always": True},
        {"when": f"heat{i} > 0", "require": f"temp{i} >= {20 + tight:.2f}", "always": True},
        {"require": f"abs(rate(heat{i})) <= 10"},
        {"require": f"abs(temp{i} - temp{other}) <= {60 - tight:.2f}", "always": True},
        {"require": f"heat{i} + heat{other} <= {118 - tight:.2f}"},
        {"when": f"heat{i} > 20", "require": f"temp{i} - temp{other} >= {-50 + tight:.2f}", "always": True},
        {"require": f"{0.5 + tight / 20:.3f}*heat{i} + 0.3*heat{other} - 0.2*temp{i} <= 60", "always": True},
        {"require": f"temp{i} + temp{other} <= {250 - tight:.2f}", "always": True},
    ]
