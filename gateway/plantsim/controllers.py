"""Two ways to run the tank once a second on what it measures: an expert who knows the limits, and a PI.

Both are pure: `decide(measurement, memory)` gives the next memory; its `outputs` are the decision. Both keep
the ramp of the pump, the heater's minimum times and "heater needs mixing". The PI counts these times from its
own decisions; the expert waits one second more, because a switch takes effect a little after it was decided.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

from gateway.plantsim.tank import TANK, Measurement, Outputs

LEVEL_SETPOINT_M = 2.0
TEMPERATURE_SETPOINT_C = 45.0
PERIOD_S = 1.0
PUMP_RAMP_PCT_S = 10.0
HEATER_MIN_ON_S = 30.0
HEATER_MIN_OFF_S = 60.0
EXPERT_ON_S = HEATER_MIN_ON_S + PERIOD_S
EXPERT_OFF_S = HEATER_MIN_OFF_S + PERIOD_S

_PUMP_PER_M3H = 1 / (3600.0 * TANK.area_m2 * TANK.pump_m_per_s_percent)  # % that carries off 1 m3/h: 2.222
_LEAST_LEVEL_FOR_PUMP_M = 0.6  # well above the 0.38 m a pump at 100 % needs to ramp down before it runs dry
_LEAST_LEVEL_FOR_HEATER_M = 1.0  # 31 s at the steepest fall (0.0067 m/s) still leave 0.79 m
_EMERGENCY_LEVEL_M = 0.6
_HIGHEST_TEMPERATURE_C = 60.0  # never heats above it: far from the 75 degC limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a controller keeps between seconds. `heater_held_s` starts at 0: an unknown past is the worst."""

    outputs: Outputs = field(default_factory=lambda: Outputs(mixer=1))
    heater_held_s: float = 0.0
    level_integral: float = 0.0  # %, the PI's; the expert needs none
    duty_integral: float = 0.0
    cycle_s: float = 0.0
    on_s: float = 0.0


