"""A model that ignores every limit: its proposals are refused or repaired, and the plant shows it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pytest

from gateway.core.decision import DecisionId, DecisionRecord
from gateway.core.tag import TagId
from gateway.link.messages import DecisionView
from gateway.recheck.check import Question, recheck, widened
from tests.integration.house import DEADLINE_MS, ROOT, House, tell
from tests.integration.recorded import CONTROL_VALID, HEATER, MIXER, audited, blocks

pytestmark = pytest.mark.integration

MODULE = (ROOT / "constraints" / "buffer-tank.json").read_text()
INPUTS = ("TK1.LT101", "TK1.FT101", "TK1.TT101")
PUMP, HEAT, MIX = "TK1.P101.SP", "TK1.H101.CMD", "TK1.M101.STAGE"
OVERFLOW_CORNER = "buffer-tank/safe_set[1]"
TIMED = ("min_on", "min_off")  # how long the heater has been off is in the gateway's history alone
EFFECT_DELAY_S = Fraction(DEADLINE_MS, 1000) + Fraction("0.07")  # deadline, write delay and scan
HOLD_S = Fraction("1.15")  # period, poll and jitter


def stopped(view: DecisionView) -> bool:
    return view.outcome in {"refused", "repaired"}


@pytest.mark.timeout(900)
async def test_unsafe_proposals_are_stopped_with_a_counterexample_that_is_one(tmp_path: Path) -> None:
    async with House(tmp_path, model="reckless", level_m=3.57) as house:
        await house.arm()
        at = time.monotonic()
        await house.until(
            lambda p: (
                sum(too_full(v) for v in p.since(at)) >= 3 and sum(stopped(v) for v in p.since(at)) >= 12
            ),
            90,
            "a dozen stopped proposals, three of them because of the level",
        )
        views = [view for view in house.picture.since(at) if stopped(view)]
        assert all(view.counterexample and view.violated for view in views)
        count = len(house.picture.since(at))
        tell(f"reckless: stopped {len(views)} of {count}, because of {dict(kinds(views))}")
        unsafe = [view for view in views if unsafe_pair(numbers(view.proposal))]
        assert unsafe, "the bundle proposes to heat without mixing"
        await house.close()
        assert house.violations() == []
        records, _ = await audited(house.state)
        by_id = {record.id: record for record in records}
        for view in views:
            confirm(view, ages(by_id[DecisionId(view.id)]))
        sent = [block for block in blocks(house.proxy.sent()) if block[CONTROL_VALID]]
        assert sent
        assert not [block for block in sent if block[HEATER] and not block[MIXER]]


def too_full(view: DecisionView) -> bool:
    """Whether the level is a reason: the limit itself, or the way into the corner (S1)."""
    return stopped(view) and bool({"buffer-tank/no-overflow", OVERFLOW_CORNER} & set(view.violated))


def kinds(views: list[DecisionView]) -> Counter[str]:
    """How often each constraint was violated."""
    return Counter(name for view in views for name in view.violated)


def ages(record: DecisionRecord) -> dict[str, Fraction]:
    """Seconds in which each reading may have moved when it was judged: its age and the skew (S4)."""
    assert record.examined is not None
    request = record.examined.request
    read_at = {name: Fraction(request.inputs[TagId(name)].confirmed_at) for name in INPUTS}
    apart = max(read_at.values()) - min(read_at.values())
    return {name: Fraction(request.taken_at) - at + apart for name, at in read_at.items()}


def confirm(view: DecisionView, moving_s: Mapping[str, Fraction]) -> None:
    """The counterexample breaks its constraint, by arithmetic here; all by the checker of other code."""
    told = json.loads(view.counterexample_json)
    assigned = {name: Fraction(text) for name, text in told["assignment"].items()}
    proposal = numbers(view.proposal)
    assert told["margin"] is None or Fraction(told["margin"]) < 0
    assert {name: assigned[f"new:{name}"] for name in proposal} == proposal
    within_sensor_error(view, assigned, moving_s)
    match told["constraint"]:
        case "heater-needs-mixing":
            assert unsafe_pair(proposal)
        case "pump-ramp":
            assert abs(proposal[PUMP] - assigned[f"old:{PUMP}"]) > 10
        case str(name) if name.endswith(TIMED):
            assert proposal[HEAT] != assigned[f"old:{HEAT}"]
        case _:
            pass
    named = {name for name in view.violated if not name.endswith(TIMED)}
    found = rechecked(view, {name: assigned[f"old:{name}"] for name in proposal}, proposal, moving_s)
    assert named <= found, f"only the gateway says {named - found}: {view}"


def rechecked(
    view: DecisionView,
    previous: Mapping[str, Fraction],
    proposal: Mapping[str, Fraction],
    moving_s: Mapping[str, Fraction],
) -> frozenset[str]:
    """What the independent checker finds violated somewhere inside the sensor errors of the decision."""
    readings = {name: Fraction(view.inputs[name]) for name in INPUTS}
    question = Question(
        inputs=widened([MODULE], readings, moving_s),
        previous={name: [value] for name, value in previous.items()},
        proposal=proposal,
        hold_s=HOLD_S,
        effect_delay_s=EFFECT_DELAY_S,
    )
    return recheck([MODULE], question).violated


def within_sensor_error(
    view: DecisionView, assigned: Mapping[str, Fraction], moving_s: Mapping[str, Fraction]
) -> None:
    """The assumed start lies where the instruments allow: error, half a count, and what moved since."""
    for name, reach, rate in (("TK1.LT101", "0.02", 0), ("TK1.FT101", "0.4", 2), ("TK1.TT101", "0.5", 0)):
        most = Fraction(reach) + rate * moving_s[name]
        assert abs(assigned[f"start:{name}"] - Fraction(view.inputs[name])) <= most


def unsafe_pair(proposal: Mapping[str, Fraction]) -> bool:
    return bool(proposal[HEAT]) and proposal[MIX] < 1


def numbers(shown: Mapping[str, str]) -> dict[str, Fraction]:
    words = {"true": "1", "false": "0"}
    return {name: Fraction(words.get(text, text)) for name, text in shown.items()}
