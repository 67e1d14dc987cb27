from __future__ import annotations

import pytest

from gateway.core.clock import FakeClock
from gateway.core.quality import StatusCode
from gateway.core.tag import Scalar, TagDefinition, TagId, TagKind
from gateway.core.tagstore import TagStore
from gateway.protocols.modbus.channel import ModbusChannel
from gateway.protocols.modbus.codec import NotAValue
from gateway.protocols.modbus.liveness import BackOff, LivenessWatch
from gateway.protocols.modbus.model import ModbusDevice, ModbusEndpoint, ModbusTag
from gateway.protocols.modbus.reader import of_kind

GOOD, STANDS, UNPROVED = (
    StatusCode.Good,
    StatusCode.UncertainLastUsableValue,
    StatusCode.UncertainInitialValue,
)


def readings(watch: LivenessWatch, *counts_at: tuple[int | None, float]) -> list[StatusCode]:
    return [watch.saw(count, at) for count, at in counts_at]


# S14: one reading proves nothing; a counter that moves does, as long as it goes on.
def test_a_counter_is_good_from_its_first_step_until_it_stands_too_long() -> None:
    watch = LivenessWatch(limit_s=1.0)

    assert readings(watch, (5, 0.0), (6, 0.5), (6, 1.4), (6, 1.6), (7, 1.7)) == [
        UNPROVED,
        GOOD,
        GOOD,
        STANDS,
        GOOD,
    ]


def test_a_counter_that_wraps_has_moved() -> None:
    assert readings(LivenessWatch(1.0), (65535, 0.0), (0, 0.1)) == [UNPROVED, GOOD]


def test_a_counter_that_never_moved_stands() -> None:
    watch = LivenessWatch(1.0)

    assert readings(watch, (5, 0.0), (5, 0.9), (5, 1.1)) == [UNPROVED, UNPROVED, STANDS]
    assert watch.frozen


def test_a_slow_poll_of_a_moving_counter_is_good() -> None:
    assert readings(LivenessWatch(1.0), (5, 0.0), (90, 5.0), (180, 10.0)) == [UNPROVED, GOOD, GOOD]


def test_a_counter_that_cannot_be_read_does_not_count_as_moving() -> None:
    assert readings(LivenessWatch(1.0), (5, 0.0), (6, 0.1), (None, 0.5), (None, 1.2)) == [
        UNPROVED,
        GOOD,
        GOOD,
        STANDS,
    ]


def test_after_a_new_connection_the_counter_must_move_again() -> None:
    watch = LivenessWatch(1.0)
    readings(watch, (5, 0.0), (6, 0.1))

    watch.restart()

    assert readings(watch, (9, 0.2), (9, 0.3), (10, 0.4)) == [UNPROVED, UNPROVED, GOOD]


def test_waiting_times_double_up_to_the_cap_and_start_again() -> None:
    back_off = BackOff(0.1, 0.5)

    assert [back_off.next_s() for _ in range(4)] == [0.1, 0.2, 0.4, 0.5]
    back_off.reset()
    assert back_off.next_s() == 0.1


@pytest.mark.parametrize(
    ("decoded", "kind", "value"),
    [
        (1, TagKind.BOOLEAN, True),
        (0, TagKind.BOOLEAN, False),
        (2, TagKind.INTEGER, 2),
        (2, TagKind.REAL, 2.0),
        (True, TagKind.INTEGER, 1),
        (9007199254740993, TagKind.INTEGER, 9007199254740993),
        ("Hi", TagKind.TEXT, "Hi"),
    ],
)
def test_a_value_has_its_tags_kind(decoded: Scalar, kind: TagKind, value: Scalar) -> None:
    found = of_kind(decoded, kind)

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("decoded", "kind"),
    [(2, TagKind.BOOLEAN), (2.5, TagKind.INTEGER), ("x", TagKind.REAL), (1, TagKind.TEXT)],
)
def test_a_value_that_is_not_of_its_tags_kind_is_no_value(decoded: Scalar, kind: TagKind) -> None:
    assert isinstance(of_kind(decoded, kind), NotAValue)


def test_a_device_whose_parts_do_not_fit_together_is_refused() -> None:
    tag = ModbusTag(definition=TagDefinition(id=TagId("A"), kind=TagKind.REAL), table="input", address=0)
    with pytest.raises(ValueError, match="no poll group `fast`"):
        ModbusDevice(id="D", unit_id=1, tags=(tag,), poll_groups={"slow": 1.0})
    with pytest.raises(ValueError, match="liveness tag `B`"):
        ModbusDevice(id="D", unit_id=1, tags=(tag,), poll_groups={"fast": 1.0}, liveness_tag=TagId("B"))
    device = ModbusDevice(id="D", unit_id=1, tags=(tag,), poll_groups={"fast": 1.0})
    clock = FakeClock()
    with pytest.raises(ValueError, match="does not know `A`"):
        ModbusChannel("c", ModbusEndpoint(host="h"), [device], TagStore([], clock), clock)


def test_s14_a_counter_moves_only_while_it_was_seen_to_within_the_limit() -> None:
    watch = LivenessWatch(limit_s=1.0)

    watch.saw(5, 0.0)
    assert not watch.moving(0.0)
    watch.saw(6, 0.5)
    assert watch.moving(1.5)
    assert not watch.moving(1.6), "nobody read it since, so its last status is no evidence"
    watch.saw(6, 1.4)
    assert not watch.moving(1.6)
    watch.saw(7, 1.7)
    watch.restart()
    assert not watch.moving(1.7)
