"""The soft PLC's logic, one `scan(now)` at a time, without I/O.

`packaging/plc/O3_Guard.st` is its twin for real PLCs.

Register map, addresses from 0. Unit 1, input registers: 0 liveness, 1 status, 2 sequence accepted,
3 reject code, 4 pump 0.1 %, 5 heater, 6 mixer, 7 level 0.001 m, 8 inflow 0.01 m3/h, 9 temperature 0.01 degC,
10 sensor flags, 11 owner in force, 12 epoch in force. Unit 1, holding registers 100-108: the hand-over block
(`Block`). Unit 2, holding registers 0-8: the local panel (`Panel`), a simulator's switches.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag

from gateway.plantsim.tank import Disturbances, Measurement, Outputs, Sensors, TankState, step

BLOCK_ADDRESS = 100
INPUT_COUNT = 13
NO_PRESET = 0xFFFF
PUMP_LIMIT_RAW = 1000  # 0.1 %
MIXER_LIMIT = 3
FALLBACK_RAMP_PCT_S = 10.0
FALLBACK_LEVEL_M = 2.0
LONGEST_STEP_S = 1.0  # a plant stopped for longer stood still for the rest
_SUBSTEP_S = 0.1
_LEAK_M_S = 0.0001  # of a count of the panel
_SCAN_FAULT_S = 0.5
_HALF_CIRCLE = 0x8000
_LOWEST_TEMPERATURE_C = 18.0  # coldest feed and coldest air: the tank cannot be colder
_HIGHEST_TEMPERATURE_C = 100.0


class Block(IntEnum):
    """Words of the hand-over block, as offsets from `BLOCK_ADDRESS`."""

    SEQUENCE = 0
    OWNER = 1
    EPOCH = 2
    LEASE = 3
    CONTROL_VALID = 4
    PUMP = 5
    HEATER = 6
    MIXER = 7
    CHECKSUM = 8


class Panel(IntEnum):
    """Words of the local panel."""

    REMOTE = 0
    FREEZE = 1
    FORCE = 2
    LEASE_MS = 3
    PRESET_LEVEL_MM = 4
    OWNER = 5
    EPOCH = 6
    PRESET_TEMPERATURE = 7  # 0.01 degC
    LEAK = 8  # 0.1 mm/s of level that run out, beside the disturbances


class Status(IntFlag):
    """Bits of the status register."""

    REMOTE = 1
    IN_CONTROL = 2
    FALLBACK = 4
    SCAN_FAULT = 8


class Force(IntFlag):
    """Sensor flags: a set bit means the published value is forced or failed."""

    LEVEL = 1
    INFLOW = 2
    TEMPERATURE = 4


class Reject(IntEnum):
    """Why the last new block was not taken."""

    NONE = 0
    CHECKSUM = 1
    OWNER = 2
    EPOCH = 3
    LOCAL = 4
    RANGE = 5
    CONTROL_CLEAR = 6
    LEASE_STOOD = 7  # in fallback only: the lease word did not move since it ran out
    NOT_LATER = 8  # an old block, come late or sent again (S20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What one scan saw and left in force."""

    number: int
    at_s: float
    state: TankState  # true
    inflow_m3h: float  # true
    measured: Measurement  # as the PLC's own transmitters say, not forced
    working: Outputs
    in_control: bool
    sequence: int
    reject: Reject
    late: bool


def block_checksum(words: Sequence[int]) -> int:
    """CRC-16/Modbus over the big-endian bytes of the words before the checksum."""
    crc = 0xFFFF
    for byte in struct.pack(f">{len(words)}H", *words):
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ 0xA001 if crc & 1 else crc >> 1
    return crc


def is_later(sequence: int, than: int) -> bool:
    """Ahead by less than half of the circle of 16 bits: a wrap is later, an old block is not."""
    return 0 < (sequence - than) & 0xFFFF < _HALF_CIRCLE


