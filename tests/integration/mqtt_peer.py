"""A plain MQTT 5 client with paho's own thread, and a broker on a free port: the other side of the bridge."""

from __future__ import annotations

import asyncio
import queue
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from gateway.protocols.mqtt.broker import mosquitto_path

PATIENCE_S = 60.0  # only a failure waits so long

needs_mosquitto = pytest.mark.skipif(mosquitto_path() is None, reason="mosquitto is not installed")
needs_setpriv = pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")


def no_delay(sock: object) -> None:
    assert isinstance(sock, socket.socket)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Peer:
    """Subscribes, publishes, and keeps what arrives."""

    def __init__(self, port: int) -> None:
        self._messages: queue.Queue[MQTTMessage] = queue.Queue()
        self._subscribed: queue.Queue[int] = queue.Queue()
        self._client = Client(CallbackAPIVersion.VERSION2, "", protocol=MQTTProtocolVersion.MQTTv5)
        self._client.on_message = lambda _c, _u, message: self._messages.put(message)
        self._client.on_subscribe = lambda _c, _u, mid, _r, _p: self._subscribed.put(mid)
        self._client.on_socket_open = lambda _c, _u, sock: no_delay(sock)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    async def subscribe(self, topic: str) -> None:
        options = SubscribeOptions(qos=1, retainAsPublished=True)
        _, mid = self._client.subscribe(topic, options=options)
        assert await asyncio.to_thread(self._subscribed.get, timeout=PATIENCE_S) == mid

    async def next(self) -> MQTTMessage:
        return await asyncio.to_thread(self._messages.get, timeout=PATIENCE_S)

    async def until(self, topic: str, payload: bytes | None = None) -> MQTTMessage:
        """The next message on `topic` (with that payload); those before it are dropped."""
        async with asyncio.timeout(2 * PATIENCE_S):
            while True:
                message = await self.next()
                if message.topic == topic and payload in {None, bytes(message.payload)}:
                    return message

    def nothing_waits(self) -> bool:
        return self._messages.empty()

    async def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        reply_to: str | None = None,
        correlation: bytes = b"",
        user: tuple[tuple[str, str], ...] = (),
        retain: bool = False,
    ) -> None:
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # untyped in paho
        if reply_to is not None:
            properties.ResponseTopic = reply_to
        if correlation:
            properties.CorrelationData = correlation
        if user:
            properties.UserProperty = list(user)
        info = self._client.publish(topic, payload, qos=1, retain=retain, properties=properties)
        await asyncio.to_thread(info.wait_for_publish, PATIENCE_S)
        assert info.is_published()

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@asynccontextmanager
async def peer_at(port: int) -> AsyncIterator[Peer]:
    peer = await asyncio.to_thread(Peer, port)
    try:
        yield peer
    finally:
        await asyncio.to_thread(peer.close)


BRIDGE_CHILD = """\
import asyncio, sys
from gateway.core.clock import SystemClock
from gateway.protocols.mqtt.bridge import MqttBridge
from gateway.protocols.mqtt.settings import MqttSettings
settings = MqttSettings(host="127.0.0.1", port=int(sys.argv[1]), client_id="child", prefix="o3/child")
asyncio.run(MqttBridge(settings, SystemClock()).run())
"""

REPOSITORY = Path(__file__).parents[2]
