"""The bridge against a real mosquitto on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.core.clock import SystemClock
from gateway.core.decision import PointId
from gateway.core.errors import GatewayError, LinkBrokenError
from gateway.core.quality import StatusCode
from gateway.core.tag import TagId, TagValue
from gateway.protocols.mqtt.bridge import Decide, MqttBridge
from gateway.protocols.mqtt.broker import demo_broker
from gateway.protocols.mqtt.settings import MqttSettings
from tests.integration.mqtt_peer import (
    BRIDGE_CHILD,
    PATIENCE_S,
    REPOSITORY,
    needs_mosquitto,
    needs_setpriv,
    peer_at,
)
from tests.ports import free_port
from tests.recording_proxy import RecordingProxy

pytestmark = [pytest.mark.integration, needs_mosquitto]


def good(value: float) -> TagValue:
    return TagValue(
        value=value,
        status=StatusCode.Good,
        source_ts_ns=None,
        server_ts_ns=1_700_000_000_000_000_001,
        confirmed_at=0.0,
    )


@asynccontextmanager
async def running(
    port: int,
    decide: Decide | None = None,
    *,
    read_only: bool = False,
    keepalive_s: int = 10,
) -> AsyncIterator[MqttBridge]:
    settings = MqttSettings(
        host="127.0.0.1",
        port=port,
        client_id="o3-test",
        prefix="o3/test",
        accept_requests=decide is not None and not read_only,
        keepalive_s=keepalive_s,
        backoff_s=(0.05, 0.2),
    )
    bridge = MqttBridge(settings, SystemClock(), decide)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(bridge.run())
        try:
            yield bridge
        finally:
            task.cancel()


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - statistics and processes have no event to wait for
            await asyncio.sleep(0.01)


async def permit(
    point: PointId, args: dict[str, Any], requested_by: str, deadline_ms: float
) -> dict[str, Any]:
    return {
        "outcome": "permitted",
        "point": point,
        "args": args,
        "by": requested_by,
        "in_time": deadline_ms <= 250,
    }


async def test_online_is_retained_and_a_clean_stop_says_offline_itself(tmp_path: Path) -> None:
    port = free_port()
    async with demo_broker(port, tmp_path):
        async with running(port) as bridge:
            await eventually(lambda: bridge.statistics().published >= 1)
            async with peer_at(port) as late:
                await late.subscribe("o3/test/status")
                birth = await late.next()
                assert (bytes(birth.payload), birth.retain) == (b"online", True)
        async with peer_at(port) as later:
            await later.subscribe("o3/test/status")
            end = await later.next()
            assert (bytes(end.payload), end.retain) == (b"offline", True)


async def test_kill_9_makes_the_broker_publish_a_retained_offline(tmp_path: Path) -> None:
    port = free_port()
    async with demo_broker(port, tmp_path), peer_at(port) as peer:
        await peer.subscribe("o3/child/status")
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", BRIDGE_CHILD, str(port), cwd=REPOSITORY
        )
        try:
            await peer.until("o3/child/status", b"online")
        finally:
            child.send_signal(signal.SIGKILL)
            await child.wait()
        assert (await peer.until("o3/child/status", b"offline")).retain
        async with peer_at(port) as late:
            await late.subscribe("o3/child/status")
            assert bytes((await late.next()).payload) == b"offline"


async def test_tags_and_verdicts_arrive_with_quality_and_times(tmp_path: Path) -> None:
    port = free_port()
    async with demo_broker(port, tmp_path), peer_at(port) as peer, running(port) as bridge:
        await peer.subscribe("o3/test/#")
        bridge.publish_tag(TagId("TK1.LT101"), good(2.25))
        bridge.publish_verdict(PointId("buffer-tank"), {"outcome": "refused", "at_ns": 2**62})
        tag = await peer.until("o3/test/tags/TK1/LT101")
        assert json.loads(tag.payload) == {
            "value": 2.25,
            "status": 0,
            "status_name": "Good",
            "source_ts": None,
            "server_ts": "2023-11-14T22:13:20.000000001Z",
        }
        async with peer_at(port) as other:
            await other.subscribe("o3/test/tags/#")
            assert (await other.until("o3/test/tags/TK1/LT101")).retain
        bridge.publish_verdict(PointId("buffer-tank"), {"outcome": "permitted"})
        verdict = await peer.until("o3/test/points/buffer-tank/verdict")
        assert json.loads(verdict.payload) in (
            {"outcome": "refused", "at_ns": str(2**62)},
            {"outcome": "permitted"},
        )
        assert not verdict.retain


async def test_a_request_is_decided_and_answered_with_its_correlation_data(tmp_path: Path) -> None:
    port = free_port()
    async with demo_broker(port, tmp_path), peer_at(port) as peer, running(port, permit) as bridge:
        await peer.subscribe("clients/1")
        await eventually(lambda: bridge.statistics().published >= 1)
        await peer.publish(
            "o3/test/decide/buffer-tank",
            b'{"setpoints": {"TK1.P101.SP": "40"}}',
            reply_to="clients/1",
            correlation=b"\x00\x01",
            user=(("deadline_ms", "250"), ("user", "scada")),
        )
        answer = await peer.until("clients/1")
        assert getattr(answer.properties, "CorrelationData", None) == b"\x00\x01"
        assert json.loads(answer.payload) == {
            "outcome": "permitted",
            "point": "buffer-tank",
            "args": {"setpoints": {"TK1.P101.SP": "40"}},
            "by": "mqtt (says `scada`)",
            "in_time": True,
        }


@pytest.mark.parametrize("live", [True, False], ids=["published while connected", "left at the broker"])
async def test_a_retained_request_is_rejected_and_never_decided(tmp_path: Path, live: bool) -> None:  # noqa: FBT001
    asked: list[str] = []

    async def decide(point: PointId, *_: object) -> dict[str, Any]:
        asked.append(point)
        return {"outcome": "permitted"}

    port = free_port()
    async with demo_broker(port, tmp_path), peer_at(port) as peer:
        await peer.subscribe("clients/1")
        topic = "o3/test/decide/buffer-tank"
        if not live:
            await peer.publish(topic, b"{}", reply_to="clients/1", correlation=b"1", retain=True)
        async with running(port, decide) as bridge:
            await eventually(lambda: bridge.statistics().published >= 1)
            if live:
                await peer.publish(topic, b"{}", reply_to="clients/1", correlation=b"1", retain=True)
            answer = json.loads((await peer.until("clients/1")).payload)
            assert answer["outcome"] == "rejected"
            assert answer["reason"].startswith("retained")
            assert asked == []
            # control: the same request, not retained, is decided
            await peer.publish(topic, b"{}", reply_to="clients/1", correlation=b"2")
            assert json.loads((await peer.until("clients/1")).payload) == {"outcome": "permitted"}
            assert asked == ["buffer-tank"]


async def test_without_accept_requests_the_topic_is_read_only_and_says_so(tmp_path: Path) -> None:
    port = free_port()
    async with (
        demo_broker(port, tmp_path),
        peer_at(port) as peer,
        running(port, permit, read_only=True) as bridge,
    ):
        await peer.subscribe("clients/1")
        await eventually(lambda: bridge.statistics().published >= 1)
        await peer.publish("o3/test/decide/buffer-tank", b"{}", reply_to="clients/1")
        answer = json.loads((await peer.until("clients/1")).payload)
        assert answer["outcome"] == "rejected"
        assert "read-only" in answer["reason"]


async def test_a_request_is_answered_without_waiting_for_a_delayed_ack(tmp_path: Path) -> None:
    """Without TCP_NODELAY at every end each request takes over 80 ms: a whole deadline."""
    port = free_port()
    async with demo_broker(port, tmp_path), peer_at(port) as peer, running(port, permit) as bridge:
        await peer.subscribe("clients/1")
        await eventually(lambda: bridge.statistics().published >= 1)
        link = bridge._link
        assert link is not None
        ours = link._client.socket()
        assert isinstance(ours, socket.socket)
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert "set_tcp_nodelay true" in (tmp_path / "mosquitto.conf").read_text().splitlines()
        for n in range(9):
            await peer.publish("o3/test/decide/p", b"", reply_to="clients/1", correlation=b"%d" % n)
            answer = await peer.until("clients/1")
            assert getattr(answer.properties, "CorrelationData", None) == b"%d" % n


async def test_a_failing_pipeline_is_answered_undetermined_and_the_link_lives(tmp_path: Path) -> None:
    async def broken(*_: object) -> dict[str, Any]:
        raise RuntimeError("boom")

    port = free_port()
    async with demo_broker(port, tmp_path), peer_at(port) as peer, running(port, broken) as bridge:
        await peer.subscribe("clients/1")
        await eventually(lambda: bridge.statistics().published >= 1)
        for correlation in (b"1", b"2"):
            await peer.publish("o3/test/decide/p", b"", reply_to="clients/1", correlation=correlation)
            assert json.loads((await peer.until("clients/1")).payload)["outcome"] == "undetermined"
        assert bridge.statistics().losses == 0


async def test_a_question_that_cannot_be_meant_is_rejected_with_the_reason(tmp_path: Path) -> None:
    async def puzzled(*_: object) -> dict[str, Any]:
        raise GatewayError("`proposl` is unknown; did you mean `proposal`?")

    port = free_port()
    async with demo_broker(port, tmp_path), peer_at(port) as peer, running(port, puzzled) as bridge:
        await peer.subscribe("clients/1")
        await eventually(lambda: bridge.statistics().published >= 1)
        await peer.publish("o3/test/decide/p", b'{"proposl": {}}', reply_to="clients/1", correlation=b"1")
        answer = json.loads((await peer.until("clients/1")).payload)
        assert answer["outcome"] == "rejected"
        assert answer["reason"] == "`proposl` is unknown; did you mean `proposal`?"
        assert bridge.statistics().requests_rejected == 1


async def test_after_a_broker_restart_tags_and_verdicts_of_the_outage_arrive(tmp_path: Path) -> None:
    """The peer has subscribed to the new broker before the bridge is let in."""
    port = free_port()
    async with RecordingProxy("127.0.0.1", port) as proxy, running(proxy.port) as bridge:
        async with demo_broker(port, tmp_path) as broker:
            assert broker is not None
            bridge.publish_tag(TagId("TK1.TT101"), good(45.0))
            await eventually(lambda: bridge.statistics().published >= 2)
            proxy.refuse()
            broker.send_signal(signal.SIGKILL)
            await eventually(lambda: not bridge.statistics().connected)
        assert not bridge.health().ok
        for level in (1.0, 2.0, 3.0):
            bridge.publish_tag(TagId("TK1.LT101"), good(level))
            bridge.publish_verdict(PointId("p"), {"n": level})
        async with demo_broker(port, tmp_path), peer_at(port) as peer:
            await peer.subscribe("o3/test/#")
            proxy.resume()
            await eventually(lambda: bridge.statistics().connected)
            seen: dict[str, list[bytes]] = {}
            while len(seen.get("o3/test/points/p/verdict", ())) < 3 or len(seen) < 4:
                message = await peer.next()
                seen.setdefault(message.topic, []).append(bytes(message.payload))
            assert [json.loads(v)["n"] for v in seen["o3/test/points/p/verdict"]] == [1.0, 2.0, 3.0]
            assert [json.loads(v)["value"] for v in seen["o3/test/tags/TK1/LT101"]] == [3.0]
            assert [json.loads(v)["value"] for v in seen["o3/test/tags/TK1/TT101"]] == [45.0]
            assert seen["o3/test/status"] == [b"online"]
            assert bridge.statistics().backlog.coalesced == 2
            assert bridge.health().ok


async def test_a_frozen_broker_loses_no_verdict(tmp_path: Path) -> None:
    """Sent is not delivered: what had no PUBACK when the link died is sent again, in order.

    The peer has subscribed to the new broker before the bridge is let in.
    """
    port = free_port()
    async with (
        RecordingProxy("127.0.0.1", port) as proxy,
        running(proxy.port, keepalive_s=600) as bridge,
    ):
        async with demo_broker(port, tmp_path) as broker:
            assert broker is not None
            await eventually(lambda: bridge.statistics().published >= 1)
            broker.send_signal(signal.SIGSTOP)
            for n in range(5):
                bridge.publish_verdict(PointId("p"), {"n": n})
            await eventually(lambda: bridge.statistics().backlog.events_due == 0)
            assert bridge.statistics().published == 1
            proxy.refuse()
            broker.send_signal(signal.SIGKILL)
            await eventually(lambda: not bridge.statistics().connected)
            assert bridge.statistics().backlog.events_due == 5
        async with demo_broker(port, tmp_path), peer_at(port) as peer:
            await peer.subscribe("o3/test/points/#")
            proxy.resume()
            assert [json.loads((await peer.next()).payload)["n"] for _ in range(5)] == list(range(5))


async def test_a_stop_while_the_broker_is_frozen_is_bounded(tmp_path: Path) -> None:
    port = free_port()
    async with demo_broker(port, tmp_path) as broker:
        assert broker is not None
        async with asyncio.timeout(PATIENCE_S):  # less than it takes to notice that nobody answers
            async with running(port, keepalive_s=600) as bridge:
                await eventually(lambda: bridge.statistics().published >= 1)
                broker.send_signal(signal.SIGSTOP)
        broker.send_signal(signal.SIGCONT)


@needs_setpriv
async def test_the_demo_broker_dies_with_its_parent(tmp_path: Path) -> None:
    program = (
        "import asyncio, os, pathlib, signal, sys\n"
        "from gateway.protocols.mqtt.broker import demo_broker\n"
        "async def main():\n"
        "    async with demo_broker(int(sys.argv[1]), pathlib.Path(sys.argv[2])) as broker:\n"
        "        print(broker.pid, flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        str(free_port()),
        str(tmp_path),
        cwd=REPOSITORY,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await parent.communicate()
    await eventually(lambda: not _runs(int(output)))


async def test_a_taken_port_is_told_and_not_mistaken_for_our_broker(tmp_path: Path) -> None:
    port = free_port()
    async with demo_broker(port, tmp_path / "first"):
        with pytest.raises(LinkBrokenError, match="did not start"):
            async with demo_broker(port, tmp_path / "second"):
                pass


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"
