from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest

from gateway.core.clock import SystemClock
from gateway.core.quality import StatusCode
from gateway.core.tag import TagDefinition, TagId, TagKind, TagValue
from gateway.core.tagstore import TagStore
from gateway.protocols.modbus.channel import ModbusChannel
from gateway.protocols.modbus.model import ModbusDevice, ModbusEndpoint, ModbusTag
from gateway.protocols.modbus.plan import PlanLimits
from tests.modbus_peer import ModbusPeer, PeerPlc, PeerUnit
from tests.recording_proxy import RecordingProxy

pytestmark = pytest.mark.integration

CLOCK = SystemClock()
OVER_S = 0.7  # a time-out that comes; a machine that stands still for a while must not bring it about
LEVEL, LIVE, FLAGS, TEMP = TagId("TK1.LT101"), TagId("TK1.LIVE"), TagId("TK1.FLAGS"), TagId("TK1.TT101")


def tag(name: str, address: int, **more: object) -> ModbusTag:
    kind = more.pop("kind", TagKind.REAL)
    scale = more.pop("scale", Fraction(1))
    definition = TagDefinition(id=TagId(name), kind=kind, scale=scale)  # type: ignore[arg-type]  # test shorthand
    return ModbusTag(definition=definition, address=address, **({"table": "input"} | more))  # type: ignore[arg-type]  # test shorthand


TANK = ModbusDevice(
    id="TK1",
    unit_id=1,
    tags=(
        tag(LIVE, 0, kind=TagKind.INTEGER),
        tag(LEVEL, 7, raw_type="int16", scale=Fraction("0.001"), flag_tag=FLAGS, flag_bit=0),
        tag(TEMP, 9, raw_type="int16", scale=Fraction("0.01"), flag_tag=FLAGS, flag_bit=2),
        tag(FLAGS, 10, kind=TagKind.INTEGER),
    ),
    poll_groups={"fast": 0.02},
    liveness_tag=LIVE,
    liveness_limit_s=0.15,
)


class Watch:
    """Waits for what the tag store says, without sleeping."""

    def __init__(self, store: TagStore) -> None:
        self._store, self._changed = store, asyncio.Event()
        store.observe(lambda _tag, _value: self._changed.set())

    async def until(self, true: Callable[[], bool], within_s: float = 60.0) -> None:
        async with asyncio.timeout(within_s):
            while not true():
                self._changed.clear()
                await self._changed.wait()

    async def status(self, name: TagId, status: StatusCode) -> TagValue:
        await self.until(lambda: self._store[name].status is status)
        return self._store[name]


@dataclass
class Field:
    peer: ModbusPeer
    proxy: RecordingProxy
    store: TagStore
    watch: Watch
    channel: ModbusChannel


@asynccontextmanager
async def field(
    units: dict[int, PeerUnit], *devices: ModbusDevice, timeout_s: float = 30.0, start: bool = True
) -> AsyncIterator[Field]:
    async with ModbusPeer(units) as peer, RecordingProxy("127.0.0.1", peer.port) as proxy:
        store = TagStore([t.definition for d in devices for t in d.tags], CLOCK)
        endpoint = ModbusEndpoint(
            host="127.0.0.1", port=proxy.port, timeout_s=timeout_s, back_off_first_s=0.02, back_off_cap_s=0.2
        )
        made = Field(peer, proxy, store, Watch(store), ModbusChannel("plc1", endpoint, devices, store, CLOCK))
        if not start:
            proxy.refuse()
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(made.channel.run())
            try:
                yield made
            finally:
                running.cancel()


async def test_a_poll_turns_registers_into_values_with_quality_and_times() -> None:
    began = CLOCK.monotonic()
    async with field({1: PeerPlc().unit()}, TANK) as f:
        level = await f.watch.status(LEVEL, StatusCode.Good)

        assert level.value == 2.0
        assert level.source_ts_ns is None
        assert began <= level.confirmed_at <= CLOCK.monotonic()
        assert f.channel.session == 1
        assert f.channel.statistics().connected
        # S14: the counter is read in one request with the inputs it vouches for
        assert {(r.function, r.address, r.count) for r in f.peer.requests} == {(4, 0, 11)}
        assert f.channel.vouched() == {LIVE, LEVEL, TEMP, FLAGS}


# S14: registers that answer prove nothing when the program behind them stands.
async def test_a_frozen_plc_makes_its_tags_uncertain_until_it_moves_again() -> None:
    plc = PeerPlc()
    async with field({1: plc.unit()}, TANK) as f:
        await f.watch.status(LEVEL, StatusCode.Good)
        plc.frozen = True

        level = await f.watch.status(LEVEL, StatusCode.UncertainLastUsableValue)

        assert level.value == 2.0
        assert f.store[LIVE].status is StatusCode.UncertainLastUsableValue
        assert f.channel.statistics().frozen_devices == 1
        plc.frozen = False
        await f.watch.status(LEVEL, StatusCode.Good)


