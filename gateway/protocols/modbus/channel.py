"""A Modbus TCP channel: one link at a time, renewed for ever, and the devices polled over it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

import structlog

from gateway.core.clock import Clock
from gateway.core.errors import LinkBrokenError, LinkError, LinkTimeoutError
from gateway.core.tag import TagId
from gateway.core.tagstore import TagStore
from gateway.protocols.modbus.link import LinkCounters, ModbusExceptionError, ModbusLink
from gateway.protocols.modbus.liveness import BackOff
from gateway.protocols.modbus.model import ModbusDevice, ModbusEndpoint
from gateway.protocols.modbus.reader import DeviceReader

_PROVE_S = 0.05  # between the first readings of a liveness counter that has not been seen to move yet


@dataclass(frozen=True, slots=True, kw_only=True)
class ModbusStatistics:
    """Counters since start, and how things stand."""

    session: int
    connected: bool
    requests: int
    answers: int
    exceptions: int
    timeouts: int
    breaks: int
    wrong_answers: int
    failed_connects: int
    polls: int
    bad_values: int
    errors: int  # our own faults, logged with traceback
    silent_devices: int
    frozen_devices: int
    holes: int
    longest_answer_s: float


class _Job:
    """One poll group of one device, and when it is due."""

    def __init__(self, reader: DeviceReader, group: str, interval_s: float) -> None:
        self.reader, self.group, self.interval_s = reader, group, interval_s
        self.due_at = float("-inf")


class ModbusChannel:
    """Owner of one endpoint's link. `session` rises with every connection; `link` is None between two.

    Every tag must be defined in the store. A unit that stays silent, where nothing in between says so, holds
    the link for up to `timeout_s` whenever it is tried; where that is too much give it its own channel.
    """

    def __init__(
        self,
        channel_id: str,
        endpoint: ModbusEndpoint,
        devices: Iterable[ModbusDevice],
        store: TagStore,
        clock: Clock,
    ) -> None:
        self.id, self.endpoint = channel_id, endpoint
        self.session = 0
        self.link: ModbusLink | None = None
        self._store, self._clock = store, clock
        devices = tuple(devices)
        for tag in (tag for device in devices for tag in device.tags if tag.id not in store.definitions):
            raise ValueError(f"channel `{channel_id}`: the tag store does not know `{tag.id}`")
        self._readers = {device.id: DeviceReader(device, endpoint, store, clock) for device in devices}
        self._jobs = [
            _Job(reader, group, interval_s)
            for reader in self._readers.values()
            for group, interval_s in reader.device.poll_groups.items()
        ]
        self._counters = LinkCounters()
        self._back_off = BackOff(endpoint.back_off_first_s, endpoint.back_off_cap_s)
        self._answered: set[str] = set()  # devices that answered in this session
        self._polls = self._failed_connects = self._errors = 0
        self._log = structlog.get_logger().bind(component="modbus", channel=channel_id)

    async def run(self) -> NoReturn:
        """Connect, poll, degrade and connect again until cancelled; the link is then closed, its tags Bad."""
        logging.getLogger("pymodbus").setLevel(logging.CRITICAL)  # each fault is reported once, here
        try:
            while True:
                link = await self._connected()
                await self._serve(link)
        finally:
            if self.link is not None:
                self.link.abort("the channel stops")
                self.link = None
            self._lose(self._readers.values())

    def vouched(self) -> frozenset[TagId]:
        """Tags read in one request with their device's liveness counter: what a write may rest on (S14)."""
        return frozenset().union(*(reader.vouched() for reader in self._readers.values()))

    def not_live(self, device: str, tags: Iterable[TagId]) -> str:
        """Why a device cannot be known to run its program now, in words, or "" (S14).

        `tags` are those of it that a decision rests on. Raises `KeyError` for a device of another channel.
        """
        return self._readers[device].not_live(tags)

    def statistics(self) -> ModbusStatistics:
        """Counters since start, and how things stand."""
        now, counted, readers = self._clock.monotonic(), self._counters, self._readers.values()
        return ModbusStatistics(
            session=self.session,
            connected=self.link is not None,
            requests=counted.requests,
            answers=counted.answers,
            exceptions=counted.exceptions,
            timeouts=counted.timeouts,
            breaks=counted.breaks,
            wrong_answers=counted.wrong_answers,
            failed_connects=self._failed_connects,
            polls=self._polls,
            bad_values=sum(reader.bad_values for reader in readers),
            errors=self._errors,
            silent_devices=sum(1 for reader in readers if reader.quiet_until > now),
            frozen_devices=sum(1 for r in readers if r.liveness is not None and r.liveness.frozen),
            holes=sum(len(reader.holes) for reader in readers),
            longest_answer_s=counted.longest_answer_s,
        )

    async def _connected(self) -> ModbusLink:
        """A new link, however long it takes; from the first failure on every tag is Bad."""
        while True:
            try:
                link = await ModbusLink.connect(
                    self.endpoint, name=self.id, clock=self._clock, counters=self._counters
                )
            except LinkError as exc:
                self._failed_connects += 1
                self._lose(self._readers.values())
                wait_s = self._back_off.next_s()
                self._log.warning("connect_failed", reason=exc.problem, again_in_s=wait_s)
                await asyncio.sleep(wait_s)
                continue
            self.session += 1
            self._answered.clear()
            self.link = link
            self._log.info(
                "link_opened", host=self.endpoint.host, port=self.endpoint.port, session=self.session
            )
            return link

    async def _serve(self, link: ModbusLink) -> None:
        """Poll over one link until it is lost, then say so to the tags that lose by it."""
        unit_silent = False
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._until_lost(link), name=f"modbus-{self.id}-watch")
                for job in self._jobs:
                    name = f"modbus-{self.id}-{job.reader.device.id}-{job.group}"
                    tasks.create_task(self._keep_polling(job, link), name=name)
        except* LinkTimeoutError as group:
            unit_silent = True
            self._log.warning("link_lost", reason=str(group.exceptions[0]), session=self.session)
        except* LinkError as group:
            self._log.warning("link_lost", reason=str(group.exceptions[0]), session=self.session)
        except* Exception:  # noqa: BLE001 - supervisor loop of a link: logged, counted, a new link
            self._errors += 1
            self._log.exception("polling_failed", session=self.session)
        finally:
            self.link = None
            link.abort("its session ended")
        # One silent unit costs the others a new connection, not their quality.
        others_answer = any(
            r.device.id in self._answered and r.quiet_until <= self._clock.monotonic()
            for r in self._readers.values()
        )
        if not (unit_silent and others_answer):
            self._lose(self._readers.values())
            await asyncio.sleep(self._back_off.next_s())

    async def _until_lost(self, link: ModbusLink) -> NoReturn:
        """Ends the session even while no poll is due."""
        await link.lost.wait()
        raise LinkBrokenError(self.id, link.fault)

    async def _keep_polling(self, job: _Job, link: ModbusLink) -> NoReturn:
        while True:
            await self._until_due(job)
            await self._poll(job, link)

    async def _until_due(self, job: _Job) -> None:
        """Waits for the group's time; a silent device waits its own time out."""
        now = self._clock.monotonic()
        await asyncio.sleep(max(0.0, job.reader.quiet_until - now, job.due_at - now))
        now = self._clock.monotonic()
        on_time = job.due_at <= now < job.due_at + job.interval_s
        job.due_at = (job.due_at if on_time else now) + job.interval_s

    async def _poll(self, job: _Job, link: ModbusLink) -> None:
        reader = job.reader
        try:
            await reader.poll(link, job.group)
        except LinkTimeoutError as exc:
            self._log.warning(
                "device_silent", device=reader.device.id, reason=exc.problem, wait_s=reader.silent()
            )
            raise
        except ModbusExceptionError as exc:  # the gateway before the unit says so: the link is fine
            self._log.warning(
                "device_silent", device=reader.device.id, reason=exc.problem, wait_s=reader.silent()
            )
            return
        self._polls += 1
        self._answered.add(reader.device.id)
        self._back_off.reset()
        watch = reader.liveness
        if watch is not None and not watch.proved and watch.readings < 1 / _PROVE_S:
            job.due_at = min(job.due_at, self._clock.monotonic() + _PROVE_S)

    def _lose(self, readers: Iterable[DeviceReader]) -> None:
        for reader in readers:
            reader.lost()