class Controller(Protocol):
    """A rule asked once per `PERIOD_S`."""

    def decide(self, measurement: Measurement, memory: Memory) -> Memory:
        """The memory after this second; its `outputs` are to be in force until the next."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertController:
    """Level feedback plus inflow feed-forward on the pump; a heater switched where its next cycle is centred.

    The heater stays on for `EXPERT_ON_S` and off for `EXPERT_OFF_S` at least. Its only memory is what the
    plant shows anyway: the outputs in force and how long the heater has held.
    """

    level_gain: float = 200.0  # % per m
    smoothing: float = 0.25  # share of the wanted pump change made each second: the filter against noise

    def decide(self, measurement: Measurement, memory: Memory) -> Memory:
        """The memory after this second."""
        before = memory.outputs
        wanted = _PUMP_PER_M3H * measurement.inflow_m3h + self.level_gain * (
            measurement.level_m - LEVEL_SETPOINT_M
        )
        pump = before.pump_pct + self.smoothing * (_clip(wanted, 0.0, 100.0) - before.pump_pct)
        if measurement.level_m < _LEAST_LEVEL_FOR_PUMP_M:
            pump = 0.0
        wants = self._wants_heat(measurement, before.heater)
        heater = _permitted_heater(wants, measurement, memory, EXPERT_ON_S, EXPERT_OFF_S)
        outputs = Outputs(_ramped(before.pump_pct, pump), heater, _mixer_stage(measurement, heater=heater))
        return _after(memory, outputs)

    @staticmethod
    def _wants_heat(measurement: Measurement, heating: bool) -> bool:  # noqa: FBT001  # a state
        level = max(measurement.level_m, TANK.least_thermal_level_m)
        temperature = measurement.temperature_c
        feed = max(measurement.inflow_m3h, 0.0) / (3600.0 * TANK.area_m2)
        cooling = feed / level * (temperature - TANK.inflow_temperature_c)
        cooling += TANK.loss_per_s * (temperature - 20.0)
        heating_net = TANK.heating_k_m_per_s / level - cooling
        # The swing no rule can avoid is what the minimum times force; half of it goes on either side.
        half = max(cooling * EXPERT_OFF_S, heating_net * EXPERT_ON_S, 0.3) / 2
        if heating:
            return temperature < TEMPERATURE_SETPOINT_C + half
        return temperature <= TEMPERATURE_SETPOINT_C - half


@dataclass(frozen=True, slots=True, kw_only=True)
class PiController:
    """The usual loop: PI on level without feed-forward; PI on temperature, time-proportioned over a cycle.

    Gains by coordinate search of `objective` over seeds 100-104, 1800 s each: its optimum is flat and inside.
    """

    level_gain: float = 500.0  # % per m
    level_reset_s: float = 15.0
    duty_gain: float = 0.35  # per K
    duty_reset_s: float = 300.0
    cycle_s: float = 90.0

    def decide(self, measurement: Measurement, memory: Memory) -> Memory:
        """The memory after this second."""
        error = measurement.level_m - LEVEL_SETPOINT_M
        integral = memory.level_integral + self.level_gain * error * PERIOD_S / self.level_reset_s
        wanted = self.level_gain * error + integral
        if wanted != _clip(wanted, 0.0, 100.0):  # anti-windup: a saturated loop stops integrating
            integral = memory.level_integral
        pump = _clip(wanted, 0.0, 100.0) if measurement.level_m >= _LEAST_LEVEL_FOR_PUMP_M else 0.0
        cycled = self._cycle(measurement, memory)
        heater = _permitted_heater(cycled.cycle_s < cycled.on_s, measurement, memory)
        outputs = Outputs(
            _ramped(memory.outputs.pump_pct, pump), heater, _mixer_stage(measurement, heater=heater)
        )
        return _after(replace(cycled, level_integral=integral, cycle_s=cycled.cycle_s + PERIOD_S), outputs)

    def _cycle(self, measurement: Measurement, memory: Memory) -> Memory:
        """Memory with the duty of a new cycle where one begins."""
        if 0.0 < memory.cycle_s < self.cycle_s:
            return memory
        error = TEMPERATURE_SETPOINT_C - measurement.temperature_c
        integral = memory.duty_integral + self.duty_gain * error * self.cycle_s / self.duty_reset_s
        duty = self.duty_gain * error + integral
        if not 0.0 <= duty <= 1.0:
            integral = memory.duty_integral
        on_s = _clip(duty, 0.0, 1.0) * self.cycle_s
        if on_s < HEATER_MIN_ON_S / 2:
            on_s = 0.0
        elif on_s > self.cycle_s - HEATER_MIN_OFF_S / 2:
            on_s = self.cycle_s
        return replace(memory, duty_integral=integral, cycle_s=0.0, on_s=on_s)


def _permitted_heater(
    wanted: bool,  # noqa: FBT001  # a state
    measurement: Measurement,
    memory: Memory,
    least_on_s: float = HEATER_MIN_ON_S,
    least_off_s: float = HEATER_MIN_OFF_S,
) -> bool:
    """The heater after the minimum times and the limits; only the limits cut a minimum time short."""
    heating = memory.outputs.heater
    if measurement.level_m < _EMERGENCY_LEVEL_M or measurement.temperature_c > _HIGHEST_TEMPERATURE_C:
        return False
    if heating:
        return wanted or memory.heater_held_s < least_on_s
    return wanted and memory.heater_held_s >= least_off_s and measurement.level_m >= _LEAST_LEVEL_FOR_HEATER_M


def _mixer_stage(measurement: Measurement, *, heater: bool) -> int:
    """More liquid takes more mixing; a nearly empty tank none, unless heated."""
    if measurement.level_m >= 3.2:  # noqa: PLR2004  # m
        return 3
    if measurement.level_m >= 2.6:  # noqa: PLR2004  # m
        return 2
    return 1 if heater or measurement.level_m >= 0.5 else 0  # noqa: PLR2004  # m


def _ramped(before: float, wanted: float) -> float:
    """The pump one period later, rounded to the 0.1 % a register holds, the ramp kept."""
    reach = PUMP_RAMP_PCT_S * PERIOD_S
    return round(_clip(wanted, before - reach, before + reach), 1)


def _after(memory: Memory, outputs: Outputs) -> Memory:
    held = memory.heater_held_s + PERIOD_S if outputs.heater == memory.outputs.heater else PERIOD_S
    return replace(memory, outputs=outputs, heater_held_s=held)


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
