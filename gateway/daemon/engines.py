"""The models from configuration, each fast enough for the points it proposes for, or refused."""

from __future__ import annotations

from pathlib import Path

from gateway.config.model import DecisionPoint, GatewayConfig
from gateway.core.clock import Clock
from gateway.core.errors import ConfigError, InferenceError
from gateway.core.tagstore import TagStore
from gateway.inference.any_bundle import check_point
from gateway.inference.client import ModelEngine
from gateway.pipeline.decide import PROPOSE_SHARE


def make_engines(config: GatewayConfig, store: TagStore, clock: Clock) -> dict[str, ModelEngine]:
    """One engine a model that a decision point names; raises `ConfigError` naming the missing bundle.

    Raises `BundleError` for one that cannot be used, or not for these points.
    """
    made: dict[str, ModelEngine] = {}
    for point in config.decision_point:
        folder: Path = config.gateway.bundles_dir / point.model
        if not (folder / "bundle.json").is_file():
            known = ", ".join(sorted(p.parent.name for p in folder.parent.glob("*/bundle.json"))) or "none"
            why = f"{config.path}: decision point `{point.id}`: no bundle `{point.model}`"
            raise ConfigError((f"{why} in {folder.parent}; found: {known}",))
        if point.model not in made:
            slowest = slowest_ms(tightest(config, point.model))
            made[point.model] = ModelEngine(folder, store.definitions, clock=clock, slowest_ms=slowest)
        check_point(made[point.model].bundle, point.id, point.inputs, point.outputs)
    return made


def tightest(config: GatewayConfig, model: str) -> DecisionPoint:
    """The point with the shortest deadline among those a model proposes for."""
    return min((p for p in config.decision_point if p.model == model), key=lambda p: p.deadline)


def slowest_ms(point: DecisionPoint) -> float:
    """What a point's deadline leaves its model, in milliseconds."""
    return 1000 * point.deadline * PROPOSE_SHARE


async def start_engine(config: GatewayConfig, model: str, engine: ModelEngine) -> None:
    """Return when the model is ready; raises `ConfigError` naming the point it cannot serve, and why."""
    try:
        await engine.start()
    except InferenceError as exc:
        point = tightest(config, model)
        why = (
            f"{config.path}: decision point `{point.id}`: model `{model}` cannot be used: {exc} "
            f"(of the deadline of {1000 * point.deadline:g} ms the model has {slowest_ms(point):g} ms)"
        )
        raise ConfigError((why,)) from exc
