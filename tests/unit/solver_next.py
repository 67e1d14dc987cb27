"""Small plants of which every block of outputs can be judged, and what follows for decoding one by one."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import msgspec

from gateway.core.decision import DecisionId, PointId
from gateway.core.guidance import Guidance
from gateway.core.ports import CheckRequest, InForce
from gateway.core.quality import StatusCode
from gateway.core.tag import TagDefinition, TagId, TagKind, TagValue
from gateway.solver.checking.judge import Judge
from gateway.solver.checking.predict import observe
from gateway.solver.decoding.permitted_next import Exactly, NotKnown
from gateway.solver.modules.compile import compile_module
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import millis_up
from gateway.solver.workers.outlook import Outlook, Outlooks
from tests.unit.solver_demo import PATIENT

Acted = Mapping[str, tuple[tuple[int, float], ...]]  # count, seconds ago

NOW = 1_000.0


def _tag(
    name: str, kind: TagKind, unit: str, scale: str, raw: tuple[int, int], *, writable: bool = False
) -> TagDefinition:
    return TagDefinition(
        id=TagId(name), kind=kind, unit=unit, scale=Fraction(scale), raw_range=raw, writable=writable
    )


TAGS: Mapping[TagId, TagDefinition] = {
    d.id: d
    for d in (
        _tag("L", TagKind.REAL, "m", "0.001", (-32_768, 32_767)),
        _tag("K", TagKind.REAL, "m", "0.001", (-32_768, 32_767)),
        _tag("N", TagKind.INTEGER, "", "1", (0, 99)),
        _tag("P", TagKind.REAL, "%", "6", (0, 7), writable=True),
        _tag("R", TagKind.REAL, "%", "5", (-1, 6), writable=True),
        _tag("H", TagKind.BOOLEAN, "", "1", (0, 1), writable=True),
        _tag("S", TagKind.INTEGER, "", "1", (0, 3), writable=True),
    )
}
ORDER = tuple(TagId(t) for t in ("P", "R", "H", "S"))

_LEVEL = {"type": "real", "unit": "m", "range": ["-1", "9"], "error": "0.01", "max_age": "2 s"}
VARIABLES: Mapping[str, Mapping[str, Any]] = {
    "l": {"tag": "L", **_LEVEL},
    "k": {"tag": "K", **_LEVEL, "max_rate": "0.1 m/s"},
    "n": {"tag": "N", "type": "int", "range": ["0", "20"], "max_age": "2 s", "max_rate": "1 1/s"},
    "p": {"tag": "P", "type": "real", "unit": "%", "range": ["0", "50"], "role": "action"},
    "r": {"tag": "R", "type": "real", "unit": "%", "range": ["0", "40"], "role": "action"},
    "h": {"tag": "H", "type": "bool", "role": "action", "min_on": "30 s", "min_off": "60 s"},
    "s": {"tag": "S", "type": "enum", "values": {"idle": 0, "run": 2, "stop": 3}, "role": "action"},
}
DYNAMICS = {"l": "l + 0.004*p - 0.006*r + leak", "disturbance": {"leak": ["-0.01", "0.01"]}}


def rules(*requires: str | Mapping[str, object], **more: object) -> RuleSet:
    """A rule set; a text is a standard rule `r1`, `r2` and so on."""
    given = [
        {"id": f"r{i}", "kind": "standard", **({"require": r} if isinstance(r, str) else r)}
        for i, r in enumerate(requires)
    ]
    document = {
        "id": "small",
        "revision": 1,
        "language": 1,
        "step": "1 s",
        "variables": VARIABLES,
        "dynamics": DYNAMICS,
        "constraints": given,
        **more,
    }
    return RuleSet.of([compile_module(json.dumps(document).encode(), "small.json", TAGS)], 1)


@dataclass(frozen=True, kw_only=True)
class Here:
    """Readings, values in force and what was in force before."""

    l: float = 2.0  # noqa: E741  the variable's own name
    k: float = 2.0
    n: int = 3
    old: Mapping[str, int] = field(default_factory=lambda: {"P": 4, "R": 4, "H": 0, "S": 0})  # counts
    older: Acted = field(default_factory=dict)
    held_s: float = 1_000.0
    effect_delay_s: float = 0.3

    def request(self) -> CheckRequest:
        """A request without a proposal."""
        readings = {"L": self.l, "K": self.k, "N": self.n}
        return CheckRequest(
            decision=DecisionId("d"),
            point=PointId("p"),
            generation=1,
            inputs={
                TagId(tag): TagValue(
                    value=value,
                    status=StatusCode.Good,
                    source_ts_ns=None,
                    server_ts_ns=0,
                    confirmed_at=NOW - 0.05,
                )
                for tag, value in readings.items()
            },
            taken_at=NOW,
            history={
                tag: (
                    InForce(TAGS[tag].engineering(self.old[tag]), 0.0),
                    *(InForce(TAGS[tag].engineering(raw), ago) for raw, ago in self.older.get(tag, ())),
                )
                for tag in ORDER
            },
            held_s=dict.fromkeys(ORDER, self.held_s),
            proposal=None,
            carried=None,
            hold_s=1.2,
            effect_delay_s=self.effect_delay_s,
            may_repair=False,
        )


def anywhere(chance: random.Random, acted: Sequence[str]) -> Here:
    """A seeded situation; what acted before is chosen among `acted`, of "nothing", "older" and "both"."""
    since: Acted = {"P": ((chance.randrange(7), 0.37),), "R": ((chance.randrange(7), 0.123),)}
    both: Acted = {"P": ((chance.randrange(7), 0.0),), "H": ((chance.randrange(2), 0.0),)}
    return Here(
        l=chance.choice([1.9, 2.0, 2.03, 2.1]),
        k=chance.choice([1.9, 2.0, 2.1]),
        n=chance.randrange(1, 8),
        old={
            "P": chance.randrange(8),
            "R": chance.randrange(7),
            "H": chance.randrange(2),
            "S": chance.choice([0, 2, 3]),
        },
        older={"nothing": {}, "older": since, "both": both}[chance.choice(acted)],
        held_s=chance.choice([10.0, 1_000.0]),
        effect_delay_s=chance.choice([0.0, 0.3, 1.1]),
    )


class Enumerated:
    """Every block of one state judged by the full check, and outlooks on the same state."""

    def __init__(self, rule_set: RuleSet, here: Here) -> None:
        request = here.request()
        judge = Judge(rule_set, PATIENT)
        prepared = judge.prepare(millis_up(request.effect_delay_s), millis_up(request.hold_s))
        facts = observe(rule_set, request)
        self._outlooks, self._facts = Outlooks(rule_set, prepared), facts
        self.permitted: list[Mapping[TagId, int]] = []
        for block in _blocks(ORDER):
            counts = dict(zip(ORDER, block, strict=True))
            values = {tag: TAGS[tag].engineering(raw) for tag, raw in counts.items()}
            if judge.judge(prepared, facts, values).permitted:
                self.permitted.append(counts)

    def outlook(self, order: Sequence[TagId] = ORDER) -> Outlook:
        """What may be decoded in some order."""
        found = self._outlooks.of(self._facts, order)
        assert isinstance(found, Outlook)
        return found

    def compared(self, order: Sequence[TagId] = ORDER) -> tuple[int, int]:
        """How many answers are exact, and how many may hold more; asserts that none is wrong.

        Also that guidance, as it travels, says the same.
        """
        outlook = self.outlook(order)
        told = msgspec.json.decode(msgspec.json.encode(outlook.guidance()), type=Guidance)
        true: dict[tuple[int, ...], set[int]] = {}
        for counts in self.permitted:
            block = tuple(counts[tag] for tag in order)
            for length, raw in enumerate(block):
                true.setdefault(block[:length], set()).add(raw)
        exact = more = 0
        for length in range(len(order)):
            for fixed in _blocks(order[:length]):
                answer = outlook.after(fixed)
                assert not isinstance(answer, NotKnown)
                assert told.after(fixed) == answer.counts, fixed  # the same, from plain data
                said = {v for low, high in answer.counts for v in range(low, high + 1)}
                if isinstance(answer, Exactly):
                    assert said == true.get(fixed, set()), fixed
                    exact += 1
                else:
                    assert said >= true.get(fixed, set()), fixed
                    more += 1
        return exact, more


def _blocks(order: Sequence[TagId]) -> Iterator[tuple[int, ...]]:
    ends = (TAGS[tag].raw_range or (0, 0) for tag in order)
    return itertools.product(*(range(low, high + 1) for low, high in ends))
