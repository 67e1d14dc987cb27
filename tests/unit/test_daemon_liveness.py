"""S14: the device a point writes to must prove that it runs, and its inputs must come with that proof."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.config.load import load
from gateway.config.tags import tag_definitions
from gateway.core.clock import FakeClock
from gateway.core.tagstore import TagStore
from gateway.daemon.fieldside import FieldSide, field_side
from gateway.daemon.points import point_settings
from gateway.pipeline.point import Point
from tests.fakes.pipeline import RecordingSink, ScriptedProposer

DEMO = Path(__file__).parents[2] / "packaging" / "demo" / "gateway.toml"


class Rig:
    """The demo's field side; nothing is connected, the counter is what a test says it is."""

    def __init__(self) -> None:
        self.config, self.clock = load(DEMO), FakeClock()
        store = TagStore(tag_definitions(self.config), self.clock)
        self.field: FieldSide = field_side(self.config, store, self.clock)
        settings = point_settings(self.config, self.config.decision_point[0])
        self.point = Point(settings, ScriptedProposer(), RecordingSink())
        (channel,) = self.field.channels.values()
        self.reader = channel._readers["TK1"]

    def counter(self, count: int) -> None:
        assert self.reader.liveness is not None
        self.reader.liveness.saw(count, self.clock.monotonic())

    def why(self) -> str:
        return self.field.not_live(self.point)


def test_s14_a_device_vouches_once_its_counter_was_seen_to_move() -> None:
    rig = Rig()
    assert "`TK1.LIVE` of device `TK1` was not seen to move within 0.5 s" in rig.why()
    rig.counter(1)
    assert rig.why(), "one reading proves nothing"
    rig.counter(2)
    assert rig.why() == ""


def test_s14_a_counter_that_nobody_reads_any_more_stops_vouching() -> None:
    rig = Rig()
    rig.counter(1)
    rig.counter(2)
    rig.clock.advance(0.5)
    assert rig.why() == ""
    rig.clock.advance(0.01)
    assert "not seen to move" in rig.why()


def test_s14_a_lost_link_ends_what_the_counter_vouched_for() -> None:
    rig = Rig()
    rig.counter(1)
    rig.counter(2)
    rig.reader.lost()
    assert "not seen to move" in rig.why()


@pytest.mark.parametrize("tag", ["TK1.LT101", "TK1.STATUS", "TK1.P101.PV"])
def test_s14_what_a_write_rests_on_must_come_in_the_counters_own_request(tag: str) -> None:
    rig = Rig()
    rig.counter(1)
    rig.counter(2)
    rig.reader._vouched -= {tag}  # as after an answer that the block of both is too long
    assert f"`{tag}` is not read in one request with `TK1.LIVE`" in rig.why()


def test_s14_a_device_that_is_written_to_needs_a_counter() -> None:
    rig = Rig()
    rig.reader.device = replace(rig.reader.device, liveness_tag=None)
    assert "has no liveness counter" in rig.why()
