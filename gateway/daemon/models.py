"""Models while the gateway runs: another bundle takes over, goes, or the one before comes back.

The model is no part of any proof: every proposal is checked, whoever made it. But a point was armed with one
model (S23), and armed is a person's word. So it leaves armed when its model changes, unless the house rules
say `model_change = "keep"` and the person who loads says so too (S27); both are on record.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol

import msgspec
import structlog

from gateway.config.problems import nearest
from gateway.core.clock import Clock
from gateway.core.decision import Mode, PointId
from gateway.core.errors import GatewayError, InferenceError
from gateway.core.health import PartHealth
from gateway.daemon.access import Role
from gateway.daemon.asked import flag
from gateway.daemon.asks import Verb
from gateway.daemon.memories import Memories
from gateway.daemon.model_book import ModelBook, ServedBundle
from gateway.daemon.places import Places, RaiseAlarm
from gateway.inference.client.model_engine import ModelEngine
from gateway.inference.client.place import Place
from gateway.inference.client.served import ServedModel
from gateway.link.messages import ModelState
from gateway.pipeline.point import Point

log = structlog.get_logger().bind(component="models")

LOST_TIMES, LOST_WITHIN_S = 3, 60.0  # then the bundle before comes back by itself
_GATEWAY = "gateway"

Record = Callable[[str, str, Mapping[str, str]], Awaitable[None]]


class ArmedPoints(Protocol):
    """What changing a model may do to a point's mode."""

    async def set_mode(self, point: Point, mode: Mode, who: str) -> str:
        """Change a mode."""
        ...

    async def armed_under(self, point: Point) -> None:
        """Remember what an armed point is armed with now."""
        ...


