"""Reads one device's poll groups over whatever link there is and keeps its tags in the store true."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from gateway.core.clock import Clock
from gateway.core.quality import Severity, StatusCode
from gateway.core.tag import Scalar, TagId, TagKind, TagValue
from gateway.core.tagstore import TagStore
from gateway.protocols.modbus.codec import NotAValue, decode
from gateway.protocols.modbus.link import ModbusExceptionError, ModbusLink, Reply
from gateway.protocols.modbus.liveness import BackOff, LivenessWatch
from gateway.protocols.modbus.model import ModbusDevice, ModbusEndpoint, ModbusTag
from gateway.protocols.modbus.plan import Block, Learned, bisect, plan

_ILLEGAL_ADDRESS = 2
_UNREACHABLE = frozenset({10, 11})  # a gateway's word that the unit behind it does not answer
_REFUSED = {
    1: StatusCode.BadConfigurationError,
    3: StatusCode.BadConfigurationError,
    4: StatusCode.BadDeviceFailure,
    5: StatusCode.UncertainLastUsableValue,
    6: StatusCode.UncertainLastUsableValue,
    8: StatusCode.BadDeviceFailure,
}


class DeviceReader:
    """One device's poll plans, liveness and back-off. Only its channel calls it."""

    def __init__(self, device: ModbusDevice, endpoint: ModbusEndpoint, store: TagStore, clock: Clock) -> None:
        self.device = device
        self.tags = {tag.id: tag for tag in device.tags}
        self.liveness = LivenessWatch(device.liveness_limit_s) if device.liveness_tag is not None else None
        self.quiet_until = float("-inf")  # backed off until then, monotonic seconds
        self.bad_values = 0
        self._store, self._clock = store, clock
        self._formats = {tag.id: tag.word_format() for tag in device.tags}
        self._learned = Learned()
        self._back_off = BackOff(endpoint.back_off_first_s, endpoint.back_off_cap_s)
        self._plans = {group: self._plan(group) for group in device.poll_groups}
        self._vouched = self._beside_the_counter()
        self._refusing: dict[tuple[str, int], str] = {}  # by table and address, in the device's words
        self._log = structlog.get_logger().bind(component="modbus", device=device.id)

    @property
    def holes(self) -> frozenset[TagId]:
        """Tags the device answered not to have."""
        return frozenset(TagId(item.key) for item in self._learned.holes)

    def vouched(self) -> frozenset[TagId]:
        """Tags read in the liveness counter's own request (S14)."""
        return self._vouched

    def not_live(self, tags: Iterable[TagId]) -> str:
        """Why the device cannot be known to run its program now, in words; "" when its counter says so (S14).

        `tags` are those of this device that a decision rests on: each must come with the counter.
        """
        counter, device = self.device.liveness_tag, self.device.id
        if self.liveness is None or counter is None:
            return f"device `{device}` has no liveness counter: configure its `liveness_tag`"
        if not self.liveness.moving(self._clock.monotonic()):
            limit = f"{self.device.liveness_limit_s:g} s"
            return (
                f"the liveness counter `{counter}` of device `{device}` was not seen to move within {limit}: "
                "its program may stand still"
            )
        apart = next((tag for tag in tags if tag not in self._vouched), None)
        return (
            f"`{apart}` is not read in one request with `{counter}`, the liveness counter of `{device}`: "
            "give it the counter's poll group, and an address near by"
            if apart is not None
            else ""
        )

    async def poll(self, link: ModbusLink, group: str) -> None:
        """Read a group once into the store. Raises LinkError; an exception about the link's far end too."""
        pending = list(self._plans[group])
        while pending:
            block = pending.pop(0)
            try:
                reply = await link.read(self.device.unit_id, block.table, block.address, block.count)
            except ModbusExceptionError as exc:
                if exc.code in _UNREACHABLE:
                    raise
                pending[:0] = self._refused(block, exc)
            else:
                if self._refusing.pop((block.table, block.address), None) is not None:
                    self._log.info("poll_answered_again", table=block.table, address=block.address)
                self._take(block, reply)
        self._back_off.reset()
        self.quiet_until = float("-inf")

    def silent(self) -> float:
        """The device did not answer: its tags turn Bad, it backs off; seconds until it is asked again."""
        wait_s = self._back_off.next_s()
        self.quiet_until = self._clock.monotonic() + wait_s
        self.lost()
        return wait_s

    def lost(self) -> None:
        """The way to the device is gone: last values stay, nothing learned of it counts any more."""
        self._store.degrade(self.tags, StatusCode.BadNoCommunication)
        self._learn(Learned())
        if self.liveness is not None:
            self.liveness.restart()

    def _learn(self, learned: Learned) -> None:
        self._learned = learned
        self._plans = {group: self._plan(group) for group in self.device.poll_groups}
        self._vouched = self._beside_the_counter()

    def _beside_the_counter(self) -> frozenset[TagId]:
        return frozenset(
            TagId(item.key)
            for blocks in self._plans.values()
            for block in blocks
            if any(item.key == self.device.liveness_tag for item in block.items)
            for item in block.items
        )

    def _plan(self, group: str) -> tuple[Block, ...]:
        items = [tag.item() for tag in self.device.tags if tag.poll_group == group]
        return plan(items, self.device.limits, self._learned, anchor=self.device.liveness_tag)

    def _refused(self, block: Block, refusal: ModbusExceptionError) -> tuple[Block, ...]:
        """The smaller blocks to ask instead, none unless an address was illegal."""
        if refusal.code != _ILLEGAL_ADDRESS:
            status = _REFUSED.get(refusal.code, StatusCode.BadDeviceFailure)
            where = (block.table, block.address)
            if self._refusing.get(where) != refusal.problem:  # once, not with every poll
                self._refusing[where] = refusal.problem
                words = {"table": block.table, "address": block.address, "count": block.count}
                self._log.warning("poll_refused", **words, reason=refusal.problem, tags_turn=status.name)
            self._store.degrade((TagId(item.key) for item in block.items), status)
            return ()
        before = self.holes
        self._learn(bisect(block, self._learned))
        for hole in self.holes - before:
            self._log.warning("address_refused", tag=hole, reason=refusal.problem)
            self._store.degrade([hole], StatusCode.BadConfigurationError)
        return plan(block.items, self.device.limits, self._learned, anchor=self.device.liveness_tag)

    def _take(self, block: Block, reply: Reply) -> None:
        """Every value of a block into the store, with the quality the whole block gives it."""
        readings: dict[TagId, tuple[Scalar | None, StatusCode]] = {}
        for item in block.items:
            tag = self.tags[TagId(item.key)]
            start = item.address - block.address
            readings[tag.id] = self._reading(tag, reply.words[start : start + item.count])
        live = self._liveness(readings, reply.at)
        utc_ns = self._clock.utc_ns()
        for tag_id, (value, status) in readings.items():
            fresh = TagValue(
                value=value, status=status, source_ts_ns=None, server_ts_ns=utc_ns, confirmed_at=reply.at
            )
            if self._flagged(self.tags[tag_id], readings):
                fresh = fresh.degraded_to(StatusCode.UncertainSubstituteValue)
            self._store.update(tag_id, fresh if live.is_plain_good else fresh.degraded_to(live))

    def _liveness(self, readings: dict[TagId, tuple[Scalar | None, StatusCode]], at: float) -> StatusCode:
        counter = self.device.liveness_tag
        if self.liveness is None or counter is None:
            return StatusCode.Good
        if counter not in readings:
            return self.liveness.status
        was_good = self.liveness.status.is_plain_good
        status = self.liveness.saw(readings[counter][0], at)
        if was_good and not status.is_plain_good:
            self._log.warning("device_frozen", counter=counter, value=readings[counter][0])
            self._store.degrade(self.tags, status)
        return status

    def _reading(self, tag: ModbusTag, words: tuple[int, ...]) -> tuple[Scalar | None, StatusCode]:
        decoded = of_kind(decode(words, self._formats[tag.id]), tag.definition.kind)
        if isinstance(decoded, NotAValue):
            self.bad_values += 1
            return None, decoded.status
        return decoded, StatusCode.Good

    def _flagged(self, tag: ModbusTag, readings: dict[TagId, tuple[Scalar | None, StatusCode]]) -> bool:
        """True while the tag's sensor is said to be forced or failed, or nobody can say."""
        if tag.flag_tag is None:
            return False
        value, status = readings.get(tag.flag_tag) or (
            self._store[tag.flag_tag].value,
            self._store[tag.flag_tag].status,
        )
        if status.severity is Severity.BAD or isinstance(value, float | str | None):
            return True
        return bool(value >> tag.flag_bit & 1)


def of_kind(decoded: Scalar | NotAValue, kind: TagKind) -> Scalar | NotAValue:
    """The value as its tag's kind has it, or NotAValue where it has no such value. Never a guess."""
    if isinstance(decoded, NotAValue):
        return decoded
    mismatch = NotAValue(StatusCode.BadDecodingError, f"{decoded!r} is not {kind.value}")
    if kind is TagKind.TEXT:
        return decoded if isinstance(decoded, str) else mismatch
    if isinstance(decoded, str):
        return mismatch
    if kind is TagKind.BOOLEAN:
        return bool(decoded) if decoded in (0, 1) else mismatch
    if kind is TagKind.REAL:
        return float(decoded)
    return int(decoded) if decoded == int(decoded) else mismatch
