"""The mirror: what main says over the Feed, as OPC UA nodes. It never holds the truth."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

import structlog
from asyncua import ua

from gateway.core.clock import Clock
from gateway.link.messages import (
    Alarm,
    ConstraintCoverage,
    DecisionView,
    FeedBatch,
    FeedItem,
    GatewayState,
    ModelState,
    ModuleState,
    OverrideState,
    PointState,
    TagInfo,
    TagState,
)
from gateway.protocols.opcua import points
from gateway.protocols.opcua.events import Events
from gateway.protocols.opcua.requests import Requests
from gateway.protocols.opcua.residuals import ResidualNodes
from gateway.protocols.opcua.server import GatewayInternalServer
from gateway.protocols.opcua.space import OBJECTS, Space, moment, node_id
from gateway.protocols.opcua.tags import TagFolders, TagNode, data_value
from gateway.protocols.opcua.wire import Foreign, sample, standard

log = structlog.get_logger().bind(component="opcua")

_SEEN_DECISIONS = 10_000
_ITEMS_A_TURN = 100
_SERVICE_LEVEL = standard(ua.ObjectIds.Server_ServiceLevel)
HEALTHY, DEGRADED, NO_DATA = 255, 150, 1  # OPC 10000-4, 6.6.2.4.2
_GATEWAY = "Diagnostics"


class Mirror:
    """Applies Feed batches to the address space; marks everything Bad when the link is lost."""

    def __init__(self, iserver: GatewayInternalServer, requests: Requests, clock: Clock) -> None:
        self._iserver, self._requests, self._clock = iserver, requests, clock
        self._space = Space(iserver.aspace, iserver.node_mgt_service)
        self._started_ns = clock.utc_ns()
        self._tags: dict[str, TagNode] = {}
        self._decisions: dict[str, DecisionView] = {}
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._alarms: dict[str, Alarm] = {}
        self.unknown_tags = 0
        self.synchronised = False
        self._build()

    def _build(self) -> None:
        space = self._space
        root = space.object("O3Gateway", OBJECTS, "O3Gateway", description="O3 edge gateway")
        self._folders = TagFolders(space, space.folder("Tags", root, "Tags"))
        self._points = self._objects(root, "DecisionPoints", (*points.POINT_FIELDS, *points.DECISION_FIELDS))
        self._residuals = ResidualNodes(space)
        self._modules = self._objects(root, "ConstraintModules", points.MODULE_FIELDS)
        self._models = self._objects(root, "Models", points.MODEL_FIELDS)
        self._overrides = self._objects(root, "Overrides", points.OVERRIDE_FIELDS)
        self._coverage = self._objects(root, "Coverage", points.COVERAGE_FIELDS)
        self._standing = self._objects(root, "Alarms", points.ALARM_FIELDS)
        self._gateway = points.Objects(space, _GATEWAY, root, points.GATEWAY_FIELDS)
        self._gateway.attach(_GATEWAY, space.object(_GATEWAY, root, _GATEWAY))
        self._events = Events(space, self._iserver)
        for name, offer in self._requests.modules(node_id("ConstraintModules")).items():
            self._offer(f"Methods/ConstraintModules/{name}", name, offer)  # a module may be called Load
        for name, offer in self._requests.models(node_id("Models")).items():
            self._offer(f"Methods/Models/{name}", name, offer)
        for name, offer in self._requests.overrides(node_id("Overrides")).items():
            self._offer(f"Methods/Overrides/{name}", name, offer)
        self._offer("Alarms/Acknowledge", "Acknowledge", self._requests.acknowledge(node_id("Alarms")))

    def _objects(self, root: ua.NodeId, folder: str, fields: tuple[points.Field, ...]) -> points.Objects:
        return points.Objects(self._space, folder, self._space.folder(folder, root, folder), fields)

    def identify(self, properties: dict[str, str]) -> None:
        """Nameplate properties of the gateway's object (OPC 10000-100, 4.5.2, as plain properties)."""
        for name, text in properties.items():
            value = ua.Variant(text, ua.VariantType.String)
            string = standard(ua.ObjectIds.String)
            self._space.property(
                f"O3Gateway/{name}", node_id("O3Gateway"), name, value, type_id=string, namespace=1
            )

    async def apply(self, batch: FeedBatch) -> None:
        """Take one batch; a snapshot also removes what is no longer there."""
        if batch.snapshot:
            await self._drop_all_but(batch.items)
        for number, item in enumerate(batch.items):
            await self._apply_one(item)
            if number % _ITEMS_A_TURN == _ITEMS_A_TURN - 1:
                await asyncio.sleep(0)  # clients get their turn inside a large snapshot
        if batch.snapshot:
            self.synchronised = True
            log.info("mirror_synchronised", tags=len(self._tags), points=len(self._points.names))

    async def lost(self) -> None:
        """The link is gone: no value is good any more."""
        self.synchronised = False
        now = self._clock.utc_ns()
        code = ua.StatusCodes.BadNoCommunication
        for tag in self._tags.values():
            state = TagState(id=tag.info.id, value=None, status=code, source_ts_ns=now, server_ts_ns=now)
            await self._space.put(tag.node, data_value(tag, state))
        for objects in (*self._listed(), self._gateway):
            for name in objects.names:
                await objects.put_status(name, code, now)
        await self._residuals.lost(code, now)
        await self._gateway.put(_GATEWAY, {"LinkUp": False, "Healthy": False}, now)
        await self._service_level(NO_DATA)

    async def _apply_one(self, item: FeedItem) -> None:  # noqa: C901  one case for each kind of item
        now = self._clock.utc_ns()
        match item:
            case TagState():
                tag = self._tags.get(item.id)
                if tag is None:
                    self.unknown_tags += 1
                else:
                    await self._space.put(tag.node, data_value(tag, item))
            case DecisionView():
                await self._decision(item)
            case PointState():
                await self._point(item, now)
            case TagInfo():
                await self._tag(item)
            case ModuleState():
                await self._module(item, now)
            case ModelState():
                self._models.add(item.id)
                await self._models.put(item.id, points.model_values(item), now)
            case OverrideState():
                await self._override(item, now)
            case ConstraintCoverage():
                await self._covered(item, now)
            case Alarm():
                await self._alarm(item, now)
            case GatewayState():
                await self._gateway.put(_GATEWAY, points.gateway_values(item), now)
                await self._service_level(HEALTHY if item.healthy else DEGRADED)

    async def _module(self, state: ModuleState, now: int) -> None:
        if state.state == "gone":
            self._withdraw(self._modules.key(state.id))
            await self._modules.remove(state.id)
            return
        self._modules.add(state.id)
        await self._modules.put(state.id, points.module_values(state), now)

    async def _override(self, state: OverrideState, now: int) -> None:
        if state.state == "ended":
            await self._overrides.remove(state.id)
            return
        self._overrides.add(state.id)
        await self._overrides.put(state.id, points.override_values(state), now)

    async def _covered(self, state: ConstraintCoverage, now: int) -> None:
        if state.gone:
            await self._coverage.remove(state.id)
            return
        self._coverage.add(state.id)
        await self._coverage.put(state.id, points.coverage_values(state), now)

    async def _tag(self, info: TagInfo) -> None:
        known = self._tags.get(info.id)
        if known is not None and known.info == info:
            return
        if known is not None:
            await self._folders.remove(known)
        self._tags[info.id] = self._folders.add(info)

    async def _point(self, state: PointState, now: int) -> None:
        name = state.id
        new = self._points.add(name)
        if new:
            self._offer_point(name)
        await self._points.put(name, points.point_values(state), now)
        await self._residuals.put(state, self._points.key(name), now)
        last = self._decisions.get(name)
        if last is not None:
            await self._points.put(name, points.decision_values(last), last.at_ns)
        elif new or not state.last_decision:
            waiting = ua.StatusCodes.BadWaitingForInitialData
            await self._points.put_status(name, waiting, now, points.DECISION_FIELDS)

    async def _decision(self, view: DecisionView) -> None:
        if view.id and view.point in self._points.names:
            newest = self._decisions.get(view.point)
            if newest is None or view.at_ns >= newest.at_ns:
                self._decisions[view.point] = view
                await self._points.put(view.point, points.decision_values(view), view.at_ns)
        if view.at_ns < self._started_ns or (view.id and view.id in self._seen):
            return
        if view.id:
            self._seen[view.id] = None
            if len(self._seen) > _SEEN_DECISIONS:
                self._seen.popitem(last=False)
        await self._events.verdict(view, node_id(self._points.key(view.point)))

    async def _alarm(self, alarm: Alarm, now: int) -> None:
        self._standing.add(alarm.source)
        await self._standing.put(alarm.source, points.alarm_values(alarm), now)
        if self._alarms.get(alarm.source) != alarm:
            self._alarms[alarm.source] = alarm
            await self._events.alarm(alarm, node_id(self._standing.key(alarm.source)), now)

    async def _drop_all_but(self, items: list[FeedItem]) -> None:
        kept: dict[type[Any], set[str]] = {
            TagInfo: set(),
            PointState: set(),
            ModuleState: set(),
            ModelState: set(),
            OverrideState: set(),
            ConstraintCoverage: set(),
            Alarm: set(),
        }
        for item in items:
            if isinstance(item, Alarm):
                kept[Alarm].add(item.source)
            elif type(item) in kept:
                kept[type(item)].add(item.id)
        for tag in [t for name, t in self._tags.items() if name not in kept[TagInfo]]:
            del self._tags[tag.info.id]
            await self._folders.remove(tag)
        for objects, kind in self._listed().items():
            for name in objects.names - kept[kind]:
                self._withdraw(objects.key(name))
                self._decisions.pop(name, None)
                self._alarms.pop(name, None)
                if objects is self._points:
                    self._residuals.forget(name)
                await objects.remove(name)

    def _listed(self) -> dict[points.Objects, type[Any]]:
        """Every folder of objects, and what its objects tell."""
        return {
            self._points: PointState,
            self._modules: ModuleState,
            self._models: ModelState,
            self._overrides: OverrideState,
            self._coverage: ConstraintCoverage,
            self._standing: Alarm,
        }

    async def _service_level(self, level: int) -> None:
        value = sample(ua.Variant(level, ua.VariantType.Byte), server=moment(self._clock.utc_ns()))
        await self._space.put(_SERVICE_LEVEL, value)

    def _offer_point(self, name: str) -> None:
        node, base = node_id(self._points.key(name)), self._points.key(name)
        self._offer(f"{base}/RequestDecision", "RequestDecision", self._requests.decision(node, name))
        self._offer(f"{base}/RequestSetpoints", "RequestSetpoints", self._requests.setpoints(node, name))
        self._offer(f"{base}/SetMode", "SetMode", self._requests.mode(node, name))

    def _offer(self, key: str, browse_name: str, offer: Foreign) -> None:
        method, description = offer
        self._iserver.methods[self._space.method(key, browse_name, method, description)] = method

    def _withdraw(self, base: str) -> None:
        for node in [n for n in self._iserver.methods if str(n.Identifier).startswith(f"{base}/")]:
            del self._iserver.methods[node]