class Models:
    """People's verbs over the models, and the one thing the gateway does by itself: going back."""

    def __init__(
        self,
        *,
        served: Mapping[str, ServedModel],
        bundles_dir: Path,
        points: Mapping[PointId, Point],
        modes: ArmedPoints,
        record: Record,
        raise_alarm: RaiseAlarm,
        book: ModelBook,
        clock: Clock,
        may_keep_armed: bool,
    ) -> None:
        self._served, self._bundles_dir, self._points, self._modes = served, bundles_dir, points, modes
        self._record, self._raise_alarm, self._book, self._clock = record, raise_alarm, book, clock
        self._may_keep_armed = may_keep_armed
        self._losses: dict[str, deque[float]] = {name: deque(maxlen=LOST_TIMES) for name in served}
        self._last_refusal: dict[str, str] = {}
        self.places = Places({n: partial(_place, m) for n, m in served.items()}, raise_alarm)
        self.memories = Memories(served, clock)
        self._going_back: asyncio.Queue[tuple[str, str]] = asyncio.Queue()  # a model, and whose losses
        for name, model in served.items():
            model.on_lost = partial(self._lost, name)

    def verbs(self) -> dict[str, Verb]:
        """What may be asked over the internal port."""
        return {
            "model.list": self._ask_list,
            "model.load": self._ask_load,
            "model.unload": self._ask_unload,
            "model.rollback": self._ask_roll_back,
        }

    def states(self) -> list[ModelState]:
        """Every model of the configuration."""
        return [self._state(name) for name in self._served]

    async def load(self, model: str, bundle: str, who: str, *, keep_armed: bool = False) -> None:
        """Let a bundle take over; raises `GatewayError` in words, and then the one in service stays."""
        name = self._named(model)
        held = self._in_service(name)
        fresh = partial(_next, before=held)
        await self._change(name, self._folder(bundle), "load", who, fresh, keep_armed=keep_armed)

    async def unload(self, model: str, who: str, *, keep_armed: bool = False) -> None:
        """Let the bundle that the configuration names serve again; raises `GatewayError`."""
        name = self._named(model)
        if self._served[name].bundle.directory.name == name:
            _refuse(f"model `{name}` is served by the bundle its configuration names: nothing is loaded")
        fresh = partial(_next, before=self._in_service(name))
        await self._change(name, self._folder(name), "unload", who, fresh, keep_armed=keep_armed)

    async def roll_back(self, model: str, who: str, *, keep_armed: bool = False) -> None:
        """Let the bundle before serve again, and forget it as the one before; raises `GatewayError`."""
        name = self._named(model)
        held = self._book.of(name)
        if held is None or not held.previous:
            _refuse(f"no bundle served model `{name}` before: there is nothing to go back to")
        folder = self._folder(held.previous)
        fresh = partial(_back, digest=held.previous_digest)
        await self._change(name, folder, "rollback", who, fresh, keep_armed=keep_armed)

    async def tell_passed_over(self) -> None:
        """After a start: on record that a bundle which should serve does not."""
        for name, model in self._served.items():
            if model.passed_over:
                facts = {"model": name, "serves": self._in_service(name).bundle}
                await self._record(
                    "model-passed-over", _GATEWAY, facts | {"why": "; ".join(model.passed_over)}
                )

    async def run(self) -> None:
        """Goes back by itself where a bundle's worker is lost again and again; never ends by itself."""
        while True:
            name, lost = await self._going_back.get()
            held = self._book.of(name)
            if held is None or not held.previous or held.bundle != lost:
                continue
            cause = (
                f"the worker of bundle `{held.bundle}` was lost {LOST_TIMES} times within {LOST_WITHIN_S:g} s"
            )
            try:
                await self.roll_back(name, _GATEWAY, keep_armed=self._may_keep_armed)
                consequence = f"model `{name}` is served by `{held.previous}` again"
            except GatewayError as exc:
                consequence = f"`{held.bundle}` still serves: {exc}"
            log.error("model_rolled_back_by_itself", model=name, cause=cause, consequence=consequence)
            action = f"find out why `{held.bundle}` ends; `o3ctl model list` shows what serves"
            self._raise_alarm(
                f"model:{name}",
                active=True,
                acknowledged=False,
                cause=cause,
                consequence=consequence,
                action=action,
            )

    def health(self) -> list[PartHealth]:
        """Each model, and the file that says what serves."""
        parts = [
            PartHealth(f"model {name}", model.ready, "ok" if model.ready else "its worker is being replaced")
            for name, model in self._served.items()
        ]
        parts += self.places.health()
        if problem := self._book.problem:
            parts.append(PartHealth("models", ok=False, text=problem))
        for name, model in self._served.items():
            if model.passed_over:
                parts.append(PartHealth(f"bundle of {name}", ok=False, text="; ".join(model.passed_over)))
        return parts

    def describe(self) -> dict[str, str]:
        """The truth about every engine; of a single one without its name."""
        told: dict[str, str] = {}
        for name, model in self._served.items():
            before = "" if len(self._served) == 1 else f"{name}."
            held = self._book.of(name)
            facts = model.describe() | {"previous": held.previous if held is not None else ""}
            told |= {before + key: value for key, value in facts.items()}
        return told

    def counters(self) -> dict[str, Callable[[], object]]:
        """Counters of every engine and of its swaps."""
        return {f"engine_{name}": model.statistics for name, model in self._served.items()} | {
            f"model_{name}": model.swap_statistics for name, model in self._served.items()
        }

    async def _change(
        self,
        name: str,
        folder: Path,
        act: str,
        who: str,
        fresh_entry: Callable[[ModelEngine], ServedBundle],
        *,
        keep_armed: bool,
    ) -> None:
        model, before, in_book = self._served[name], self._in_service(name), self._book.of(name)
        self._refuse_now(name, keep_armed=keep_armed)

        async def agreed(fresh: ModelEngine) -> None:
            entry = msgspec.structs.replace(fresh_entry(fresh), by=who, at_utc_ns=self._clock.utc_ns())
            await self._told(name, act, before, entry, keep_armed=keep_armed)
            await self._book.keep(name, entry)
            while not keep_armed and (armed := self._armed(name)):
                await self._modes.set_mode(armed[0], Mode.SHADOW, who)

        taken = False
        try:
            await model.take(folder, agreed)
            taken = True
        except GatewayError as exc:
            facts = {"model": name, "act": act, "to": folder.name, "why": str(exc), "serves": before.bundle}
            await self._record("model-refused", who, facts)
            self._last_refusal[name] = f"`{folder.name}`: {exc}"
            message = f"`{folder.name}` did not take over: {exc}; `{before.bundle}` still serves `{name}`"
            raise InferenceError(message) from exc
        finally:
            if not taken and self._book.of(name) != in_book:  # also where whoever asked has left
                await self._book.keep(name, in_book)
        self._losses[name].clear()
        self._last_refusal.pop(name, None)
        log.info("model_changed", model=name, act=act, bundle=folder.name, was=before.bundle, by=who)
        for point in self._armed(name):
            await self._modes.armed_under(point)

    def _refuse_now(self, name: str, *, keep_armed: bool) -> None:
        if self._served[name].swapping:
            _refuse(f"another bundle is on its way to serve model `{name}`: wait until it does")
        if keep_armed and not self._may_keep_armed:
            _refuse(
                "the house rules do not let a point stay armed when its model changes: set "
                '`model_change = "keep"` under [gateway], or leave out --keep-armed and arm the point again'
            )

    async def _told(
        self, name: str, act: str, before: ServedBundle, entry: ServedBundle, *, keep_armed: bool
    ) -> None:
        """The act on record, durably, before it counts."""
        facts = {
            "model": name,
            "act": act,
            "from": before.bundle,
            "from_digest": before.digest,
            "to": entry.bundle,
            "to_digest": entry.digest,
            "armed": ", ".join(point.settings.id for point in self._armed(name)),
            "armed_stays": str(keep_armed).lower(),
        }
        await self._record("model", entry.by, facts)

    def _lost(self, name: str) -> None:
        losses = self._losses[name]
        losses.append(self._clock.monotonic())
        if len(losses) == LOST_TIMES and losses[-1] - losses[0] <= LOST_WITHIN_S:
            losses.clear()
            self._going_back.put_nowait((name, self._in_service(name).bundle))

    def _armed(self, model: str) -> list[Point]:
        return [p for p in self._points.values() if p.settings.model == model and p.mode is Mode.ARMED]

    def _in_service(self, name: str) -> ServedBundle:
        bundle = self._served[name].bundle
        return ServedBundle(bundle=bundle.directory.name, digest=bundle.digest)

    def _named(self, model: str) -> str:
        if not model and len(self._served) == 1:
            return next(iter(self._served))
        if model not in self._served:
            known = ", ".join(f"`{name}`" for name in self._served)
            _refuse(f"no model `{model}`{nearest(model, self._served)} is configured; known: {known}")
        return model

    def _folder(self, bundle: str) -> Path:
        known = sorted(found.parent.name for found in self._bundles_dir.glob("*/bundle.json"))
        if bundle not in known:
            listed = ", ".join(f"`{name}`" for name in known) or "none"
            _refuse(f"no bundle `{bundle}`{nearest(bundle, known)} in {self._bundles_dir}; found: {listed}")
        return self._bundles_dir / bundle

    def _state(self, name: str) -> ModelState:
        model, held = self._served[name], self._book.of(name)
        memory, counted_ns = self.memories.of(name)
        bundle, counted, place = model.bundle, model.swap_statistics(), model.engine.place
        return ModelState(
            id=name,
            bundle=bundle.directory.name,
            revision=f"{bundle.manifest.id}/{bundle.manifest.revision}",
            digest=bundle.digest,
            state="swapping" if model.swapping else ("ready" if model.ready else "replaced"),
            previous=held.previous if held is not None else "",
            by=held.by if held is not None else "",
            at_ns=held.at_utc_ns if held is not None else 0,
            points=[point.settings.id for point in self._points.values() if point.settings.model == name],
            problem="; ".join(model.passed_over),
            swaps=counted.swaps,
            refused=counted.swaps_failed,
            last_refusal=self._last_refusal.get(name, ""),
            costs_ms=model.engine.costs_ms(),
            provider=place.actual if place is not None else "",
            asked_provider=place.asked if place is not None else "",
            memory=memory,
            counted_ns=counted_ns,
            fell_back=self.places.fell_back(name),
        )

    async def _ask_list(self, _args: dict[str, Any], _who: str, _role: Role) -> object:
        return self.states()

    async def _ask_load(self, args: dict[str, Any], who: str, _role: Role) -> object:
        bundle, keep = str(args.get("bundle") or ""), flag(args, "keep_armed")
        await self.load(str(args.get("model") or ""), bundle, who, keep_armed=keep)
        return self.states()

    async def _ask_unload(self, args: dict[str, Any], who: str, _role: Role) -> object:
        await self.unload(str(args.get("model") or ""), who, keep_armed=flag(args, "keep_armed"))
        return self.states()

    async def _ask_roll_back(self, args: dict[str, Any], who: str, _role: Role) -> object:
        await self.roll_back(str(args.get("model") or ""), who, keep_armed=flag(args, "keep_armed"))
        return self.states()


def _place(model: ServedModel) -> Place | None:
    return model.engine.place


def _next(fresh: ModelEngine, before: ServedBundle) -> ServedBundle:
    """What serves from now on; what served until now can be gone back to."""
    return ServedBundle(
        bundle=fresh.bundle.directory.name,
        digest=fresh.bundle.digest,
        previous=before.bundle,
        previous_digest=before.digest,
    )


def _back(fresh: ModelEngine, digest: str) -> ServedBundle:
    """What served before and serves again, if it is still the same; nothing is left to go back to."""
    name = fresh.bundle.directory.name
    if fresh.bundle.digest != digest:
        _refuse(f"bundle `{name}` changed on disk since it served: load it by name if that is meant")
    return ServedBundle(bundle=name, digest=digest)


def _refuse(why: str) -> NoReturn:
    raise InferenceError(why)
