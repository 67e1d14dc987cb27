"""Robust twins of the shipped modules, points near their limits, and vertex sampling without the solver.

A twin's sensors are worse than the module's, everything it measures as a real drifts from step to step by a
disturbance, and its rules must hold over several steps wherever the language allows `always`. What is
measured as a switch, a count or a label and drifts at all may be anything a step later. `sequences` are left
out: they look back, and nothing in them is measured.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from gateway.core.decision import CheckRequest, DecisionId, InForce, PointId, Proposal, RegisterValue
from gateway.core.quality import StatusCode
from gateway.core.tag import TagId, TagValue
from gateway.recheck.source import Requirement, Source, read_source
from gateway.recheck.tree import reads
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Case, Module, Variable
from tests.unit.solver_modules import tags, text

STEPS = 3  # of the backup, after the proposal's own
WORSE, DRIFT = Fraction(5, 4), Fraction(1, 8)  # of the module's error: the twin's, and its drift a step
_LOOKS_BACK = re.compile(r"\b(prev|rate|for|age|good|vote)\b")
_REACHES = (0.0, 0.3, 0.7, 1.0, 1.3, 3.0)  # of what errors and drift come to
_FROM_PERMITTED = 0.5  # of the points
_AT_LIMITS = 0.5
_HALVINGS = 12
_NOW = 1_000.0

Box = Mapping[str, Sequence[Fraction]]  # by tag, the ends, or all values of what counts in whole numbers
Point = dict[str, Fraction]


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """A twin, read by the solver and by the judge that shares nothing with it; errors and drifts by tag."""

    module: Module
    source: Source
    errors: Mapping[str, Fraction]
    drifts: Mapping[str, Fraction]

    @property
    def always(self) -> tuple[str, ...]:
        """Rules that are shown over all steps."""
        return tuple(r.id for r in self.source.requirements if r.always)


def twin(name: str) -> Twin:
    """The robust twin of a shipped module."""
    raw: dict[str, Any] = json.loads(text(name))
    raw.pop("sequences", None)
    raw["cases"] = [case for case in raw["cases"] if not _about_sequences(case)]
    reals = {n: v for n, v in raw["variables"].items() if v["type"] == "real" and v.get("role") != "action"}
    raw["dynamics"] = {n: f"{n} + drift_{n}" for n in reals}
    drifts = {n: Fraction(v["error"]) * DRIFT for n, v in reals.items()}
    raw["dynamics"]["disturbance"] = {f"drift_{n}": [_text(-d), _text(d)] for n, d in drifts.items()}
    if not reals:
        del raw["dynamics"]
    errors = {n: Fraction(v["error"]) * WORSE for n, v in reals.items()}
    for n, v in reals.items():
        v["error"] = _text(errors[n])
        v.pop("max_rate", None)
    actions = [n for n, v in raw["variables"].items() if v.get("role") == "action"]
    raw["backup"] = [dict.fromkeys(actions, "hold")]
    raw["terminal"], raw["horizon"] = ["0 <= 1"], STEPS
    _hold_longer(raw, name, reals)
    module = compile_module(json.dumps(raw).encode(), f"{name}.json", tags(name))
    to_tag = {n: str(v["tag"]) for n, v in raw["variables"].items()}
    return Twin(
        module=module,
        source=read_source(json.dumps(raw)),
        errors={to_tag[n]: e for n, e in errors.items()},
        drifts={to_tag[n]: d for n, d in drifts.items()},
    )


def _about_sequences(case: Mapping[str, Any]) -> bool:
    expected = case["expect"]
    return isinstance(expected, dict) and any("." in rule for rule in expected["violated"])


def _hold_longer(raw: dict[str, Any], name: str, reals: Mapping[str, Any]) -> None:
    """`always` for each rule of which the language allows it."""
    others = {
        n for n, v in raw["variables"].items() if v.get("role") != "action" and n not in reals and reals
    }
    for rule in raw["constraints"]:
        words = f"{rule.get('when', '')} {rule['require']}"
        if _LOOKS_BACK.search(words) or others & set(re.findall(r"\w+", words)):
            continue
        rule["always"] = True
        try:
            compile_module(json.dumps(raw).encode(), f"{name}.json", tags(name))
        except ModuleRefusedError:
            del rule["always"]


@dataclass(frozen=True, slots=True)
class Sample:
    """Readings, values in force and values proposed, by tag."""

    readings: Point
    before: Point
    proposed: Point


def samples(found: Twin, count: int, seed: int) -> Iterator[Sample]:
    """Points near those of the module's cases, and points on both sides of a limit between two of them."""
    dice = random.Random(f"{found.module.id} {seed}")  # noqa: S311  # repeatable
    cases = found.module.cases
    kept = [case for case in cases if not case.violated]
    for _ in range(count):
        one = _sample(found, dice.choice(kept if dice.random() < _FROM_PERMITTED else cases), dice)
        other = _sample(found, dice.choice(cases), dice)
        yield _at_a_limit(found, one, other, dice) if dice.random() < _AT_LIMITS else one


def _sample(found: Twin, case: Case, dice: random.Random) -> Sample:
    readings, before, proposed = Point(), Point(), Point()
    reach = dice.choice(_REACHES)
    moved = dice.random() < 0.5
    for v in found.module.variables.values():
        given = case.given[v.name]
        if not v.action:
            far = found.errors.get(v.tag, Fraction(0)) + (STEPS + 1) * found.drifts.get(v.tag, Fraction(0))
            readings[v.tag] = _read(v, given, float(far) * reach, dice)
            continue
        proposed[v.tag] = _near(v, given, dice) if moved else given
        old = case.previous.get(v.name)
        before[v.tag] = proposed[v.tag] if old is None else old
    return Sample(readings, before, proposed)


