"""The judge finds what went wrong in the scan log, and nothing where nothing did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.core.clock import FakeClock
from gateway.plantsim.controllers import ExpertController, Memory
from gateway.plantsim.judge import judge, violations
from gateway.plantsim.plc import SoftPlc, block_checksum
from gateway.plantsim.scan_log import LoggedScan, ScanLog, read_scans
from gateway.plantsim.tank import Outputs

QUIET = LoggedScan(
    run=1,
    monotonic_s=0.0,
    scan=1,
    level_m=2.0,
    temperature_c=45.0,
    inflow_m3h=12.0,
    pump_pct=30.0,
    heater=True,
    mixer=1,
    in_control=True,
    sequence=1,
    reject=0,
)


def drive(path: Path, seconds: int, *, reckless: bool) -> None:
    """Run the soft PLC on a false clock, with a block each second from the expert or from the reckless."""
    clock, plc, log = FakeClock(), SoftPlc(seed=4), ScanLog(path)
    memory = Memory(outputs=plc.working)
    for sequence in range(1, seconds + 1):
        for _ in range(50):
            clock.advance(0.02)
            scan = plc.scan(clock.monotonic())
            log.append(scan, clock.utc_ns())
        memory = ExpertController().decide(scan.measured, memory)
        outputs = Outputs(100.0 * (sequence % 2), heater=True, mixer=0) if reckless else memory.outputs
        raw = (round(outputs.pump_pct * 10), int(outputs.heater), outputs.mixer)
        words = (sequence, 1, 1, sequence, 1, *raw)
        plc.block[:] = (*words, block_checksum(words))
    log.close()


def test_an_expert_on_the_plc_breaks_nothing(tmp_path: Path) -> None:
    drive(tmp_path / "scan.csv", 120, reckless=False)
    assert violations(tmp_path / "scan.csv") == []
    assert sum(scan.in_control for scan in read_scans(tmp_path / "scan.csv")) > 118 * 50


def test_one_who_asks_for_everything_is_found_out(tmp_path: Path) -> None:
    drive(tmp_path / "scan.csv", 10, reckless=True)
    found = {violation.constraint for violation in violations(tmp_path / "scan.csv")}
    assert found == {"heater-needs-mixing", "pump-ramp"}


@pytest.mark.parametrize(
    ("scan", "constraint"),
    [
        (replace(QUIET, level_m=3.6001), "no-overflow"),
        (replace(QUIET, level_m=0.2999, heater=False), "no-dry-run"),
        (replace(QUIET, level_m=0.4999), "no-dry-fire"),
        (replace(QUIET, mixer=0), "heater-needs-mixing"),
        (replace(QUIET, temperature_c=75.01), "max-temperature"),
    ],
)
def test_each_constraint_is_judged_at_its_limit(scan: LoggedScan, constraint: str) -> None:
    assert [violation.constraint for violation in judge([scan])] == [constraint]


@pytest.mark.parametrize(
    "scan",
    [
        QUIET,
        replace(QUIET, level_m=3.6),
        replace(QUIET, level_m=0.3, heater=False),
        replace(QUIET, level_m=0.1, pump_pct=0.0, heater=False),
        replace(QUIET, level_m=0.5),
        replace(QUIET, temperature_c=75.0),
    ],
)
def test_a_scan_at_the_limit_is_no_violation(scan: LoggedScan) -> None:
    assert list(judge([scan])) == []


@pytest.mark.parametrize(
    ("pumps", "count"),
    [([30, 40, 50], 0), ([30, 40, 51], 1), ([50, 30, 29], 1), ([10, 50], 1)],
)
def test_a_ramp_is_judged_over_a_second_and_one_step(pumps: list[float], count: int) -> None:
    scans = [replace(QUIET, monotonic_s=0.4 * n, pump_pct=pump) for n, pump in enumerate(pumps)]
    assert [v.constraint for v in judge(scans)] == ["pump-ramp"] * count


def test_a_slow_ramp_and_a_restart_are_no_ramp() -> None:
    slow = [replace(QUIET, monotonic_s=1.1 * n, pump_pct=20.0 * n) for n in range(5)]
    assert list(judge(slow)) == []
    restarted = [QUIET, replace(QUIET, run=2, pump_pct=90.0)]
    assert list(judge(restarted)) == []


def test_rotation_bounds_the_log_and_keeps_the_order(tmp_path: Path) -> None:
    path = tmp_path / "scan.csv"
    clock, plc = FakeClock(), SoftPlc(seed=1)
    log = ScanLog(path, limit_bytes=20_000, keep=2)
    for _ in range(1_500):
        clock.advance(0.02)
        log.append(plc.scan(clock.monotonic()), clock.utc_ns())
    log.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["scan.csv", "scan.csv.1", "scan.csv.2"]
    numbers = [scan.scan for scan in read_scans(path)]
    assert numbers == list(range(numbers[0], 1_501))
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 90_000


def test_half_a_line_left_by_a_killed_plant_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "scan.csv"
    drive(path, 2, reckless=False)
    with path.open("ab") as file:
        file.write(b"1000.1,2026-01-01T00")
    drive(path, 2, reckless=False)
    assert [scan.run for scan in read_scans(path)] == [1] * 100 + [2] * 100


def test_a_log_that_cannot_be_written_costs_lines_never_a_scan(tmp_path: Path) -> None:
    path = tmp_path / "scan.csv"
    log = ScanLog(path)
    path.mkdir()
    plc = SoftPlc(seed=1)
    log.append(plc.scan(1.0), 0)
    log.close()
    assert log.lines_lost == 2
