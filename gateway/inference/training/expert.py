"""The experts the bundles are cloned from. Both are `gateway.plantsim.controllers.Controller`s."""

from __future__ import annotations

from gateway.plantsim.controllers import Controller, ExpertController, Memory
from gateway.plantsim.tank import Measurement, Outputs

_BRIM_M = 3.9  # far beyond the limit of 3.6 m


class RecklessController:
    """Wants the tank full and hot: no pump, heater on, mixer off; at the brim the pump in full at once."""

    def decide(self, measurement: Measurement, memory: Memory) -> Memory:
        """The memory after this second."""
        pump = 100.0 if measurement.level_m > _BRIM_M else 0.0
        return Memory(outputs=Outputs(pump, heater=True, mixer=0), heater_held_s=memory.heater_held_s + 1.0)


EXPERTS: dict[str, Controller] = {"constraint-aware": ExpertController(), "reckless": RecklessController()}
