"""Recorded decisions of the demo tank for back-tests: requests at random, and an audit log of records."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from gateway.core.decision import (
    CheckRequest,
    CheckResult,
    DecisionId,
    DecisionRecord,
    Examination,
    Holds,
    InForce,
    Mode,
    Outcome,
    Permitted,
    PointId,
    Proposal,
    StateInterval,
    StateSet,
    Undetermined,
    Unknown,
    Violated,
)
from gateway.core.quality import StatusCode
from gateway.core.tag import TagId
from gateway.solver.backtest.evidence import Evidence, Floats, Listed
from gateway.solver.backtest.sweep import HOLDS, UNKNOWN, VIOLATED, Asked, Sweep, Sweeper
from gateway.storage import chain
from gateway.storage.codec import record_to_plain
from tests.unit.solver_demo import HEATER, INFLOW, LEVEL, MIXER, NOW, PUMP, TEMP, Situation, proposal

MEASURED, ACTIONS = (LEVEL, INFLOW, TEMP), (PUMP, HEATER, MIXER)
START_NS = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000


def random_request(dice: random.Random) -> CheckRequest:
    """A situation near the limits more often than not, with readings of all ages, and a past."""
    level = round(dice.choice([dice.uniform(-0.05, 4.2), dice.gauss(3.55, 0.05), dice.gauss(0.4, 0.1)]), 3)
    pump = round(dice.choice([dice.uniform(0, 100), 0.0, 100.0, 40.0]), 1)
    change = dice.choice([0, 10, -10, 10.1, -10.1, dice.uniform(-12, 12)])
    wanted = round(min(100.0, max(0.0, pump + change)), 1)
    temp = round(dice.choice([dice.uniform(20, 80), dice.gauss(74.5, 0.5), 75.0]), 2)
    heater = dice.randint(0, 1)
    situation = Situation(
        level=level,
        inflow=round(dice.choice([12.0, dice.uniform(-1, 41)]), 2),
        temp=temp,
        pump=str(pump),
        heater=heater,
        mixer=dice.randint(0, 3),
        held_s=dice.choice([0.0, 10.0, 29.999999, 30.0, 60.0, 1000.0]),
        older={PUMP: _older(dice, pump)},
        carried=_carried(dice, level, temp) if dice.random() < 0.6 else None,
    )
    inputs = {
        tag: replace(
            sample,
            confirmed_at=NOW
            - dice.choice([0.0, dice.uniform(0, 1.9), 0.1, 2.1 if dice.random() < 0.1 else 0.2]),
            status=dice.choice([StatusCode.Good] * 30 + [StatusCode.Bad]),
        )
        for tag, sample in situation.inputs().items()
    }
    asked = proposal(str(wanted), dice.choice([heater, 1 - heater]), dice.randint(0, 3))
    return situation.request(asked, inputs)


def _older(dice: random.Random, pump: float) -> tuple[InForce, ...]:
    agos = sorted(dice.uniform(0.05, 3) for _ in range(dice.choice([0, 0, 1, 2, 4])))
    values = [str(round(min(100.0, max(0.0, pump + dice.uniform(-25, 25))), 1)) for _ in agos]
    return tuple(InForce(Fraction(value), ago) for value, ago in zip(values, agos, strict=True))


def _carried(dice: random.Random, level: float, temp: float) -> StateSet:
    middle, half = level + dice.uniform(-0.02, 0.02), dice.uniform(0.003, 0.03)
    return StateSet(
        at=NOW - dice.choice([dice.uniform(0.05, 4), 1.0, 12.0]),
        intervals={
            LEVEL: _micro(middle - half, middle + half),
            INFLOW: StateInterval(Fraction(10), Fraction(14)),
            TEMP: _micro(temp - 0.2, temp + 1.5),
        },
    )


def _micro(low: float, high: float) -> StateInterval:
    return StateInterval(Fraction(round(low * 1e6), 10**6), Fraction(round(high * 1e6), 10**6))


def evidence(
    requests: Sequence[CheckRequest],
    measured: Sequence[TagId] = MEASURED,
    actions: Sequence[TagId] = ACTIONS,
    states: Sequence[TagId] = MEASURED,
) -> Evidence:
    """The requests as columns, each judged for its own proposal; `states` are the tags of carried states."""
    count = len(requests)

    def listed(tag: TagId) -> Listed:
        entries = [(row, e) for row, r in enumerate(requests) for e in r.history[tag]]
        return Listed(
            np.array([float(e.value) for _, e in entries]),
            np.array([e.ceased_s_ago for _, e in entries]),
            np.array([row for row, _ in entries], dtype=np.int64),
            count,
        )

    def carried(tag: TagId, side: str) -> Floats:
        found = [r.carried.intervals.get(tag) if r.carried is not None else None for r in requests]
        return np.array([np.nan if i is None else float(getattr(i, side)) for i in found])

    samples = {tag: [r.inputs[tag] for r in requests] for tag in measured}
    wanted = [r.proposal.engineering() if r.proposal is not None else {} for r in requests]
    return Evidence(
        taken_at=np.array([r.taken_at for r in requests]),
        hold_s=np.array([r.hold_s for r in requests]),
        effect_delay_s=np.array([r.effect_delay_s for r in requests]),
        value={tag: np.array([float(s.value or 0) for s in column]) for tag, column in samples.items()},
        status={tag: np.array([int(s.status) for s in column]) for tag, column in samples.items()},
        confirmed_at={tag: np.array([s.confirmed_at for s in column]) for tag, column in samples.items()},
        in_force={tag: listed(tag) for tag in actions},
        held_s={tag: np.array([r.held_s[tag] for r in requests]) for tag in actions},
        carried_at=np.array([np.nan if r.carried is None else r.carried.at for r in requests]),
        carried={tag: (carried(tag, "low"), carried(tag, "high")) for tag in states},
        proposed={tag: np.array([float(w.get(tag, np.nan)) for w in wanted]) for tag in actions},
    )


_KIND = {Holds: HOLDS, Violated: VIOLATED, Unknown: UNKNOWN}


def assert_as_one_by_one(sweeper: Sweeper, found: Sweep, requests: Sequence[CheckRequest]) -> dict[int, int]:
    """Every verdict and margin as the exact judge has it; how many of each verdict, -1: none at all."""
    counted = dict.fromkeys((HOLDS, VIOLATED, UNKNOWN, -1), 0)
    for row, request in enumerate(requests):
        findings = sweeper.exact(asked(request))
        if findings[0].constraint == "*":
            assert found.reason[row] >= 0, (row, findings[0])
            counted[-1] += 1
            continue
        assert found.reason[row] < 0, (row, found.reasons[found.reason[row]])
        for finding in findings:
            kind = _KIND[type(finding)]
            assert found.verdict[finding.constraint][row] == kind, (row, finding)
            counted[kind] += 1
            if isinstance(finding, Holds):
                margin = float(found.margin[finding.constraint][row])
                assert math.isnan(margin) == (finding.margin is None)
                near = 1e-5 * max(1.0, abs(margin))
                assert finding.margin is None or abs(float(finding.margin) - margin) < near
    return counted


def asked(request: CheckRequest) -> Asked:
    """A request as the exact judge is asked."""
    assert request.proposal is not None
    return request, request.proposal.engineering()


def record(
    number: int,
    situation: Situation,
    asked: Proposal,
    outcome: Outcome | None = None,
    *,
    point: str = "tank",
    what_if: bool = False,
) -> DecisionRecord:
    """Decision `number`, one a second from `START_NS`; permitted as proposed unless said otherwise."""
    request = situation.request(asked)
    said = outcome if outcome is not None else Permitted(asked.values)
    findings = (Holds("buffer-tank", "no-overflow", Fraction(1)),)
    examined = None
    if isinstance(said, Permitted) or outcome is None or not isinstance(said, Undetermined):
        result = CheckResult(verdict=said, findings=findings, generation=1, rule_set_digest="d")  # type: ignore[arg-type]
        examined = Examination(request=replace(request, decision=DecisionId(f"d-{number}")), result=result)
    return DecisionRecord(
        id=DecisionId(f"d-{number}"),
        point=PointId(point),
        mode=Mode.ARMED,
        requested_by="period",
        received_utc_ns=START_NS + number * SECOND_NS,
        outcome=said,
        proposal=asked,
        written=asked.values,
        written_by="verdict",
        findings=findings,
        inputs=request.inputs,
        generation=1,
        rule_set_digest="d",
        model_digest="",
        timings_ms={},
        examined=examined,
        what_if=what_if,
    )


def write_log(path: Path, records: Sequence[DecisionRecord]) -> Path:
    """An audit log of these decisions, between events as a gateway leaves them."""
    rows = [chain.row("event", {"kind": "start", "who": "gateway", "what": {}, "at_utc_ns": START_NS})]
    for found in records:
        rows.append(chain.row("decision", record_to_plain(found), decision=found.id, point=found.point))
        outcome = {"write_outcome": "confirmed", "reason": "", "at_utc_ns": found.received_utc_ns}
        rows.append(chain.row("outcome", outcome, decision=found.id))
    with contextlib.closing(chain.open_for_appending(path, 250)) as connection:
        assert not any(chain.append_rows(connection, rows))
    return path
