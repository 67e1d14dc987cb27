"""Answers to what the front ends and `o3ctl` ask over the internal port."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from fractions import Fraction
from typing import Any, Protocol

import msgspec
import structlog

from gateway.config.keys import parse_duration
from gateway.config.problems import nearest
from gateway.core.clock import Clock
from gateway.core.decision import DecisionId, Mode, PointId, Rejected
from gateway.core.errors import GatewayError
from gateway.core.tag import TagId
from gateway.core.tagstore import TagStore
from gateway.daemon import asked
from gateway.daemon.access import Access, Role
from gateway.daemon.asked import NotGivenError
from gateway.daemon.binding import Bindings
from gateway.daemon.decided import Decided
from gateway.daemon.modes import Modes
from gateway.daemon.reporting import Reporter
from gateway.daemon.views import decision_view, rejected_view, tag_info, tag_state
from gateway.link.messages import (
    DECISIONS_PAGE,
    Answer,
    Ask,
    ConstraintCoverage,
    GatewayState,
    ModelState,
    ModuleState,
    OverrideState,
    PointState,
)
from gateway.link.server import Peer
from gateway.pipeline.lane import Lane, Ordered
from gateway.solver.in_force.watcher import LIMIT_BYTES
from gateway.storage.audit import AuditLog

log = structlog.get_logger().bind(component="asks")

Verb = Callable[[dict[str, Any], str, Role], Awaitable[Any]]  # what was given, who asks, in which role

_HIGHEST_PRIORITY = 15


class Runtime(Protocol):
    """Constraint modules while the gateway runs. An act that cannot be done raises `GatewayError`."""

    def states(self) -> list[ModuleState]:
        """Every known module."""
        ...

    async def load(
        self, name: str, data: bytes, user: str, *, priority: int | None = None, shadow: bool = False
    ) -> None:
        """Put a module file in force, or in shadow."""
        ...

    async def unload(self, module: str, user: str) -> None:
        """Take a module out; a weakening waits for approval."""
        ...

    async def approve(self, module: str, user: str, change: str = "") -> None:
        """Put a waiting change in force."""
        ...

    async def roll_back(self, module: str, user: str) -> str:
        """Go back to the accepted revision before."""
        ...

    async def promote(self, module: str, user: str) -> None:
        """Put a shadow module in force."""
        ...


class Overrides(Protocol):
    """Constraints that two persons set aside (S25). An act that cannot be done raises `GatewayError`."""

    def states(self) -> list[OverrideState]:
        """What is asked for and what is in force."""
        ...

    async def request(self, name: str, reason: str, for_s: float, who: str) -> None:
        """Ask for one."""
        ...

    async def confirm(self, name: str, who: str) -> object:
        """Put one that another account asked for in force."""
        ...

    async def release(self, name: str, who: str, *, engineer: bool) -> None:
        """End one, or take a request back."""
        ...


class Overview(Protocol):
    """How things stand as a whole."""

    def gateway(self) -> GatewayState:
        """The daemon."""
        ...

    def points(self) -> list[PointState]:
        """Every decision point."""
        ...

    def models(self) -> list[ModelState]:
        """Every model."""
        ...


class Coverages(Protocol):
    """What the constraints in force have done so far."""

    def states(self) -> list[ConstraintCoverage]:
        """Each of them."""
        ...


class Asks:
    """One method a verb; a refusal is an answer with `error`, never an exception."""

    def __init__(
        self,
        *,
        clock: Clock,
        access: Access,
        lanes: Mapping[PointId, Lane],
        store: TagStore,
        modes: Modes,
        bindings: Bindings,
        runtime: Runtime,
        overrides: Overrides,
        overview: Overview,
        reporter: Reporter,
        coverage: Coverages,
        audit: AuditLog,
        models: Mapping[str, Verb],
    ) -> None:
        """`models` are the verbs over models, by name."""
        self._clock, self._access, self._lanes, self._store = clock, access, lanes, store
        self._modes, self._runtime, self._overview = modes, runtime, overview
        self._reporter, self._audit, self._bindings = reporter, audit, bindings
        self._overrides, self._coverage = overrides, coverage
        self._decided = Decided(reporter, audit, store.definitions)
        self._verbs: dict[str, Verb] = {
            **models,
            "status": self._status,
            "tags": self._tags,
            "decisions": self._decisions,
            "explain": self._explain,
            "decide": self._decide,
            "mode": self._mode,
            "ack": self._ack,
            "binding.print": self._binding_print,
            "binding.show": self._binding_show,
            "binding.sign": self._binding_sign,
            "stop-writes": self._stop_writes,
            "runtime.list": self._runtime_list,
            "runtime.coverage": self._runtime_coverage,
            "runtime.load": self._runtime_load,
            "runtime.unload": self._runtime_unload,
            "runtime.approve": self._runtime_approve,
            "runtime.rollback": self._runtime_rollback,
            "runtime.promote": self._runtime_promote,
            "override.list": self._override_list,
            "override.request": self._override_request,
            "override.confirm": self._override_confirm,
            "override.release": self._override_release,
        }

    async def answer(self, ask: Ask, peer: Peer) -> Answer:
        """The answer to one question."""
        who, role = self._access.who(ask, peer)
        disarming = ask.verb == "mode" and ask.args.get("mode") != "armed" and role >= Role.OPERATOR
        refusal = "" if disarming else self._access.refusal(ask, peer)
        if refusal:
            log.warning("ask_refused", verb=ask.verb, by=who, why=refusal)
            return Answer(id=ask.id, ok=False, error=refusal)
        try:
            _refuse_if(asked.refusal(ask.verb, ask.args))
            result = await self._verbs[ask.verb](ask.args, who, role)
        except GatewayError as exc:
            return Answer(id=ask.id, ok=False, error=str(exc))
        except (TypeError, ValueError, OverflowError) as exc:
            log.warning("ask_malformed", verb=ask.verb, by=who, problem=str(exc))
            return Answer(id=ask.id, ok=False, error=f"what `{ask.verb}` was given does not fit: {exc}")
        return Answer(id=ask.id, ok=True, result=msgspec.to_builtins(result))

    async def decide(self, point: str, args: dict[str, Any], who: str) -> Any:  # noqa: ANN401  # a view, for MQTT
        """`decide` for a front end inside this process that has authorised its requester.

        Raises `GatewayError` with what is wrong with the question.
        """
        if args.get("point", point) != point:
            problem = f"asked of decision point `{point}`, and says it means `{args['point']}`"
            raise NotGivenError(problem)
        _refuse_if(asked.refusal("decide", args))
        try:
            return await self._decide({**args, "point": point}, who, Role.OPERATOR)
        except (TypeError, ValueError, OverflowError) as exc:
            problem = f"what it was given does not fit: {exc}"
            raise NotGivenError(problem) from exc

    async def _status(self, _args: dict[str, Any], _who: str, _role: Role) -> object:
        return {
            "gateway": self._overview.gateway(),
            "points": self._overview.points(),
            "modules": self._runtime.states(),
            "models": self._overview.models(),
            "overrides": self._overrides.states(),
            "alarms": list(self._reporter.alarms.values()),
        }

    async def _tags(self, _args: dict[str, Any], _who: str, _role: Role) -> object:
        return [
            {"info": tag_info(definition), "state": tag_state(tag, self._store[tag])}
            for tag, definition in self._store.definitions.items()
        ]

    async def _decisions(self, args: dict[str, Any], _who: str, _role: Role) -> object:
        limit = max(1, min(int(args.get("limit") or 50), DECISIONS_PAGE))
        point = str(args.get("point") or "")
        if point:
            self._lane(args)  # a point nobody configured has no decisions to show
        return await self._decided.page(limit, point, str(args.get("before") or ""))

    async def _explain(self, args: dict[str, Any], _who: str, _role: Role) -> object:
        wanted = DecisionId(str(args.get("id", "")))
        if (view := self._reporter.recent.get(wanted)) is not None:
            return view
        audited = await self._audit.get(wanted)
        if audited is None:
            problem = f"no decision `{wanted}` is on record; list them with `o3ctl decisions`"
            raise NotGivenError(problem)
        return decision_view(audited.record, audited.write_reason, self._store.definitions)

    async def _decide(self, args: dict[str, Any], who: str, _role: Role) -> object:
        lane = self._lane(args)
        deadline_ms = float(args.get("deadline_ms") or 0.0)
        if not 0.0 <= deadline_ms < math.inf:
            problem = f"a deadline of {deadline_ms:g} ms has no meaning"
            raise NotGivenError(problem)
        ordered = Ordered(
            requested_by=who,
            request_class=asked.request_class(args.get("class")),
            deadline_s=deadline_ms / 1000 if deadline_ms else None,
            what_if=asked.numbers(args.get("what_if"), lane.point.settings.inputs, "input"),
            proposal=self._wish(args.get("proposal"), lane.point.settings.outputs),
        )
        record = await lane.request(ordered)
        if isinstance(record, Rejected):
            settings = lane.point.settings
            view = rejected_view(settings.id, who, record.reason, self._clock.utc_ns(), lane.point.mode.value)
            await self._audit.append_event("rejected", who, {"point": settings.id, "reason": record.reason})
            return view
        return decision_view(record, "", self._store.definitions)

    async def _mode(self, args: dict[str, Any], who: str, _role: Role) -> object:
        wanted = str(args.get("mode", ""))
        if wanted not in {m.value for m in Mode}:
            problem = f"`{wanted}` is not a mode; known: off, shadow, advisory, armed"
            raise NotGivenError(problem)
        _refuse_if(await self._modes.set_mode(self._lane(args).point, Mode(wanted), who))
        return {"mode": wanted}

    async def _ack(self, args: dict[str, Any], who: str, role: Role) -> object:
        source = str(args.get("source", ""))
        if role < Role.ENGINEER and (why := self._modes.holds(source)):  # it lets the point be armed again
            problem = (
                f"acknowledging `{source}` needs the role engineer; `{who}` is {role.name.lower()}: {why}"
            )
            raise NotGivenError(problem)
        _refuse_if(await self._modes.acknowledge(source, who))
        return {}

    async def _stop_writes(self, args: dict[str, Any], who: str, role: Role) -> object:
        resume = asked.flag(args, "resume")
        if resume and role < Role.ENGINEER:
            problem = f"resuming writes needs the role engineer; `{who}` is {role.name.lower()}"
            raise NotGivenError(problem)
        _refuse_if(await self._modes.stop_writes(who, resume=resume))
        return {"writes_stopped": not resume}

    async def _binding_print(self, args: dict[str, Any], _who: str, _role: Role) -> object:
        return self._bindings.draft(self._lane(args).point.settings.id)

    async def _binding_show(self, args: dict[str, Any], _who: str, _role: Role) -> object:
        return self._bindings.standing(self._lane(args).point.settings.id)

    async def _binding_sign(self, args: dict[str, Any], who: str, _role: Role) -> object:
        point = self._lane(args).point
        text, file = str(args.get("text") or ""), str(args.get("file") or "binding.csv")
        name = str(args.get("by") or "")
        _refuse_if(await self._bindings.sign(point.settings.id, text, file, name, who))
        return self._bindings.standing(point.settings.id)

    async def _runtime_list(self, _args: dict[str, Any], _who: str, _role: Role) -> object:
        return self._runtime.states()

    async def _runtime_coverage(self, _args: dict[str, Any], _who: str, _role: Role) -> object:
        return self._coverage.states()

    async def _runtime_load(self, args: dict[str, Any], who: str, _role: Role) -> object:
        given, priority = args.get("data"), args.get("priority")
        data = given.encode() if isinstance(given, str) else given
        if not isinstance(data, bytes):
            problem = "give the module file's bytes as `data`, and its file name as `name`"
            raise NotGivenError(problem)
        if len(data) > LIMIT_BYTES:
            problem = f"a module has at most {LIMIT_BYTES} bytes, this one {len(data)}"
            raise NotGivenError(problem)
        level = None if priority is None else int(priority)
        if level is not None and not 0 <= level <= _HIGHEST_PRIORITY:
            problem = f"a priority is a whole number from 0 to {_HIGHEST_PRIORITY}, not {level}"
            raise NotGivenError(problem)
        name, shadow = str(args.get("name", "")), asked.flag(args, "shadow")
        await self._runtime.load(name, data, who, priority=level, shadow=shadow)
        return self._runtime.states()

    async def _runtime_unload(self, args: dict[str, Any], who: str, _role: Role) -> object:
        await self._runtime.unload(str(args.get("module", "")), who)
        return self._runtime.states()

    async def _runtime_approve(self, args: dict[str, Any], who: str, _role: Role) -> object:
        await self._runtime.approve(str(args.get("module", "")), who, str(args.get("change", "")))
        return self._runtime.states()

    async def _runtime_rollback(self, args: dict[str, Any], who: str, _role: Role) -> object:
        await self._runtime.roll_back(str(args.get("module") or ""), who)
        return self._runtime.states()

    async def _runtime_promote(self, args: dict[str, Any], who: str, _role: Role) -> object:
        await self._runtime.promote(str(args.get("module", "")), who)
        return self._runtime.states()

    async def _override_list(self, _args: dict[str, Any], _who: str, _role: Role) -> object:
        return self._overrides.states()

    async def _override_request(self, args: dict[str, Any], who: str, _role: Role) -> object:
        name, reason = str(args.get("constraint") or ""), str(args.get("reason") or "").strip()
        await self._overrides.request(name, reason, parse_duration(args.get("for")), who)
        return self._overrides.states()

    async def _override_confirm(self, args: dict[str, Any], who: str, _role: Role) -> object:
        await self._overrides.confirm(str(args.get("constraint") or ""), who)
        return self._overrides.states()

    async def _override_release(self, args: dict[str, Any], who: str, role: Role) -> object:
        name = str(args.get("constraint") or "")
        await self._overrides.release(name, who, engineer=role >= Role.ENGINEER)
        return self._overrides.states()

    def _lane(self, args: dict[str, Any]) -> Lane:
        wanted = PointId(str(args.get("point", "")))
        if wanted not in self._lanes:
            known = ", ".join(f"`{p}`" for p in self._lanes)
            problem = f"unknown decision point `{wanted}`{nearest(wanted, self._lanes)}; known: {known}"
            raise NotGivenError(problem)
        return self._lanes[wanted]

    def _wish(self, given: object, outputs: tuple[TagId, ...]) -> dict[TagId, Fraction] | None:
        """Wanted setpoints of every output, each one a register can hold; None when none were given."""
        wanted = asked.numbers(given, outputs, "output")
        if wanted is None:
            return None
        missing = [tag for tag in outputs if tag not in wanted]
        if missing:
            problem = f"a wish names every output of the point; missing: {', '.join(missing)}"
            raise NotGivenError(problem)
        for tag, value in wanted.items():
            self._store.definitions[tag].counts(value)  # raises what a register cannot hold
        return wanted


def _refuse_if(why: str) -> None:
    if why:
        raise NotGivenError(why)
