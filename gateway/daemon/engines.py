"""The models from configuration, each fast enough for the points it proposes for, or refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gateway.config.model import DecisionPoint, GatewayConfig
from gateway.core.clock import Clock
from gateway.core.errors import ConfigError, InferenceError
from gateway.core.tagstore import TagStore
from gateway.daemon.model_book import ModelBook
from gateway.inference.bundle.any_bundle import check_point
from gateway.inference.client.model_engine import ModelEngine
from gateway.inference.client.served import ServedModel
from gateway.pipeline.decide import PROPOSE_SHARE
from gateway.solver.in_force.watcher import is_gone


def make_engines(
    config: GatewayConfig, store: TagStore, clock: Clock, book: ModelBook
) -> dict[str, ServedModel]:
    """Every model that a decision point names, served by the bundle that the book says, else by its own.

    Raises `ConfigError` naming the missing bundle, `BundleError` where none of them can be used.
    """
    made: dict[str, ServedModel] = {}
    for point in config.decision_point:
        folder: Path = config.gateway.bundles_dir / point.model
        if is_gone(folder / "bundle.json"):  # what is there and cannot be read is told when it is loaded
            known = ", ".join(sorted(p.parent.name for p in folder.parent.glob("*/bundle.json"))) or "none"
            why = f"{config.path}: decision point `{point.id}`: no bundle `{point.model}`"
            raise ConfigError((f"{why} in {folder.parent}; found: {known}",))
        if point.model not in made:
            folders = [config.gateway.bundles_dir / name for name in book.names(point.model)]
            made[point.model] = ServedModel(point.model, folders, _maker(config, point.model, store, clock))
    return made


def _maker(
    config: GatewayConfig, model: str, store: TagStore, clock: Clock
) -> Callable[[Path, Callable[[], None]], ModelEngine]:
    """Makes engines that can serve every point of a model, or raises `BundleError`."""
    slowest = slowest_ms(tightest(config, model))
    points = [point for point in config.decision_point if point.model == model]

    def make(folder: Path, on_lost: Callable[[], None]) -> ModelEngine:
        made = ModelEngine(
            folder,
            store.definitions,
            config.inference.provider,
            require_cuda=config.inference.require_cuda,
            clock=clock,
            slowest_ms=slowest,
            points=len(points),
            max_wait_s=config.inference.max_wait,
            on_lost=on_lost,
        )
        for point in points:
            check_point(made.bundle, point.id, point.inputs, point.outputs)
        return made

    return make


def tightest(config: GatewayConfig, model: str) -> DecisionPoint:
    """The point with the shortest deadline among those a model proposes for."""
    return min((p for p in config.decision_point if p.model == model), key=lambda p: p.deadline)


def slowest_ms(point: DecisionPoint) -> float:
    """What a point's deadline leaves its model, in milliseconds."""
    return 1000 * point.deadline * PROPOSE_SHARE


async def start_engine(config: GatewayConfig, model: str, engine: ServedModel) -> None:
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
