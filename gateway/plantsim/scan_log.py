"""The scan log: one CSV line per PLC scan, the plant's own evidence of what was in force when."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog

from gateway.plantsim.plc import Scan

COLUMNS = (
    "monotonic_s",
    "utc",
    "scan",
    "level_m",
    "temperature_c",
    "inflow_m3h",
    "level_measured_m",
    "inflow_measured_m3h",
    "temperature_measured_c",
    "pump_pct",
    "heater",
    "mixer",
    "in_control",
    "fallback",
    "sequence",
    "reject",
    "late",
)
_FLUSH_S = 1.0

log = structlog.get_logger().bind(component="plantsim")


class ScanLog:
    """Appends lines to `path`; at `limit_bytes` it becomes `path.1`, and at most `keep` old files stay.

    Whole lines reach the file at least once a second and on `close`. Each start writes the header.
    """

    def __init__(self, path: Path, *, limit_bytes: int = 32 * 1024 * 1024, keep: int = 3) -> None:
        self.lines_lost = 0
        self._path = path
        self._limit_bytes = limit_bytes
        self._keep = keep
        self._flushed_at: float | None = None
        path.parent.mkdir(parents=True, exist_ok=True)
        torn = path.exists() and not path.read_bytes().endswith(b"\n")  # a killed plant may leave half a line
        self._lines = [("\n" if torn else "") + ",".join(COLUMNS)]

    def append(self, scan: Scan, utc_ns: int) -> None:
        """Add one scan; flushes when a second has passed since the last flush."""
        self._lines.append(_line(scan, utc_ns))
        if self._flushed_at is None:
            self._flushed_at = scan.at_s
        if scan.at_s - self._flushed_at >= _FLUSH_S:
            self._flushed_at = scan.at_s
            self.flush()

    def flush(self) -> None:
        """Bring buffered lines to the file. A full disk costs lines, never a scan."""
        text = "".join(line + "\n" for line in self._lines).encode()
        count = len(self._lines)
        self._lines.clear()
        try:
            with self._path.open("ab") as file:
                file.write(text)
                size = file.tell()
            if size >= self._limit_bytes:
                self._rotate()
        except OSError as exc:
            self.lines_lost += count
            self._tell(exc)

    def _tell(self, reason: OSError) -> None:
        with contextlib.suppress(OSError):  # what we print may go to the same full disk
            log.warning(
                "scan_log_failed", path=str(self._path), reason=str(reason), lines_lost=self.lines_lost
            )

    def close(self) -> None:
        """Flush what is left."""
        self.flush()

    def _rotate(self) -> None:
        for number in range(self._keep, 1, -1):
            older = _rotated(self._path, number - 1)
            if older.exists():
                older.replace(_rotated(self._path, number))
        self._path.replace(_rotated(self._path, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedScan:
    """The part of a line that says what was true and what was in force. `run` counts starts of the plant."""

    run: int
    monotonic_s: float
    scan: int
    level_m: float
    temperature_c: float
    inflow_m3h: float
    pump_pct: float
    heater: bool
    mixer: int
    in_control: bool
    sequence: int
    reject: int


def read_scans(path: Path) -> Iterator[LoggedScan]:
    """Every scan of the log and of its rotated files, oldest first; an unfinished last line is left out."""
    number = 1
    while _rotated(path, number).exists():
        number += 1
    run = 0
    for file in (*(_rotated(path, older) for older in range(number - 1, 0, -1)), path):
        if not file.exists():  # rotated just now: the next line makes it anew
            continue
        with file.open(newline="") as text:
            for row in csv.reader(text):
                if row and row[0] == COLUMNS[0]:
                    run += 1
                elif len(row) == len(COLUMNS):
                    yield _logged(run, dict(zip(COLUMNS, row, strict=True)))


def _logged(run: int, row: dict[str, str]) -> LoggedScan:
    return LoggedScan(
        run=run,
        monotonic_s=float(row["monotonic_s"]),
        scan=int(row["scan"]),
        level_m=float(row["level_m"]),
        temperature_c=float(row["temperature_c"]),
        inflow_m3h=float(row["inflow_m3h"]),
        pump_pct=float(row["pump_pct"]),
        heater=row["heater"] == "1",
        mixer=int(row["mixer"]),
        in_control=row["in_control"] == "1",
        sequence=int(row["sequence"]),
        reject=int(row["reject"]),
    )


def _line(scan: Scan, utc_ns: int) -> str:
    utc = datetime.fromtimestamp(utc_ns / 1e9, UTC).isoformat(timespec="milliseconds")
    state, measured, working = scan.state, scan.measured, scan.working
    return (
        f"{scan.at_s:.6f},{utc},{scan.number},"
        f"{state.level_m:.6f},{state.temperature_c:.5f},{scan.inflow_m3h:.4f},"
        f"{measured.level_m:.5f},{measured.inflow_m3h:.4f},{measured.temperature_c:.4f},"
        f"{working.pump_pct:.3f},{int(working.heater)},{working.mixer},"
        f"{int(scan.in_control)},{int(not scan.in_control)},{scan.sequence},{scan.reject:d},{int(scan.late)}"
    )


def _rotated(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