def _at_a_limit(found: Twin, one: Sample, other: Sample, dice: random.Random) -> Sample:
    """The last point that no vertex violates, or the first one that some does, between two points."""
    safe, unsafe = (one, other) if not violated(found, one) else (other, one)
    for _ in range(_HALVINGS):
        between = _halfway(found, safe, unsafe)
        if violated(found, between):
            unsafe = between
        else:
            safe = between
    return dice.choice((safe, unsafe))


def _halfway(found: Twin, first: Sample, second: Sample) -> Sample:
    """In the middle of what is real; the rest, and what was in force, as in the first."""

    def mean(one: Point, other: Point) -> Point:
        both = {v.tag: v for v in found.module.variables.values() if v.sort == "real" and v.tag in one}
        return {**one, **{tag: _snapped(v, (one[tag] + other[tag]) / 2) for tag, v in both.items()}}

    return Sample(mean(first.readings, second.readings), first.before, mean(first.proposed, second.proposed))


def _read(v: Variable, given: Fraction, far: float, dice: random.Random) -> Fraction:
    if v.sort == "real":
        return _snapped(v, given + Fraction(dice.uniform(-far, far)))
    return dice.choice(_values(v)) if dice.random() < 0.1 else given


def _near(v: Variable, given: Fraction, dice: random.Random) -> Fraction:
    if v.sort != "real":
        return dice.choice(_values(v)) if dice.random() < 0.1 else given
    return _snapped(v, given + v.definition.scale * dice.randint(-8, 8))


def _values(v: Variable) -> list[Fraction]:
    """All values of a switch or a label; of a count its ends."""
    if v.whole is not None and len(v.whole) <= 16:
        return [Fraction(value) for value in v.whole]
    return [*v.range]


def _snapped(v: Variable, value: Fraction) -> Fraction:
    low, high = v.range
    return v.definition.engineering(v.definition.counts(min(high, max(low, value))))


def _text(value: Fraction) -> str:
    return f"{float(value):.12f}".rstrip("0").rstrip(".")


def inside_ranges(found: Twin, sample: Sample) -> bool:
    """Whether no reading with its error leaves the range: else nobody may say anything (S3)."""
    for v in found.module.variables.values():
        if not v.action:
            reach = _reach(found, v)
            low, high = sample.readings[v.tag] - reach, sample.readings[v.tag] + reach
            if not v.range[0] <= low <= high <= v.range[1]:
                return False
    return True


def _reach(found: Twin, v: Variable) -> Fraction:
    """How far the truth may lie from a reading: the error and half a count."""
    return found.errors[v.tag] + abs(v.definition.scale) / 2 if v.tag in found.errors else Fraction(0)


def violated(found: Twin, sample: Sample) -> frozenset[str]:
    """Binding rules that fail at a vertex of what may be, now or at an instant at which they must hold."""
    return frozenset(
        rule.id
        for rule in found.source.requirements
        if rule.binding
        for at in ((0, STEPS + 1) if rule.always else (0,))
        if not _keeps(found, rule, sample, at)
    )


def _keeps(found: Twin, rule: Requirement, sample: Sample, at: int) -> bool:
    asked = sorted({name for op, name in reads([rule.tree]) if op == "now" and name in sample.readings})
    variables = {str(v.tag): v for v in found.module.variables.values()}
    ends = [_ends(found, variables[tag], sample, at) for tag in asked]
    fixed = {**sample.readings, **sample.proposed}
    fixed |= {f"prev {tag}": value for tag, value in sample.before.items()}
    return all(rule.holds({**fixed, **dict(zip(asked, c, strict=True))}) for c in itertools.product(*ends))


def _ends(found: Twin, v: Variable, sample: Sample, at: int) -> Sequence[Fraction]:
    read = sample.readings[v.tag]
    if v.tag not in found.errors:
        return _values(v) if at else (read,)
    reach = _reach(found, v) + at * found.drifts[v.tag]
    return read - reach, read + reach


def request(found: Twin, sample: Sample) -> CheckRequest:
    """The sample as the plant would show it; what is proposed acts at once and for one step."""
    variables = {str(v.tag): v for v in found.module.variables.values()}
    return CheckRequest(
        decision=DecisionId("d"),
        point=PointId("p"),
        generation=1,
        inputs={
            TagId(tag): TagValue(
                value=float(value) if variables[tag].sort == "real" else int(value),
                status=StatusCode.Good,
                source_ts_ns=None,
                server_ts_ns=0,
                confirmed_at=_NOW,
            )
            for tag, value in sample.readings.items()
        },
        taken_at=_NOW,
        history={TagId(tag): (InForce(value, 0.0),) for tag, value in sample.before.items()},
        held_s={TagId(tag): 1e6 for tag in sample.before},
        proposal=Proposal(
            values=tuple(
                RegisterValue(TagId(tag), variables[tag].definition.counts(value), value)
                for tag, value in sample.proposed.items()
            ),
            by="test",
        ),
        carried=None,
        hold_s=float(found.module.step),
        effect_delay_s=0.0,
        may_repair=False,
    )
