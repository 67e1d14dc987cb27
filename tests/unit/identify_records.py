"""A gateway's audit file with the decisions of a plant that was recorded: readings, and what was in force."""

from __future__ import annotations

import contextlib
from fractions import Fraction
from pathlib import Path

from gateway.core.decision import (
    CheckRequest,
    CheckResult,
    DecisionId,
    Examination,
    InForce,
    Permitted,
    PointId,
)
from gateway.core.quality import StatusCode
from gateway.core.tag import TagId, TagValue
from gateway.solver.identify.series import Floats
from gateway.storage.chain import append_rows, open_for_appending, row
from gateway.storage.codec import record_to_plain
from tests.unit.identify_plants import Plant
from tests.unit.test_storage_codec import a_record

POINT = PointId("buffer-tank")
TAGS = {"level": "TK1.LT101", "inflow": "TK1.FT101", "temp": "TK1.TT101"}
OUTPUTS = {"pump": "TK1.P101.SP", "heater": "TK1.H101.CMD"}
WRITE_DELAY_S = 0.05
_ROWS = 500


def audited(path: Path, plant: Plant, last_utc_ns: int, *, missing: range = range(0)) -> None:
    """One decision a second, the last at `last_utc_ns`; a value acts `WRITE_DELAY_S` after its decision."""
    samples = plant.recording.samples
    steps = len(samples["level"].at)
    rows = []
    for k in range(steps):
        if k in missing:
            continue
        taken = 1_000.0 + k
        utc = last_utc_ns - (steps - 1 - k) * 1_000_000_000
        inputs = {
            TagId(tag): _reading(float(samples[name].value[k]), taken, utc) for name, tag in TAGS.items()
        }
        history = {TagId(tag): _history(samples[name].value, k) for name, tag in OUTPUTS.items()}
        request = CheckRequest(
            decision=DecisionId(f"d-{k}"),
            point=POINT,
            generation=12,
            inputs=inputs,
            taken_at=taken,
            history=history,
            held_s={},
            proposal=None,
            carried=None,
            hold_s=1.0,
            effect_delay_s=0.1,
        )
        result = CheckResult(verdict=Permitted(()), findings=(), generation=12, rule_set_digest="sha256:aa")
        record = a_record(
            id=request.decision,
            point=POINT,
            received_utc_ns=utc,
            inputs=inputs,
            examined=Examination(request=request, result=result),
        )
        rows.append(row("decision", record_to_plain(record), decision=record.id, point=POINT))
    with contextlib.closing(open_for_appending(path, 1_000)) as connection:
        for first in range(0, len(rows), _ROWS):
            assert set(append_rows(connection, rows[first : first + _ROWS])) == {None}


def _reading(value: float, taken: float, utc_ns: int) -> TagValue:
    return TagValue(
        value=value,
        status=StatusCode.Good,
        source_ts_ns=None,
        server_ts_ns=utc_ns,
        confirmed_at=taken - 0.02,
    )


def _history(values: Floats, k: int) -> tuple[InForce, ...]:
    """What acts at step k's decision is what was decided before it."""
    numbers = [Fraction(str(round(float(v), 3))) for v in values[max(0, k - 2) : k]]
    if len(numbers) < 2:
        return (InForce(numbers[-1] if numbers else Fraction(0), 0.0),)
    if numbers[0] == numbers[1]:
        return (InForce(numbers[1], 0.0),)
    return InForce(numbers[1], 0.0), InForce(numbers[0], 1.0 - WRITE_DELAY_S)
