"""The composition root: every part made once and handed what it needs. Nothing runs yet."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from gateway.config.lease import lease_sum
from gateway.config.model import GatewayConfig
from gateway.config.tags import tag_definitions
from gateway.core.clock import Clock
from gateway.core.decision import DecisionRecord, Mode, PointId, RequestClass
from gateway.core.health import PartHealth
from gateway.core.tag import TagId, TagValue
from gateway.core.tagstore import TagStore
from gateway.daemon.access import Access
from gateway.daemon.asks import Asks
from gateway.daemon.assumptions import Assumptions
from gateway.daemon.binding import Bindings
from gateway.daemon.broker import mqtt_settings, wide_integers
from gateway.daemon.certifying import Certifier
from gateway.daemon.coverage import Coverage
from gateway.daemon.engines import make_engines
from gateway.daemon.examining import make_background
from gateway.daemon.fieldside import field_side
from gateway.daemon.model_book import ModelBook
from gateway.daemon.models import Models
from gateway.daemon.modes import Modes
from gateway.daemon.northbound import northbound_services
from gateway.daemon.outlets import Outlets
from gateway.daemon.overrides import OverrideNews, OverrideVerbs
from gateway.daemon.overview import DaemonOverview
from gateway.daemon.points import point_settings
from gateway.daemon.proofs import ProofBook
from gateway.daemon.readback import ReadBack
from gateway.daemon.rearming import Rearming
from gateway.daemon.rechecking import Rechecking
from gateway.daemon.reporting import Reporter
from gateway.daemon.runtime import RunningRules, RuntimeVerbs, ToldModules, make_registry, module_state
from gateway.daemon.takeover import TakeOver
from gateway.daemon.views import point_state, tag_info, tag_state
from gateway.link.messages import FeedItem
from gateway.link.server import LinkServer, LinkStatistics
from gateway.observability.systemd import sd_notify, watchdog_interval_s
from gateway.observability.watchdog import Watchdog
from gateway.pipeline.decide import Decider
from gateway.pipeline.lane import Lane
from gateway.pipeline.point import Point
from gateway.pipeline.rules import RulesHolder, RulesInForce
from gateway.pipeline.writer import SetpointWriter
from gateway.protocols.modbus.handover import HandOver
from gateway.protocols.mqtt.bridge import MqttBridge
from gateway.solver.workers.pool import CheckerPool
from gateway.storage.audit import AuditLog
from gateway.storage.coverage import CoverageBook
from gateway.storage.state import DurableState


class House:
    """All parts of one daemon. The only place that names every adapter."""

    def __init__(self, config: GatewayConfig, clock: Clock) -> None:
        self.config, self.clock = config, clock
        state_dir = config.gateway.state_dir
        self.store = TagStore(tag_definitions(config), clock)
        self.audit = AuditLog(state_dir / "audit.sqlite", clock)
        self.state = DurableState(state_dir / "state.json")
        self.rules = RulesHolder()
        self.outlets = Outlets()
        self.certifier = Certifier(state_dir / "evidence")
        guided = any(point.guided for point in config.decision_point)
        nearest = any(point.repair == "nearest" for point in config.decision_point)
        self.pool = CheckerPool(config.solver.workers, clock, _holds(config), guided=guided, nearest=nearest)
        self.book = ModelBook(state_dir / "models.json")
        self.engines = make_engines(config, self.store, clock, self.book)
        self.field = field_side(config, self.store, clock)
        self.writer = SetpointWriter(
            clock=clock,
            store=self.store,
            rules=self.rules,
            link_session=self._link_session,
            writes_stopped=lambda: self.state.writes_stopped,
            not_live=self.field.not_live,
            overdue=self._overdue,
        )
        self.points = {PointId(p.id): self._point(p.id) for p in config.decision_point}
        self.read_back = ReadBack(self.points, self.store, self.writer, clock)
        self.take_over = TakeOver(
            self.points, {name: self._sink(name) for name in self.points}, self.read_back, clock
        )
        self.reporter = Reporter(
            clock=clock,
            definitions=self.store.definitions,
            audit=self.audit,
            state=self.state,
            publish_decision=self.outlets.decision,
            publish_alarm=self.outlets.alarm,
            publish_point=self._publish_point,
        )
        self.lanes = {name: self._lane(point) for name, point in self.points.items()}
        self.bindings = Bindings(config, self.store, self.state, self.audit, clock)
        self.modes = Modes(
            clock=clock,
            points=self.points,
            rules=self.rules,
            store=self.store,
            writer=self.writer,
            audit=self.audit,
            state=self.state,
            reporter=self.reporter,
            changed=self._publish_point,
            model_digest=self.model_digest,
            bindings=self.bindings,
            taken_over=self.take_over.why_not,
        )
        self.models = Models(
            served=self.engines,
            bundles_dir=config.gateway.bundles_dir,
            points=self.points,
            modes=self.modes,
            record=self.audit.append_event,
            raise_alarm=self.reporter.raise_alarm,
            book=self.book,
            clock=clock,
            may_keep_armed=config.gateway.model_change == "keep",
        )
        self.recheck = Rechecking(config.solver.recheck_share, self._sources, self.modes)
        self.assumptions = Assumptions(self.pool.rules, self.store.definitions, self.modes, self.audit)
        self.coverage = Coverage(
            CoverageBook(state_dir / "coverage.json"),
            self.pool.rules,
            lambda: self.rules.current.generation,
            clock,
            self.outlets.item,
        )
        self.rearm = Rearming(
            config=config,
            clock=clock,
            points=self.points,
            rules=self.rules,
            store=self.store,
            writer=self.writer,
            state=self.state,
            modes=self.modes,
            model_digest=self.model_digest,
            bindings=self.bindings,
            take_over=self.take_over,
            audit=self.audit,
        )
        outputs = tuple(tag for point in self.points.values() for tag in point.settings.outputs)
        proofs = ProofBook(state_dir / "proofs.json")
        self.running = RunningRules(
            self.pool,
            self.rules,
            proofs,
            outputs,
            self._rules_changed,
            self.certifier.keep,
            config.modules.proof_grace,
            max((sum(s for _, s in lease_sum(config, p)) for p in config.decision_point), default=0.0),
        )
        self.registry, self.watcher = make_registry(
            config,
            self.store,
            self.pool,
            self.running,
            clock,
            armed=self._armed,
            record=self.audit.append_event,
            on_change=self._modules_changed,
            on_folder=self._folder_changed,
        )
        self.comparing, self.examining = make_background(config, self.registry, self.running)
        self._told_modules = ToldModules()
        self.runtime = RuntimeVerbs(self.registry)
        self.overriding = OverrideVerbs(self.registry, config.modules.override_longest)
        self._override_news = OverrideNews(self.points.values(), self.reporter.raise_alarm, self.outlets.item)
        self.watchdog = Watchdog(sd_notify, clock, interval_s=watchdog_interval_s())
        self.access = Access(config)
        self.overview = self._overview()
        asks = Asks(
            clock=clock,
            access=self.access,
            lanes=self.lanes,
            store=self.store,
            modes=self.modes,
            bindings=self.bindings,
            runtime=self.runtime,
            overrides=self.overriding,
            overview=self.overview,
            reporter=self.reporter,
            coverage=self.coverage,
            audit=self.audit,
            models=self.models.verbs(),
        )
        socket_path = run_dir(config) / "o3.sock"
        self.link = LinkServer(socket_path, asks.answer, self._snapshot, self.access.allowed_uids)
        self.northbound = northbound_services(config, socket_path, clock, self.link.unread_s)
        settings = mqtt_settings(config)
        decide = partial(_decide_for_mqtt, asks)
        wide = wide_integers(self.store.definitions)
        self.mqtt = MqttBridge(settings, clock, decide, wide_integers=wide) if settings else None
        self.outlets.open(self.link, self.mqtt)
        self.store.observe(self._tag_changed)

    def model_digest(self, point: Point) -> str:
        """Digest of the model that proposes for a point."""
        return self.engines[point.settings.model].bundle.digest

    def publish_state(self) -> None:
        """The whole picture to everybody who looks."""
        self._override_news.tell(self.overriding.states())
        self.models.places.tell()
        self.outlets.item(self.overview.gateway())
        items: list[FeedItem] = [*self.overview.points(), *self.models.states()]
        for item in items:
            self.outlets.item(item)

    def _point(self, name: str) -> Point:
        configured = self.config.point(name)
        settings = point_settings(self.config, configured)
        proposer = self.engines[configured.model].for_point(
            configured.id, RequestClass[configured.priority].value
        )
        return Point(settings, proposer, self._sink(name))

    def _decided(self, point: Point, record: DecisionRecord, why: str) -> None:
        """Called twice at most: when the record is durable, and when its write has an outcome."""
        if record.write_outcome is None:
            self.recheck.look(point, record)
            self.assumptions.look(point, record)
            self.coverage.look(record)
        self.reporter.decided(point, record, why)

    def _sink(self, point: str) -> HandOver:
        _, device = self.config.device_of(self.config.point(point).outputs[0])
        return self.field.sinks[device.id]

    def _lane(self, point: Point) -> Lane:
        decider = Decider(
            clock=self.clock,
            store=self.store,
            checker=self.pool,
            audit=self.audit,
            rules=self.rules,
            link_session=self._link_session,
            certify=self.certifier.digest,
            overdue=self._overdue,
        )
        return Lane(
            point,
            decider,
            self.writer,
            clock=self.clock,
            report=self._decided,
            unrecorded=self.reporter.unrecorded,
        )

    def _sources(self, generation: int) -> tuple[str, ...] | None:
        """The module texts of a rule set that is still kept."""
        rules = self.pool.rules(generation)
        return None if rules is None else tuple(module.text for module in rules.modules)

    def _overdue(self, rules: RulesInForce) -> str:
        """Which override of a rule set is over, in words, or "" (S25)."""
        return self.registry.overrides.overdue(rules.overrides)

    def _link_session(self) -> int:
        return sum(channel.session for channel in self.field.channels.values())

    def _overview(self) -> DaemonOverview:
        counters: dict[str, Any] = {
            "tags": self.store.statistics,
            "solver": self.pool.statistics,
            "modules": lambda: dict(zip(("files_done", "files_to_do"), self.registry.progress, strict=True)),
            "audit": self.audit.statistics,
            "overrides": self.overriding.counts,
            "internal": self._link_statistics,
            "recheck": self.recheck.statistics,
            "assumptions": self.assumptions.statistics,
            "coverage": self.coverage.statistics,
            "mqtt": lambda: self.mqtt.statistics() if self.mqtt is not None else {},
            **{f"channel_{name}": link.statistics for name, link in self.field.channels.items()},
            **self.models.counters(),
            **{f"point_{name}": lane.statistics for name, lane in self.lanes.items()},
        }
        return DaemonOverview(
            gateway_id=self.config.gateway.id,
            config_digest=self.config.digest,
            clock=self.clock,
            lanes=self.lanes,
            writer=self.writer,
            rules=self.rules,
            writes_stopped=lambda: self.state.writes_stopped,
            parts=self._parts,
            counters=counters,
            inference=self.models.describe,
            models=self.models.states,
            cannot=self.modes.cannot,
        )

    def _parts(self) -> list[PartHealth]:
        parts = [self.audit.health(), self.watchdog.health(), self.assumptions.health()]
        for name, channel in self.field.channels.items():
            connected = channel.statistics().connected
            parts.append(PartHealth(f"channel {name}", connected, "ok" if connected else "not connected"))
        parts += self.models.health()
        missing = self.rules.current.unusable_for(())
        parts.append(PartHealth("rules", not missing, missing or "ok"))
        if self.mqtt is not None:
            parts.append(self.mqtt.health())
        for service in self.northbound:
            problem = service.statistics().problem
            parts.append(PartHealth(service.name, not problem, problem or "ok"))
        if self.state.problem:
            parts.append(PartHealth("state", ok=False, text=self.state.problem))
        return parts

    def _link_statistics(self) -> LinkStatistics:
        return self.link.statistics()

    def _snapshot(self) -> list[FeedItem]:
        items: list[FeedItem] = [self.overview.gateway()]
        items += [tag_info(d) for d in self.store.definitions.values()]
        items += [tag_state(tag, self.store[tag]) for tag in self.store.definitions]
        items += [*self.overview.points(), *self.models.states()]
        items += [module_state(status) for status in self.registry.statuses()]
        items += self.overriding.states()
        items += self.coverage.states()
        items += self.reporter.alarms.values()
        items += list(self.reporter.recent.values())[-100:]
        return items

    def _tag_changed(self, tag: TagId, value: TagValue) -> None:
        self.read_back.take(tag, value)
        self.outlets.tag(tag, value)

    def _publish_point(self, point: Point) -> None:
        in_control = self.writer.status_bit(point, point.settings.in_control_bit)
        state = point_state(point, in_control=in_control, cannot=self.modes.cannot(point))
        self.outlets.point(point.settings.id, state)

    def _rules_changed(self, rules: RulesInForce) -> None:
        """On activation the values in force are checked at once (S24): the next period is not waited for."""
        del rules
        for lane in self.lanes.values():
            lane.due_now()

    def _armed(self) -> bool:
        return any(point.mode is Mode.ARMED for point in self.points.values())

    def _folder_changed(self, there: bool) -> None:  # noqa: FBT001  # one alarm, on or off
        folder = self.config.gateway.constraints_dir
        self.reporter.raise_alarm(
            "folder:constraints",
            active=not there,
            acknowledged=False,
            cause=f"the watched folder {folder} is away, or cannot be read",
            consequence="the modules in force stay in force; no change of a file is seen",
            action="put back the folder, readable for us; unloading is a person's act: o3ctl runtime unload",
        )

    def _modules_changed(self) -> None:
        for state in self._told_modules.news(self.registry.statuses()):
            self.outlets.item(state)
        self.publish_state()
        self.examining.look()


def run_dir(config: GatewayConfig) -> Path:
    """Where sockets live: systemd's RuntimeDirectory, else a folder of the state directory."""
    given = os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    return Path(given) if given else config.gateway.state_dir / "run"


def _holds(config: GatewayConfig) -> list[tuple[float, float]]:
    """Hold and effect delay of every point: what the solver workers warm up for at load."""
    settings = [point_settings(config, point) for point in config.decision_point]
    return [(s.hold_s, s.effect_delay_s) for s in settings]


async def _decide_for_mqtt(
    asks: Asks, point: PointId, args: dict[str, Any], requested_by: str, deadline_ms: float
) -> Any:  # noqa: ANN401  # a view; the bridge encodes it
    return await asks.decide(point, {**args, "deadline_ms": deadline_ms}, requested_by)
