"""How the daemon stands as a whole: one frozen picture for status, health, metrics and nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from importlib.metadata import version

from gateway.core.clock import Clock
from gateway.core.decision import PointId
from gateway.core.health import PartHealth
from gateway.daemon.views import point_state
from gateway.link.messages import GatewayState, ModelState, PointState
from gateway.pipeline.lane import Lane
from gateway.pipeline.point import Point
from gateway.pipeline.rules import RulesHolder
from gateway.pipeline.writer import SetpointWriter


class DaemonOverview:
    """Reads everybody's statistics; holds nothing but the start time."""

    def __init__(
        self,
        *,
        gateway_id: str,
        config_digest: str,
        clock: Clock,
        lanes: Mapping[PointId, Lane],
        writer: SetpointWriter,
        rules: RulesHolder,
        writes_stopped: Callable[[], bool],
        parts: Callable[[], list[PartHealth]],
        counters: Mapping[str, Callable[[], object]],
        inference: Callable[[], dict[str, str]],
        models: Callable[[], list[ModelState]],
        cannot: Callable[[Point], str],
    ) -> None:
        self._id, self._config_digest, self._lanes = gateway_id, config_digest, lanes
        self._writer, self._rules, self._writes_stopped = writer, rules, writes_stopped
        self._parts, self._counters, self._inference = parts, counters, inference
        self._cannot, self._models = cannot, models
        self._started_ns = clock.utc_ns()
        self._version = version("o3-gateway")

    def gateway(self) -> GatewayState:
        """The daemon now."""
        parts = self._parts()
        return GatewayState(
            id=self._id,
            version=self._version,
            started_ns=self._started_ns,
            healthy=all(part.ok for part in parts),
            parts={part.part: "ok" if part.ok else part.text for part in parts},
            generation=self._rules.current.generation,
            rule_set_digest=self._rules.current.digest,
            counters=self._flat(),
            writes_stopped=self._writes_stopped(),
            config_digest=self._config_digest,
            inference=self._inference(),
        )

    def points(self) -> list[PointState]:
        """Every decision point now."""
        return [
            point_state(
                lane.point,
                in_control=self._writer.status_bit(lane.point, lane.point.settings.in_control_bit),
                cannot=self._cannot(lane.point),
            )
            for lane in self._lanes.values()
        ]

    def models(self) -> list[ModelState]:
        """Every model now."""
        return self._models()

    def _flat(self) -> dict[str, int]:
        """Every counter of every part as `part_name`; only whole numbers."""
        flat: dict[str, int] = {}
        for part, read in self._counters.items():
            flat |= {f"{part}_{name}": number for name, number in _numbers(read())}
        return flat


def _numbers(statistics: object) -> list[tuple[str, int]]:
    if isinstance(statistics, Mapping):
        pairs = list(statistics.items())
    elif dataclasses.is_dataclass(statistics):
        pairs = [(f.name, getattr(statistics, f.name)) for f in dataclasses.fields(statistics)]
    else:
        pairs = []
    found: list[tuple[str, int]] = []
    for name, value in pairs:
        if isinstance(value, bool | int):
            found.append((str(name), int(value)))
        elif dataclasses.is_dataclass(value) or isinstance(value, Mapping):
            found += [(f"{name}_{inner}", number) for inner, number in _numbers(value)]
    return found
