"""Following the Feed: losses, resyncs, silence; and how margins are rounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.clock import FakeClock
from gateway.core.errors import LinkBrokenError
from gateway.core.tag import decimal_text
from gateway.link.messages import Alarm, FeedBatch, ModelState, ModuleState
from gateway.web.feed import GatewayLink, keep_mirrored
from gateway.web.metrics import exposition
from gateway.web.mirror import Mirror
from gateway.web.views import margin_text, verdict_sentence
from tests.unit.web_fakes import FakeLink, decision, snapshot, tag


class Links:
    """Hands out one fake link after another and says when each was made."""

    def __init__(self) -> None:
        self.made: asyncio.Queue[FakeLink] = asyncio.Queue()
        self.refuse = False

    async def connect(self) -> GatewayLink:
        if self.refuse:
            self.refuse = False
            raise LinkBrokenError("/run/o3.sock", "no gateway answers there")
        link = FakeLink()
        self.made.put_nowait(link)
        return link


@asynccontextmanager
async def following(links: Links, heartbeat_s: float = 60.0) -> AsyncIterator[Mirror]:
    mirror = Mirror(FakeClock())
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(keep_mirrored(links.connect, mirror, heartbeat_s=heartbeat_s, retry_s=0.0))
        yield mirror
        task.cancel()


def test_metrics_tell_which_bundle_serves_and_what_its_work_costs() -> None:
    mirror = Mirror(FakeClock())
    serving = ModelState(
        id="buffer-tank",
        bundle="second",
        revision="buffer-tank/2",
        digest="d52a",
        state="ready",
        previous="first",
        by="anna",
        at_ns=1,
        points=["buffer-tank"],
        costs_ms={"decision": 1.5, "step_of_8": 0.25},
        provider="CPUExecutionProvider",
        asked_provider="cuda:0",
        fell_back="`cuda:0` was asked for",
        memory={"pages_free": 212.0, "internal_fragmentation": 0.035},
    )
    mirror.apply(FeedBatch(sequence=1, snapshot=True, items=[*snapshot(), serving]))
    said = exposition(mirror)
    assert 'o3_model_ready{model="buffer-tank",bundle="second",digest="d52a"} 1.0' in said
    assert 'o3_model_cost_milliseconds{model="buffer-tank",work="step_of_8"} 0.25' in said
    where = 'o3_model_fell_back{model="buffer-tank",asked="cuda:0",provider="CPUExecutionProvider"}'
    assert f"{where} 1.0" in said
    assert 'o3_model_memory{model="buffer-tank",figure="pages_free"} 212.0' in said
    assert 'o3_model_memory{model="buffer-tank",figure="internal_fragmentation"} 0.035' in said
    replaced = msgspec.structs.replace(serving, state="replaced")
    mirror.apply(FeedBatch(sequence=2, snapshot=False, items=[replaced]))
    assert 'bundle="second",digest="d52a"} 0.0' in exposition(mirror)
    mirror.apply(FeedBatch(sequence=3, snapshot=True, items=snapshot()))
    assert "d52a" not in exposition(mirror)


async def test_a_lost_link_is_told_and_a_fresh_one_replaces_everything() -> None:
    links = Links()
    async with following(links) as mirror:
        first = await links.made.get()
        first.put(1, snapshot(), snapshot=True)
        await first.batches.join()
        assert mirror.problem == ""
        links.refuse = True
        first.break_off()
        await first.closed.wait()
        second = await links.made.get()
        assert "closed the connection" in mirror.problem or "no gateway answers" in mirror.problem
        assert mirror.losses == 1
        second.put(1, [*tag("OTHER", 1.0, "", 2.0), *snapshot()[-1:]], snapshot=True)
        await second.batches.join()
        assert mirror.problem == ""
        assert list(mirror.tags) == ["OTHER"]


async def test_a_missing_batch_ends_the_link_instead_of_showing_a_gap() -> None:
    links = Links()
    async with following(links) as mirror:
        link = await links.made.get()
        link.put(1, snapshot(), snapshot=True)
        link.put(3, tag("TK1.LT101", 9.0, "m", 5.0))
        await link.closed.wait()
        await links.made.get()
        assert "does not follow" in mirror.problem
        assert mirror.tags["TK1.LT101"].value == 2.013


async def test_a_gateway_that_stands_still_behind_an_open_socket_is_a_lost_link() -> None:
    links = Links()
    async with following(links, heartbeat_s=0.0) as mirror:
        link = await links.made.get()
        link.put(1, snapshot(), snapshot=True)
        await link.batches.join()
        assert await link.asked.get() == "status"
        assert mirror.problem == ""
        link.mute = True
        await link.closed.wait()
        await links.made.get()
        assert "no answer" in mirror.problem


def test_without_the_gateways_state_nothing_counts_as_current() -> None:
    mirror = Mirror(FakeClock())
    mirror.apply(FeedBatch(sequence=1, snapshot=True, items=tag("A", 1.0, "", 2.0)))
    assert mirror.problem != ""


def test_an_alarm_stays_until_it_is_over_and_acknowledged() -> None:
    mirror = Mirror(FakeClock())
    mirror.apply(FeedBatch(sequence=1, snapshot=True, items=snapshot()))
    alarm = mirror.alarms["module:broken"]

    def told(sequence: int, *, active: bool, acknowledged: bool) -> bool:
        changed = Alarm(
            source=alarm.source,
            active=active,
            acknowledged=acknowledged,
            severity=alarm.severity,
            cause=alarm.cause,
            consequence=alarm.consequence,
            action=alarm.action,
            since_ns=alarm.since_ns,
        )
        mirror.apply(FeedBatch(sequence=sequence, snapshot=False, items=[changed]))
        return alarm.source in mirror.alarms

    assert told(2, active=True, acknowledged=True)
    assert told(3, active=False, acknowledged=False)
    assert not told(4, active=False, acknowledged=True)


@pytest.mark.parametrize(
    ("exact", "shown"),
    [
        ("0.1266", "0.126"),
        ("-0.0001", "-0.001"),
        ("0", "0.000"),
        ("1/3", "0.333"),
        ("-1/3", "-0.334"),
        ("?", "?"),
    ],
)
def test_a_margin_is_rounded_towards_less_room(exact: str, shown: str) -> None:
    assert margin_text(exact) == shown


@given(st.fractions(max_denominator=10**6).filter(lambda f: abs(f) < 10**12))
def test_a_shown_margin_never_exceeds_the_exact_one(exact: Fraction) -> None:
    shown = Fraction(margin_text(decimal_text(exact)))
    assert 0 <= exact - shown < Fraction(1, 1000)


@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        ("repaired", "repaired: the setpoints let out are permitted by rule set 12 under its assumptions"),
        ("undetermined", "undetermined: TK1.LT101 is stale"),
        ("rejected", "rejected, never examined: TK1.LT101 is stale"),
        ("refused", "refused by rule set 12: TK1.LT101 is stale"),
    ],
)
def test_every_outcome_has_its_sentence(outcome: str, sentence: str) -> None:
    assert verdict_sentence(decision(1, outcome, reason="TK1.LT101 is stale")) == sentence


def test_a_module_that_is_gone_is_shown_no_more() -> None:
    mirror = Mirror(FakeClock())
    items = snapshot()
    mirror.apply(FeedBatch(sequence=1, snapshot=True, items=items))
    broken = next(item for item in items if isinstance(item, ModuleState) and item.state == "refused")
    assert broken.id in mirror.modules

    gone = msgspec.structs.replace(broken, state="gone")
    mirror.apply(FeedBatch(sequence=2, snapshot=False, items=[gone, gone]))

    assert broken.id not in mirror.modules
    assert "buffer-tank" in mirror.modules