class SoftPlc:
    """Tank, transmitters and guard logic. Words are written between scans; only `scan` acts on them."""

    def __init__(
        self,
        *,
        seed: int,
        start: TankState | None = None,
        working: Outputs | None = None,
        scan_s: float = 0.02,
        pump_step_max_raw: int = PUMP_LIMIT_RAW,
    ) -> None:
        self.state = TankState() if start is None else start
        self.working = Outputs(pump_pct=40.0, mixer=1) if working is None else working
        self.block = [0, 0, 0, 0, 0, *_raw(self.working), 0]
        self.panel = [1, 0, 0, 3000, NO_PRESET, 1, 1, NO_PRESET, 0]
        self.inputs = [0] * INPUT_COUNT
        self.late_scans = 0
        self._scan_s = scan_s
        self._pump_step_max_raw = pump_step_max_raw  # of one block; the full range: no limit here
        self._disturbances = Disturbances(seed)
        self._sensors = Sensors(seed + 1_000_003)
        self._measured = self._sensors.measure(self.state, self._disturbances.now.inflow_m3h)
        self._published = self._measured
        self._number = 0
        self._scanned_at: float | None = None
        self._judged = tuple(self.block)
        self._accepted = 0
        self._reject = Reject.NONE
        self._in_control = False
        self._lease_word: int | None = None
        self._lease_at = 0.0
        self._publish(scan_fault=False)

    def scan(self, now: float) -> Scan:
        """Advance the plant to `now`, read it, run the guard once and publish; `now` never goes back."""
        elapsed = 0.0 if self._scanned_at is None else max(0.0, now - self._scanned_at)
        self._scanned_at = now
        self._number += 1
        late = elapsed > 2 * self._scan_s
        self.late_scans += late
        dt_s = min(elapsed, LONGEST_STEP_S)
        self._advance_plant(dt_s)
        self._preset()
        self._measured = self._sensors.measure(self.state, self._disturbances.now.inflow_m3h)
        self._guard(now, dt_s)
        self._publish(scan_fault=elapsed > _SCAN_FAULT_S)
        return Scan(
            number=self._number,
            at_s=now,
            state=self.state,
            inflow_m3h=self._disturbances.now.inflow_m3h,
            measured=self._measured,
            working=self.working,
            in_control=self._in_control,
            sequence=self._accepted,
            reject=self._reject,
            late=late,
        )

    def _advance_plant(self, dt_s: float) -> None:
        while dt_s > 0.0:
            part = min(dt_s, _SUBSTEP_S)
            dt_s -= part
            disturbance = self._disturbances.advance(part)
            leak = disturbance.leak_m_s - self.panel[Panel.LEAK] * _LEAK_M_S
            disturbance = replace(disturbance, leak_m_s=leak)
            pump, heater, mixer = self.working.pump_pct, self.working.heater, self.working.mixer
            self.state = step(self.state, pump, heater, mixer, part, disturbance)

    def _preset(self) -> None:
        level, temperature = self.panel[Panel.PRESET_LEVEL_MM], self.panel[Panel.PRESET_TEMPERATURE]
        if level != NO_PRESET:
            self.state = TankState(min(level / 1000, 5.0), self.state.temperature_c)
            self.panel[Panel.PRESET_LEVEL_MM] = NO_PRESET
        if temperature != NO_PRESET:
            bounded = min(max(temperature / 100, _LOWEST_TEMPERATURE_C), _HIGHEST_TEMPERATURE_C)
            self.state = TankState(self.state.level_m, bounded)
            self.panel[Panel.PRESET_TEMPERATURE] = NO_PRESET

    def _guard(self, now: float, dt_s: float) -> None:
        self._take_block(now)
        lease_alive = now - self._lease_at < self.panel[Panel.LEASE_MS] / 1000
        granted = self.panel[Panel.REMOTE] == 1 and self.block[Block.CONTROL_VALID] == 1
        self._in_control = self._in_control and lease_alive and granted
        if not self._in_control:
            self.working = fallback(self.working, self._measured.level_m, dt_s)

    def _take_block(self, now: float) -> None:
        """Judge the block once after each change of a word: a block refused once is never taken later."""
        block = tuple(self.block)
        if block == self._judged:
            return
        self._judged = block
        new = block[Block.SEQUENCE] != self._accepted
        moved = block[Block.LEASE] != self._lease_word
        reject = self._judge(block)
        if reject is Reject.NONE and new:
            if not is_later(block[Block.SEQUENCE], self._accepted):
                reject = Reject.NOT_LATER
            elif self._steps_too_far(block):
                reject = Reject.RANGE
            elif not self._in_control and not moved:
                reject = Reject.LEASE_STOOD
        if new:
            self._reject = reject
        if reject is not Reject.NONE or not (new or self._in_control):
            return
        if moved:
            self._lease_word, self._lease_at = block[Block.LEASE], now
        if new:
            self.working = Outputs(
                pump_pct=block[Block.PUMP] / 10, heater=block[Block.HEATER] == 1, mixer=block[Block.MIXER]
            )
            self._accepted = block[Block.SEQUENCE]
            self._in_control = True

    def _judge(self, block: tuple[int, ...]) -> Reject:
        in_range = (
            block[Block.PUMP] <= PUMP_LIMIT_RAW
            and block[Block.HEATER] <= 1
            and block[Block.MIXER] <= MIXER_LIMIT
        )
        reasons = (
            (block_checksum(block[: Block.CHECKSUM]) != block[Block.CHECKSUM], Reject.CHECKSUM),
            (block[Block.OWNER] != self.panel[Panel.OWNER], Reject.OWNER),
            (block[Block.EPOCH] != self.panel[Panel.EPOCH], Reject.EPOCH),
            (self.panel[Panel.REMOTE] != 1, Reject.LOCAL),
            (block[Block.CONTROL_VALID] != 1, Reject.CONTROL_CLEAR),
            (not in_range, Reject.RANGE),
        )
        return next((code for wrong, code in reasons if wrong), Reject.NONE)

    def _steps_too_far(self, block: tuple[int, ...]) -> bool:
        step_raw = abs(block[Block.PUMP] - self.working.pump_pct * 10)
        # Half a count: a working value between two counts, left by the fallback's ramp, is read rounded.
        return self._pump_step_max_raw < PUMP_LIMIT_RAW and step_raw > self._pump_step_max_raw + 0.5

    def _publish(self, *, scan_fault: bool) -> None:
        if self.panel[Panel.FREEZE]:
            return  # the image stands; the guard goes on behind it
        force = Force(self.panel[Panel.FORCE] & 0b111)
        here, held = self._measured, self._published
        self._published = shown = Measurement(
            level_m=held.level_m if Force.LEVEL in force else here.level_m,
            inflow_m3h=held.inflow_m3h if Force.INFLOW in force else here.inflow_m3h,
            temperature_c=held.temperature_c if Force.TEMPERATURE in force else here.temperature_c,
        )
        status = Status.REMOTE if self.panel[Panel.REMOTE] == 1 else Status(0)
        status |= Status.IN_CONTROL if self._in_control else Status.FALLBACK
        status |= Status.SCAN_FAULT if scan_fault else Status(0)
        self.inputs = [
            self._number & 0xFFFF,
            status.value,
            self._accepted,
            self._reject.value,
            *_raw(self.working),
            _int16(shown.level_m * 1000),
            _int16(shown.inflow_m3h * 100),
            _int16(shown.temperature_c * 100),
            force.value,
            self.panel[Panel.OWNER],
            self.panel[Panel.EPOCH],
        ]


def fallback(working: Outputs, level_m: float, dt_s: float) -> Outputs:
    """The PLC's policy, the module's `backup`: pump ramps to 100 or 0 by level, heater off, mixer holds."""
    reach = FALLBACK_RAMP_PCT_S * dt_s
    if level_m >= FALLBACK_LEVEL_M:
        pump = min(working.pump_pct + reach, 100.0)
    else:
        pump = max(working.pump_pct - reach, 0.0)
    return Outputs(pump_pct=pump, heater=False, mixer=working.mixer)


def _raw(outputs: Outputs) -> tuple[int, int, int]:
    return round(outputs.pump_pct * 10), int(outputs.heater), outputs.mixer


def _int16(value: float) -> int:
    return min(max(round(value), -0x8000), 0x7FFF) & 0xFFFF