async def test_a_plc_that_stood_from_the_start_is_never_good() -> None:
    plc = PeerPlc(frozen=True)
    seen: set[StatusCode] = set()
    async with field({1: plc.unit()}, TANK) as f:
        f.store.observe(lambda name, value: seen.add(value.status) if name == LEVEL else None)

        await f.watch.status(LEVEL, StatusCode.UncertainLastUsableValue)

    assert StatusCode.Good not in seen


# S15
async def test_a_forced_sensor_is_uncertain_and_the_others_stay_good() -> None:
    plc = PeerPlc()
    unit = plc.unit()
    async with field({1: unit}, TANK) as f:
        await f.watch.status(LEVEL, StatusCode.Good)
        unit.input[10] = 0b001

        await f.watch.status(LEVEL, StatusCode.UncertainSubstituteValue)

        assert f.store[TEMP].status is StatusCode.Good
        unit.input[10] = 0
        await f.watch.status(LEVEL, StatusCode.Good)


# R9, R6: the last value stays, its quality does not, and it comes back by itself on one new link.
async def test_a_lost_link_turns_tags_bad_and_a_new_session_heals_them() -> None:
    async with field({1: PeerPlc().unit()}, TANK) as f:
        good = await f.watch.status(LEVEL, StatusCode.Good)
        f.proxy.refuse()

        lost = await f.watch.status(LEVEL, StatusCode.BadNoCommunication)

        assert lost.value == good.value
        assert lost.confirmed_at < CLOCK.monotonic()
        f.proxy.resume()
        await f.watch.status(LEVEL, StatusCode.Good)
        assert f.channel.session >= 2
        assert f.channel.statistics().breaks == f.channel.session - 1


async def test_a_black_hole_turns_tags_bad_within_the_time_out_and_ends() -> None:
    async with field({1: PeerPlc().unit()}, TANK, timeout_s=OVER_S) as f:
        await f.watch.status(LEVEL, StatusCode.Good)
        f.proxy.black_hole()

        await f.watch.status(LEVEL, StatusCode.BadNoCommunication)

        assert f.channel.statistics().timeouts >= 1
        f.proxy.resume()
        await f.watch.status(LEVEL, StatusCode.Good)


# R5: start without it.
async def test_a_device_that_is_away_at_the_start_is_bad_and_joins_later() -> None:
    async with field({1: PeerPlc().unit()}, TANK, start=False) as f:
        await f.watch.status(LEVEL, StatusCode.BadNoCommunication)
        f.proxy.resume()

        await f.watch.status(LEVEL, StatusCode.Good)


# M4: an illegal address costs one tag, not the link.
async def test_an_address_the_device_lacks_makes_only_its_tag_bad() -> None:
    missing = TagId("TK1.MISSING")
    device = replace(TANK, tags=(*TANK.tags, tag(missing, 14), tag("TK1.FAR", 40)))
    unit = PeerPlc().unit()
    unit.input[40] = 5
    async with field({1: unit}, device) as f:
        await f.watch.status(missing, StatusCode.BadConfigurationError)
        await f.watch.status(TagId("TK1.FAR"), StatusCode.Good)
        await f.watch.status(LEVEL, StatusCode.Good)

        assert f.channel.session == 1
        assert f.channel.statistics().holes == 1
        f.peer.requests.clear()
        unit.input[7] = 1500  # a whole poll later the hole is remembered
        await f.watch.until(lambda: f.store[LEVEL].value == 1.5 and len(f.peer.requests) > 2)
        assert {(r.address, r.count) for r in f.peer.requests} == {(0, 11), (40, 1)}


def other_unit(interval_s: float = 0.02) -> ModbusDevice:
    return ModbusDevice(id="P2", unit_id=2, tags=(tag("P2.X", 0),), poll_groups={"fast": interval_s})


# M9: behind a serial gateway; the gateway says that the unit is dead.
async def test_a_unit_reported_dead_backs_off_alone() -> None:
    async with field({1: PeerPlc().unit()}, TANK, other_unit()) as f:
        await f.watch.status(LEVEL, StatusCode.Good)
        await f.watch.status(TagId("P2.X"), StatusCode.BadNoCommunication)

        assert f.channel.session == 1
        f.peer.units[2] = PeerUnit(input={0: 7})
        assert (await f.watch.status(TagId("P2.X"), StatusCode.Good)).value == 7


