"""The soft PLC's guard: what it takes, what it refuses, and what it does when left alone (S11, S18, S21)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.clock import FakeClock
from gateway.plantsim.plc import Block, Panel, Reject, Scan, SoftPlc, Status, block_checksum, fallback
from gateway.plantsim.tank import Outputs, TankState

SCAN_S = 0.02


class Rig:
    """A PLC and the clock it scans by."""

    def __init__(self, level_m: float = 2.5) -> None:
        self.clock = FakeClock()
        self.plc = SoftPlc(seed=1, start=TankState(level_m, 40.0))
        self.plc.scan(self.clock.monotonic())

    def scan(self, seconds: float = SCAN_S) -> Scan:
        for _ in range(round(seconds / SCAN_S)):
            self.clock.advance(SCAN_S)
            last = self.plc.scan(self.clock.monotonic())
        return last

    def write(self, words: Sequence[int]) -> Scan:
        self.plc.block[:] = words
        return self.scan()

    @property
    def status(self) -> Status:
        return Status(self.plc.inputs[1])


def block(
    sequence: int = 1,
    *,
    owner: int = 1,
    epoch: int = 1,
    lease: int = 1,
    valid: int = 1,
    pump: int = 450,
    heater: int = 1,
    mixer: int = 2,
) -> list[int]:
    words = [sequence, owner, epoch, lease, valid, pump, heater, mixer]
    return [*words, block_checksum(words)]


def test_the_checksum_is_crc16_modbus() -> None:
    # "123456789" gives 0x4B37; nine octets are no whole words, so a longer known frame stands in.
    assert (
        block_checksum([0x0103, 0x0000, 0x000A]) == 0xCDC5
    )  # frame 01 03 00 00 00 0A C5 CD, low octet first


def test_a_right_block_becomes_the_working_values_in_one_scan() -> None:
    rig = Rig()
    scan = rig.write(block(7))
    assert scan.working == Outputs(45.0, heater=True, mixer=2)
    assert (scan.in_control, scan.sequence, scan.reject) == (True, 7, Reject.NONE)
    assert rig.plc.inputs[2:7] == [7, 0, 450, 1, 2]
    assert rig.status == Status.REMOTE | Status.IN_CONTROL


@pytest.mark.parametrize(
    ("words", "reject"),
    [
        ([*block(2)[:-1], block(2)[-1] ^ 1], Reject.CHECKSUM),
        (block(2, owner=2), Reject.OWNER),
        (block(2, epoch=9), Reject.EPOCH),
        (block(2, valid=0), Reject.CONTROL_CLEAR),
        (block(2, valid=2), Reject.CONTROL_CLEAR),
        (block(2, pump=1001), Reject.RANGE),
        (block(2, heater=2), Reject.RANGE),
        (block(2, mixer=4), Reject.RANGE),
    ],
)
def test_a_wrong_block_is_refused_with_its_code_and_changes_no_output(
    words: list[int], reject: Reject
) -> None:
    rig = Rig()
    before = rig.plc.working
    scan = rig.write(words)
    assert (scan.reject, scan.sequence, scan.in_control) == (reject, 0, False)
    assert (scan.working.heater, scan.working.mixer) == (before.heater, before.mixer)
    assert rig.plc.inputs[3] == reject


def test_in_local_a_block_is_refused_and_never_taken_when_remote_comes_back() -> None:
    rig = Rig()
    rig.plc.panel[Panel.REMOTE] = 0
    assert rig.write(block(2)).reject is Reject.LOCAL
    assert Status.REMOTE not in rig.status
    rig.plc.panel[Panel.REMOTE] = 1
    assert not rig.scan(0.1).in_control
    assert rig.write(block(3, lease=2)).in_control


def test_a_repeated_sequence_is_not_copied_again() -> None:
    rig = Rig()
    rig.write(block(2))
    scan = rig.write(block(2, lease=2, pump=900))
    assert scan.working.pump_pct == 45.0
    assert scan.in_control


# S20: what comes late was sent before something newer; neither its values nor its lease count.
@pytest.mark.parametrize("old", [19, 1, 0, 65535, 20 + 0x8000])
def test_an_older_sequence_is_refused_and_renews_no_lease(old: int) -> None:
    rig = Rig()
    rig.write(block(20))
    rig.scan(2.5)
    scan = rig.write(block(old, lease=2, pump=900))
    assert (scan.reject, scan.sequence) == (Reject.NOT_LATER, 20)
    assert scan.working.pump_pct == 45.0
    assert not rig.scan(0.6).in_control


@pytest.mark.parametrize(("before", "after"), [(65535, 1), (65535, 0), (65000, 300), (1, 0x8000)])
def test_a_sequence_that_has_wrapped_is_a_later_one(before: int, after: int) -> None:
    rig = Rig()
    for sequence in sorted({min(before, 0x6000), min(before, 0xC000), before}):
        rig.write(block(sequence, lease=sequence))
    assert rig.plc.inputs[2] == before
    assert rig.write(block(after, lease=after, pump=900)).working.pump_pct == 90.0


def test_the_lease_runs_out_after_three_seconds_and_the_fallback_takes_over() -> None:
    rig = Rig(level_m=2.5)
    rig.write(block(1, pump=450))
    assert rig.scan(2.96).in_control
    assert rig.scan(0.06).in_control is False
    assert Status.FALLBACK in rig.status
    scan = rig.scan(1.0)
    assert scan.working.pump_pct == pytest.approx(55.4, abs=0.5)
    assert (scan.working.heater, scan.working.mixer) == (False, 2)


def test_values_alone_do_not_renew_the_lease() -> None:
    rig = Rig()
    for sequence in range(1, 4):
        rig.write(block(sequence))
        rig.scan(0.98)
    assert not rig.scan(0.1).in_control


def test_a_moving_lease_holds_control_and_a_strangers_does_not() -> None:
    rig = Rig()
    for number in range(1, 8):
        rig.write(block(number, lease=number))
        assert rig.scan(0.98).in_control
    for number in range(8, 14):
        rig.write(block(number, lease=number, owner=5))
        scan = rig.scan(0.98)
    assert not scan.in_control


def test_after_the_lease_ran_out_control_comes_back_only_with_a_lease_that_moved() -> None:
    rig = Rig()
    rig.write(block(1, lease=4))
    assert not rig.scan(3.1).in_control
    scan = rig.write(block(2, lease=4))
    assert (scan.in_control, scan.reject) == (False, Reject.LEASE_STOOD)
    assert rig.write(block(3, lease=5)).in_control


@pytest.mark.parametrize("word", ["control-valid", "remote"])
def test_clearing_control_valid_or_switching_to_local_ends_control_in_the_next_scan(word: str) -> None:
    rig = Rig()
    rig.write(block(1))
    if word == "remote":
        rig.plc.panel[Panel.REMOTE] = 0
    else:
        rig.plc.block[Block.CONTROL_VALID] = 0  # that word alone: clearing is the safe direction
    scan = rig.scan()
    assert (scan.in_control, scan.working.heater) == (False, False)


@given(order=st.permutations(range(9)), mixer=st.integers(0, 3), pump=st.integers(0, 1000))
def test_no_partial_block_ever_becomes_a_working_value(order: list[int], mixer: int, pump: int) -> None:
    rig = Rig()
    old = rig.write(block(1)).working
    new = block(2, lease=2, pump=pump, heater=0, mixer=mixer)
    wanted = Outputs(pump / 10, heater=False, mixer=mixer)
    rig.plc.panel[Panel.LEASE_MS] = 60_000
    for word in order:  # a client that writes word by word, a scan between any two
        rig.plc.block[word] = new[word]
        assert rig.scan().working in {old, wanted}
    assert rig.plc.working == wanted


@given(level=st.floats(0, 5), pump=st.floats(0, 100), dt_s=st.floats(0, 1), mixer=st.integers(0, 3))
def test_the_fallback_is_the_modules_backup_policy(
    level: float, pump: float, dt_s: float, mixer: int
) -> None:
    after = fallback(Outputs(pump, heater=True, mixer=mixer), level, dt_s)
    wanted = min(100.0, pump + 10 * dt_s) if level >= 2.0 else max(0.0, pump - 10 * dt_s)
    assert after == Outputs(wanted, heater=False, mixer=mixer)


def test_a_frozen_image_stands_while_the_guard_goes_on() -> None:
    rig = Rig()
    rig.write(block(1))
    rig.plc.panel[Panel.FREEZE] = 1
    image = list(rig.plc.inputs)
    scan = rig.scan(3.5)
    assert rig.plc.inputs == image
    assert not scan.in_control
    rig.plc.panel[Panel.FREEZE] = 0
    rig.scan()
    assert rig.plc.inputs[0] > image[0]
    assert Status.FALLBACK in rig.status


def test_a_forced_sensor_stands_and_says_so_while_the_plcs_own_reading_lives() -> None:
    rig = Rig()
    before = rig.plc.inputs[7:10]
    rig.plc.panel[Panel.FORCE] = 0b001
    scan = rig.scan(2.0)
    assert rig.plc.inputs[7] == before[0]
    assert rig.plc.inputs[8:10] != before[1:]
    assert rig.plc.inputs[10] == 0b001
    assert scan.measured.level_m != before[0] / 1000


def test_presets_act_once() -> None:
    rig = Rig()
    rig.plc.panel[Panel.PRESET_LEVEL_MM] = 3550
    rig.plc.panel[Panel.PRESET_TEMPERATURE] = 6000
    scan = rig.scan()
    assert scan.state == TankState(3.55, 60.0)
    assert rig.plc.panel[Panel.PRESET_LEVEL_MM] == rig.plc.panel[Panel.PRESET_TEMPERATURE] == 0xFFFF


def test_liveness_counts_every_scan_and_wraps() -> None:
    rig = Rig()
    first = rig.plc.inputs[0]
    rig.scan(10 * SCAN_S)
    assert rig.plc.inputs[0] == first + 10
    rig.plc._number = 0xFFFF
    rig.scan()
    assert rig.plc.inputs[0] == 0


def test_a_late_scan_is_counted_and_moves_the_plant_by_its_true_time_up_to_a_bound() -> None:
    rig = Rig(level_m=1.0)
    before = rig.plc.working.pump_pct
    rig.clock.advance(0.5)
    assert rig.plc.scan(rig.clock.monotonic()).working.pump_pct == pytest.approx(before - 5.0)
    assert rig.plc.late_scans == 1
    rig.clock.advance(60.0)
    assert rig.plc.scan(rig.clock.monotonic()).working.pump_pct == pytest.approx(before - 15.0)
    assert Status.SCAN_FAULT in rig.status
    rig.scan()
    assert Status.SCAN_FAULT not in rig.status


def test_another_gateway_takes_over_by_its_grant() -> None:
    rig = Rig()
    rig.write(block(1))
    rig.plc.panel[Panel.OWNER], rig.plc.panel[Panel.EPOCH] = 2, 6
    assert rig.write(block(2, lease=2)).reject is Reject.OWNER
    scan = rig.write(block(3, owner=2, epoch=6, lease=3, pump=500))
    assert (scan.working.pump_pct, scan.sequence) == (50.0, 3)
    assert rig.plc.inputs[11:13] == [2, 6]


def test_a_step_limit_of_the_plc_refuses_a_larger_step_as_out_of_range() -> None:
    rig = Rig()
    rig.plc._pump_step_max_raw = 200
    before = round(rig.plc.working.pump_pct * 10)
    assert rig.write(block(1, pump=before + 210)).reject is Reject.RANGE
    assert rig.write(block(2, lease=2, pump=before + 150)).in_control


def test_a_leak_set_at_the_panel_runs_out_beside_the_disturbances() -> None:
    tight, leaking = Rig(), Rig()
    leaking.plc.panel[Panel.LEAK] = 20  # 2 mm/s
    apart = tight.scan(10.0).state.level_m - leaking.scan(10.0).state.level_m
    assert apart == pytest.approx(0.020, abs=1e-9)
    leaking.plc.panel[Panel.LEAK] = 0
    apart = tight.scan(5.0).state.level_m - leaking.scan(5.0).state.level_m
    assert apart == pytest.approx(0.020, abs=1e-9)
