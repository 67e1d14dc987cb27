"""Reads a scan log and says where the plant itself, not its instruments, broke a constraint of the tank.

Shares nothing with the solver: the numbers are the limits of the plant, with no sensor error taken off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gateway.plantsim.scan_log import LoggedScan, read_scans

HIGHEST_LEVEL_M = 3.6
LEAST_LEVEL_PUMP_M = 0.3
LEAST_LEVEL_HEATER_M = 0.5
HIGHEST_TEMPERATURE_C = 75.0
RAMP_WINDOW_S = 1.0
RAMP_PCT = 20.0  # 10 % in any second, and the whole step of one decision inside it
_RAMP_SLACK_PCT = 0.3  # one scan of the fallback ramp and the rounding of a register


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One scan at which one constraint did not hold; `constraint` is its id in the buffer-tank module."""

    constraint: str
    scan: LoggedScan
    found: str


def violations(scan_log_path: Path | str) -> list[Violation]:
    """Every violation of every scan in the log and its rotated files, in time order."""
    return list(judge(read_scans(Path(scan_log_path))))


def judge(scans: Iterable[LoggedScan]) -> Iterator[Violation]:
    """Every violation of the scans given in time order."""
    ramp = _RampWindow()
    for scan in scans:
        for constraint, broken, found in (
            ("no-overflow", scan.level_m > HIGHEST_LEVEL_M, f"level {scan.level_m:.4f} m"),
            (
                "no-dry-run",
                scan.pump_pct > 0 and scan.level_m < LEAST_LEVEL_PUMP_M,
                f"pump {scan.pump_pct:.1f} % at level {scan.level_m:.4f} m",
            ),
            (
                "no-dry-fire",
                scan.heater and scan.level_m < LEAST_LEVEL_HEATER_M,
                f"heater on at level {scan.level_m:.4f} m",
            ),
            (
                "heater-needs-mixing",
                scan.heater and scan.mixer < 1,
                f"heater on with mixer stage {scan.mixer}",
            ),
            (
                "max-temperature",
                scan.temperature_c > HIGHEST_TEMPERATURE_C,
                f"temperature {scan.temperature_c:.3f} degC",
            ),
        ):
            if broken:
                yield Violation(constraint=constraint, scan=scan, found=found)
        moved = ramp.add(scan)
        if moved > RAMP_PCT + _RAMP_SLACK_PCT:
            found = f"pump moved {moved:.1f} % within {RAMP_WINDOW_S:g} s"
            yield Violation(constraint="pump-ramp", scan=scan, found=found)


class _RampWindow:
    """The largest change of the pump up to the newest scan inside a sliding window; a restart begins anew."""

    def __init__(self) -> None:
        self._run: int | None = None
        self._highest: deque[tuple[float, float]] = deque()  # falling values, times rising
        self._lowest: deque[tuple[float, float]] = deque()  # rising values, times rising

    def add(self, scan: LoggedScan) -> float:
        if scan.run != self._run:
            self._run = scan.run
            self._highest.clear()
            self._lowest.clear()
        now, pump = scan.monotonic_s, scan.pump_pct
        for window in (self._highest, self._lowest):
            while window and window[0][0] < now - RAMP_WINDOW_S:
                window.popleft()
        while self._highest and self._highest[-1][1] <= pump:
            self._highest.pop()
        while self._lowest and self._lowest[-1][1] >= pump:
            self._lowest.pop()
        self._highest.append((now, pump))
        self._lowest.append((now, pump))
        return max(self._highest[0][1] - pump, pump - self._lowest[0][1])