# A silent unit costs a new connection, but never its neighbours' quality.
async def test_a_silent_unit_does_not_take_its_neighbours_quality() -> None:
    dead = PeerUnit(input={0: 7}, silent=True)
    seen: list[StatusCode] = []
    async with field({1: PeerPlc().unit(), 2: dead}, TANK, other_unit(), timeout_s=OVER_S) as f:
        await f.watch.status(LEVEL, StatusCode.Good)
        f.store.observe(lambda name, value: seen.append(value.status) if name == LEVEL else None)
        first = f.channel.session

        await f.watch.status(TagId("P2.X"), StatusCode.BadNoCommunication)
        await f.watch.until(lambda: f.channel.session >= first + 2)

        assert set(seen) <= {StatusCode.Good}
        assert f.store[LEVEL].status is StatusCode.Good
        dead.silent = False
        await f.watch.status(TagId("P2.X"), StatusCode.Good)


# M1, M2: what is not the answer to our request is no answer.
@pytest.mark.parametrize(
    "spoil",
    [
        lambda answer: b"\0\0" + answer[2:],  # transaction id 0, which pymodbus lets pass
        lambda answer: answer[:6] + b"\x09" + answer[7:],  # another unit
        lambda answer: answer[:7] + b"\x03" + answer[8:],  # another function
        lambda answer: answer[:5] + b"\x05\x01\x04\x02\x00\x07",  # one register for eleven
        lambda answer: b"garbage" + answer,
    ],
)
async def test_an_answer_that_is_not_ours_is_never_a_value(spoil: Callable[[bytes], bytes]) -> None:
    async with field({1: PeerPlc().unit()}, TANK, timeout_s=OVER_S) as f:
        await f.watch.status(LEVEL, StatusCode.Good)
        f.peer.spoil = spoil

        lost = await f.watch.status(LEVEL, StatusCode.BadNoCommunication)

        assert lost.value == 2.0
        f.peer.spoil = None
        await f.watch.status(LEVEL, StatusCode.Good)


# The late answer belongs to a connection that no longer exists.
async def test_a_late_answer_never_satisfies_a_later_request() -> None:
    unit = PeerPlc().unit()
    async with field({1: unit}, TANK, timeout_s=OVER_S) as f:
        await f.watch.status(LEVEL, StatusCode.Good)
        f.peer.hold = asyncio.Event()
        await f.watch.status(LEVEL, StatusCode.BadNoCommunication)
        unit.input[7] = 1234
        f.peer.hold.set()
        f.peer.hold = None

        level = await f.watch.status(LEVEL, StatusCode.Good)

        assert level.value == 1.234


# D21: the first bit of a coil answer is the lowest address.
async def test_coils_and_discrete_inputs_keep_their_order() -> None:
    bits = [1, 0, 0, 1, 1, 0, 1, 0, 1, 1]
    unit = PeerUnit(coil=dict(enumerate(bits)), discrete={n: 1 - bit for n, bit in enumerate(bits)})
    tags = [tag(f"C{n}", n, kind=TagKind.BOOLEAN, table="coil") for n in range(10)]
    tags += [tag(f"D{n}", n, kind=TagKind.BOOLEAN, table="discrete") for n in range(10)]
    device = ModbusDevice(id="B", unit_id=1, tags=tuple(tags), poll_groups={"fast": 0.05})
    async with field({1: unit}, device) as f:
        await f.watch.until(lambda: all(f.store[t.id].status is StatusCode.Good for t in tags))

        assert [f.store[TagId(f"C{n}")].value for n in range(10)] == [bool(bit) for bit in bits]
        assert [f.store[TagId(f"D{n}")].value for n in range(10)] == [not bit for bit in bits]


# D8: a marker or a NaN is no value, and a value read before stays what it was, marked.
async def test_a_marker_is_bad_and_never_a_number() -> None:
    device = ModbusDevice(
        id="S",
        unit_id=1,
        tags=(tag("S.A", 0, raw_type="int16", invalid_raw=0x8000), tag("S.F", 1, raw_type="float32")),
        poll_groups={"fast": 0.02},
        limits=PlanLimits(max_gap=0),
    )
    unit = PeerUnit(input={0: 0x8000, 1: 0x7FC0, 2: 0})
    async with field({1: unit}, device) as f:
        a, x = TagId("S.A"), TagId("S.F")
        await f.watch.status(a, StatusCode.BadSensorFailure)
        await f.watch.status(x, StatusCode.BadSensorFailure)
        assert (f.store[a].value, f.store[x].value) == (None, None)
        unit.input[0] = 12
        await f.watch.status(a, StatusCode.Good)
        unit.input[0] = 0x8000
        assert (await f.watch.status(a, StatusCode.BadSensorFailure)).value == 12


async def test_a_stopped_channel_leaves_its_tags_bad_and_its_connection_closed() -> None:
    async with field({1: PeerPlc().unit()}, TANK) as f:
        await f.watch.status(LEVEL, StatusCode.Good)

    assert f.store[LEVEL].status is StatusCode.BadNoCommunication
    assert not f.channel.statistics().connected
