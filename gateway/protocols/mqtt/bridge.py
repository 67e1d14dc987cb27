"""The gateway seen over MQTT: tags and verdicts outwards, decision requests inwards.

What waits while the broker is away is held in memory only (see `backlog`): it is bounded, its losses are
counted, and it does not outlive the process.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import msgspec
import structlog

from gateway.core.clock import Clock
from gateway.core.decision import PointId
from gateway.core.errors import GatewayError, LinkBrokenError, LinkError
from gateway.core.health import PartHealth
from gateway.core.tag import TagId, TagValue
from gateway.protocols.mqtt import wire
from gateway.protocols.mqtt.backlog import Backlog, BacklogStatistics, Message
from gateway.protocols.mqtt.link import MqttLink
from gateway.protocols.mqtt.requests import Arrival, DecideRequest, RequestDesk, RequestRefused
from gateway.protocols.mqtt.settings import MqttSettings

log = structlog.get_logger().bind(component="mqtt")

_CLOSE_GRACE_S = 1.0
_ANSWER_CAPACITY = 1000  # answers waiting for the window; a further one is lost and counted

Body = Mapping[str, Any] | msgspec.Struct | bytes
Decide = Callable[[PointId, dict[str, Any], str, float], Awaitable[Body]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttStatistics:
    """Counters since start, and whether a broker is there now."""

    connected: bool
    connects: int
    losses: int
    connect_failures: int
    published: int  # acknowledged by the broker, never merely sent
    publish_refused: int
    requests: int
    requests_rejected: int
    requests_in_flight: int
    answers_lost: int
    backlog: BacklogStatistics


class MqttBridge:
    """Publishes what it is given and asks `decide` what it is asked. Never blocks its caller.

    `decide(point, args, requested_by, deadline_ms)` is awaited to its end: it keeps the deadline itself,
    and raises `GatewayError` with what cannot be meant.
    All methods belong to the loop that runs `run`.
    """

    def __init__(
        self,
        settings: MqttSettings,
        clock: Clock,
        decide: Decide | None = None,
        *,
        wide_integers: frozenset[TagId] = frozenset(),
    ) -> None:
        self._settings, self._clock, self._decide = settings, clock, decide
        self._wide = wide_integers
        self._backlog = Backlog(
            topic_capacity=settings.topic_capacity,
            event_capacity=settings.event_capacity,
            event_limit_bytes=settings.event_limit_bytes,
        )
        accept = settings.accept_requests and decide is not None
        self._desk = RequestDesk(
            settings.prefix, accept=accept, default_deadline_ms=settings.default_deadline_ms
        )
        self._status = wire.status_topic(settings.prefix)
        self._link: MqttLink | None = None
        self._unacknowledged: dict[int, Message] = {}
        self._asked: asyncio.TaskGroup | None = None
        self._answers: deque[Message] = deque()
        self._wake = asyncio.Event()
        self._problem = "not started"
        self._connects = self._losses = self._failures = self._published = self._refused = 0
        self._requests = self._rejected = self._in_flight = self._answers_lost = 0
        self._delays = self._backoff()

    # -- outwards

    def publish_tag(self, tag: TagId, value: TagValue) -> None:
        """Offer a tag's newest value; an unsent predecessor gives way to it."""
        payload = wire.tag_payload(value, wide=tag in self._wide)
        topic = wire.tag_topic(self._settings.prefix, tag)
        self._offer(Message(topic, payload, retain=self._settings.retain_tags))

    def publish_verdict(self, point: PointId, body: Body) -> None:
        """Offer a verdict event: never coalesced, in order, the oldest dropped and counted when full."""
        topic = wire.point_topic(self._settings.prefix, point, "verdict")
        self._offer(Message(topic, wire.json_payload(body), retain=False, event=True))

    def publish_point_state(self, point: PointId, body: Body) -> None:
        """Offer a decision point's state, retained."""
        self.publish_state(f"points/{wire.level(point)}/state", body)

    def publish_state(self, suffix: str, body: Body, *, retain: bool = True) -> None:
        """Offer a state under `<prefix>/<suffix>`; the newest replaces an unsent one."""
        self._offer(Message(f"{self._settings.prefix}/{suffix}", wire.json_payload(body), retain=retain))

    def statistics(self) -> MqttStatistics:
        """Counters since start."""
        return MqttStatistics(
            connected=self._link is not None,
            connects=self._connects,
            losses=self._losses,
            connect_failures=self._failures,
            published=self._published,
            publish_refused=self._refused,
            requests=self._requests,
            requests_rejected=self._rejected,
            requests_in_flight=self._in_flight,
            answers_lost=self._answers_lost,
            backlog=self._backlog.statistics(),
        )

    def health(self) -> PartHealth:
        """Whether a broker is there, else why not."""
        return PartHealth("mqtt", not self._problem, self._problem or "ok")

    # -- the link

    async def run(self) -> NoReturn:
        """Keep one link after another until cancelled; then publish `offline` and leave within a second."""
        async with asyncio.TaskGroup() as self._asked:
            while True:
                try:
                    await self._serve_one_link()
                except LinkError as exc:
                    self._report(exc)
                await asyncio.sleep(next(self._delays))
        raise AssertionError  # the loop above has no other end than cancellation

    async def _serve_one_link(self) -> NoReturn:
        offline = Message(self._status, b"offline", retain=True)
        link = await MqttLink.open(
            self._settings,
            offline,
            clock=self._clock.monotonic,
            on_arrival=self._on_arrival,
            on_ack=self._on_ack,
            on_lost=self._wake.set,
        )
        log.info("broker_connected", host=self._settings.host, port=self._settings.port)
        self._link, self._problem = link, ""
        self._connects += 1
        self._delays = self._backoff()
        try:
            link.subscribe(wire.decide_topic(self._settings.prefix))
            self._send(link, Message(self._status, b"online", retain=True))
            self._backlog.renew()
            await self._pump(link)
        finally:
            self._link = None
            unsent = [*self._unacknowledged.values(), *self._answers]
            self._answers_lost += sum(1 for m in unsent if m.correlation is not None)
            self._backlog.give_back(m for m in unsent if m.correlation is None and m.topic != self._status)
            self._unacknowledged.clear()
            self._answers.clear()
            await link.aclose(offline, _CLOSE_GRACE_S)

    async def _pump(self, link: MqttLink) -> NoReturn:
        """Send what waits, answers first, within the window; raises `LinkError` when the link ends."""
        while True:
            self._wake.clear()
            while len(self._unacknowledged) < link.window and (message := self._next()) is not None:
                self._send(link, message)
            await self._wake.wait()
            if link.lost:
                raise LinkBrokenError(f"mqtt {self._settings.host}:{self._settings.port}", link.lost)

    def _next(self) -> Message | None:
        return self._answers.popleft() if self._answers else self._backlog.take()

    def _send(self, link: MqttLink, message: Message) -> None:
        try:
            self._unacknowledged[link.publish(message)] = message
        except LinkError:
            self._unacknowledged[-1] = message  # given back, or counted, with the others
            raise

    def _report(self, exc: LinkError) -> None:
        if self._problem != str(exc):
            log.warning("broker_lost" if not self._problem else "broker_unreachable", problem=str(exc))
        if self._problem:
            self._failures += 1
        else:
            self._losses += 1
        self._problem = str(exc)

    def _backoff(self) -> Iterator[float]:
        """Doubling delays with a jitter, so that a fleet does not return in step."""
        jitter = random.Random()  # noqa: S311 - spreads reconnects, protects nothing
        delay, longest = self._settings.backoff_s
        while True:
            yield delay * jitter.uniform(0.75, 1.0)
            delay = min(longest, delay * 2)

    def _offer(self, message: Message) -> None:
        self._backlog.put(message)
        if self._link is not None:
            self._wake.set()

    def _on_ack(self, mid: int, ok: bool) -> None:  # noqa: FBT001 - a callback's fixed shape
        message = self._unacknowledged.pop(mid, None)
        if message is None:
            return
        if ok:
            self._published += 1
        else:
            self._refused += 1
            log.warning("publication_refused", topic=message.topic)
        self._wake.set()

    # -- inwards

    def _on_arrival(self, arrival: Arrival) -> None:
        self._requests += 1
        decided = self._desk.examine(
            arrival,
            now=self._clock.monotonic(),
            in_flight=self._in_flight,
            capacity=self._settings.request_capacity,
        )
        if isinstance(decided, RequestRefused) or self._asked is None or self._link is None:
            self._reject(decided)
            return
        self._in_flight += 1
        self._asked.create_task(self._answer(decided), name=f"mqtt-decide-{decided.point}")

    def _reject(self, refused: RequestRefused | DecideRequest) -> None:
        self._rejected += 1
        reason = refused.reason if isinstance(refused, RequestRefused) else "the gateway is stopping"
        log.info("request_rejected", point=refused.point[:64], reason=reason)
        if refused.response_topic is not None:
            body = {"outcome": "rejected", "reason": reason, "point": refused.point}
            self._respond(refused.response_topic, refused.correlation, wire.json_payload(body))

    async def _answer(self, request: DecideRequest) -> None:
        try:
            payload = wire.json_payload(await self._ask(request))
        finally:
            self._in_flight -= 1
        self._respond(request.response_topic, request.correlation, payload)

    async def _ask(self, request: DecideRequest) -> Body:
        if self._decide is None:
            return {"outcome": "rejected", "reason": "no pipeline is connected", "point": request.point}
        waited_ms = (self._clock.monotonic() - request.received_at) * 1000
        left_ms = request.deadline_ms - waited_ms
        if left_ms <= 0:
            self._rejected += 1
            return {"outcome": "rejected", "reason": "expired while it waited", "point": request.point}
        try:
            return await self._decide(PointId(request.point), request.args, request.requested_by, left_ms)
        except GatewayError as exc:  # it says something that cannot be meant
            self._rejected += 1
            log.info("request_rejected", point=request.point, reason=str(exc))
            return {"outcome": "rejected", "reason": str(exc), "point": request.point}
        except Exception as exc:  # one request's failure must not end the link
            log.exception("request_failed", point=request.point)
            return {"outcome": "undetermined", "reason": f"no verdict: {exc}", "point": request.point}

    def _respond(self, topic: str, correlation: bytes, payload: bytes) -> None:
        """An answer goes out on a link that is there, or not at all: nobody waits for a late one."""
        if self._link is None or len(self._answers) >= _ANSWER_CAPACITY:
            self._answers_lost += 1
            log.warning("answer_lost", topic=topic[:128])
            return
        self._answers.append(Message(topic, payload, retain=False, correlation=correlation))
        self._wake.set()
