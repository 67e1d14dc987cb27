"""One MQTT 5 connection on the event loop: made once, used until it breaks, then thrown away.

Only `_connect_in_thread` runs outside the loop; paho's own network thread is never started.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any, cast

from paho.mqtt.client import CallbackOnSocket, Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from gateway.core.errors import LinkBrokenError, LinkError, LinkRefusedError, LinkTimeoutError, cause
from gateway.protocols.mqtt.backlog import Message
from gateway.protocols.mqtt.requests import Arrival
from gateway.protocols.mqtt.settings import MqttSettings, MqttTls

_WINDOW = 32  # publications without PUBACK: about 1 ms of the loop; the broker may lower it
_RECEIVE_MAXIMUM = 16  # requests the broker may have outstanding to us
_MAX_PACKET_BYTES = 128 * 1024  # a larger request is dropped by the broker
_MISC_PERIOD_S = 1.0

OnArrival = Callable[[Arrival], None]
OnAck = Callable[[int, bool], None]


class MqttLink:
    """A connection to one broker. `lost` is empty while it lives, then says why it ended."""

    def __init__(self, settings: MqttSettings, will: Message) -> None:
        self.lost = ""
        self.window = _WINDOW
        self._settings = settings
        self._name = f"mqtt {settings.host}:{settings.port}"
        self._loop = asyncio.get_running_loop()
        self._connected: asyncio.Future[None] = self._loop.create_future()
        self._acknowledged: dict[int, asyncio.Future[None]] = {}
        self._ended = asyncio.Event()
        self._descriptor = -1
        self._attached = self._abandoned = False
        self._misc: asyncio.TimerHandle | None = None
        self._on_arrival: OnArrival = lambda _arrival: None
        self._on_ack: OnAck = lambda _mid, _ok: None
        self._on_lost: Callable[[], None] = lambda: None
        self._clock: Callable[[], float] = lambda: 0.0
        self._client = self._new_client(will)

    @classmethod
    async def open(
        cls,
        settings: MqttSettings,
        will: Message,
        *,
        clock: Callable[[], float],
        on_arrival: OnArrival,
        on_ack: OnAck,
        on_lost: Callable[[], None],
    ) -> MqttLink:
        """A link whose CONNACK has arrived; raises `LinkError`. A cancel leaves no open socket."""
        link = cls(settings, will)
        link._clock, link._on_arrival = clock, on_arrival
        link._on_ack, link._on_lost = on_ack, on_lost
        try:
            await link._connect()
        except BaseException:
            link.abort()
            raise
        return link

    def publish(self, message: Message) -> int:
        """Send with QoS 1; the message id that `on_ack` will name. Raises `LinkError` on a lost link."""
        if self.lost:
            raise LinkBrokenError(self._name, self.lost)
        properties = _properties(PacketTypes.PUBLISH)
        if message.correlation:
            properties.CorrelationData = message.correlation
        info = self._client.publish(
            message.topic, message.payload, qos=1, retain=message.retain, properties=properties
        )
        if info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            self._check(info.rc)
            raise LinkBrokenError(self._name, self.lost)
        return info.mid

    def subscribe(self, topic: str) -> None:
        """Listen there. Retain-as-published: a retained command is known as one even when it arrives live."""
        self._client.subscribe(topic, options=SubscribeOptions(qos=1, noLocal=True, retainAsPublished=True))

    async def aclose(self, last: Message, grace_s: float) -> None:
        """Publish `last`, wait for its PUBACK, disconnect: within `grace_s`, whatever the broker does."""
        try:
            async with asyncio.timeout(grace_s):
                mid = self.publish(last)
                self._acknowledged[mid] = self._loop.create_future()
                await self._acknowledged[mid]
                self._client.disconnect()
                await self._ended.wait()  # set once the DISCONNECT is on the wire
        except (TimeoutError, LinkError):
            pass  # the broker then publishes the will, which says the same
        finally:
            self.abort()

    def abort(self) -> None:
        """Drop the connection at once; the broker publishes the will unless a DISCONNECT went out."""
        self._abandoned = True
        self._detach()
        self._client.on_socket_close = cast("CallbackOnSocket", None)
        self._client.on_socket_unregister_write = cast("CallbackOnSocket", None)
        self._client.on_disconnect = None
        if (sock := self._client.socket()) is not None:
            sock.close()
        self._lose("closed by us")

    # -- connecting

    async def _connect(self) -> None:
        try:
            await self._loop.run_in_executor(None, self._connect_in_thread)
        except (OSError, ssl.SSLError, ValueError) as exc:
            raise LinkBrokenError(self._name, f"cannot connect ({cause(exc)})") from exc
        self._attach()
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                await self._connected
        except TimeoutError as exc:
            raise LinkTimeoutError(self._name, "the broker did not answer CONNECT") from exc

    def _connect_in_thread(self) -> None:
        """Resolve, connect, TLS handshake: everything that blocks. No callback acts before `_attach`."""
        properties = _properties(PacketTypes.CONNECT)
        properties.ReceiveMaximum = _RECEIVE_MAXIMUM
        properties.MaximumPacketSize = _MAX_PACKET_BYTES
        s = self._settings
        self._client.connect(s.host, s.port, s.keepalive_s, clean_start=True, properties=properties)
        if self._abandoned and (sock := self._client.socket()) is not None:
            sock.close()

    def _new_client(self, will: Message) -> Client:
        s = self._settings
        client = Client(CallbackAPIVersion.VERSION2, s.client_id, protocol=MQTTProtocolVersion.MQTTv5)
        client.connect_timeout = s.connect_timeout_s
        client.max_inflight_messages_set(_WINDOW)
        if s.username is not None:
            client.username_pw_set(s.username, s.password)
        if s.tls is not None:
            client.tls_set_context(_tls_context(s.tls))
        client.will_set(will.topic, will.payload, qos=1, retain=will.retain)
        client.on_socket_open = _set_no_delay
        client.on_socket_close = lambda *_: self._detach()
        client.on_socket_register_write = lambda *_: self._want_write()
        client.on_socket_unregister_write = lambda *_: self._no_more_write()
        client.on_connect = self._on_connect
        client.on_disconnect = lambda _c, _u, _f, reason, _p: self._lose(str(reason))
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        return client

    # -- the socket on the loop

    def _attach(self) -> None:
        sock = self._client.socket()
        if sock is None:
            raise LinkBrokenError(self._name, "the connection closed at once")
        self._descriptor, self._attached = sock.fileno(), True
        self._loop.add_reader(self._descriptor, self._readable)
        if self._client.want_write():
            self._want_write()
        self._readable()  # TLS may already hold decrypted bytes
        self._misc = self._loop.call_later(_MISC_PERIOD_S, self._keep_alive)

    def _detach(self) -> None:
        if not self._attached:
            return
        self._attached = False
        self._loop.remove_reader(self._descriptor)
        self._loop.remove_writer(self._descriptor)
        if self._misc is not None:
            self._misc.cancel()

    def _readable(self) -> None:
        while self._attached:
            self._check(self._client.loop_read())
            sock: Any = self._client.socket()
            if not isinstance(sock, ssl.SSLSocket) or not sock.pending():
                return

    def _want_write(self) -> None:
        if self._attached:
            self._loop.add_writer(self._descriptor, lambda: self._check(self._client.loop_write()))

    def _no_more_write(self) -> None:
        if self._attached:
            self._loop.remove_writer(self._descriptor)

    def _keep_alive(self) -> None:
        self._check(self._client.loop_misc())
        if self._attached:
            self._misc = self._loop.call_later(_MISC_PERIOD_S, self._keep_alive)

    def _check(self, code: MQTTErrorCode) -> None:
        if code != MQTTErrorCode.MQTT_ERR_SUCCESS:
            self._lose(code.name)

    def _lose(self, why: str) -> None:
        if self.lost:
            return
        self.lost = why or "the connection ended"
        self._ended.set()
        self._detach()
        broken = LinkBrokenError(self._name, self.lost)
        for future in (self._connected, *self._acknowledged.values()):
            if not future.done():
                future.set_exception(broken)
                future.exception()  # read once here: nobody may be waiting any more
        self._on_lost()

    # -- packets

    def _on_connect(
        self,
        _client: Client,
        _user: object,
        _flags: object,
        reason: ReasonCode,
        properties: Properties | None,
    ) -> None:
        if self._connected.done():
            return
        if reason.is_failure:
            self._connected.set_exception(LinkRefusedError(self._name, f"the broker refused: {reason}"))
            return
        self.window = min(_WINDOW, getattr(properties, "ReceiveMaximum", _WINDOW))
        self._connected.set_result(None)

    def _on_publish(
        self, _client: Client, _user: object, mid: int, reason: ReasonCode, _properties: object
    ) -> None:
        if (future := self._acknowledged.pop(mid, None)) is not None and not future.done():
            future.set_result(None)
        self._on_ack(mid, not reason.is_failure)

    def _on_message(self, _client: Client, _user: object, message: MQTTMessage) -> None:
        properties = message.properties
        self._on_arrival(
            Arrival(
                point=message.topic.rsplit("/", 1)[-1],
                payload=bytes(message.payload),
                retained=message.retain,
                duplicate=message.dup,
                response_topic=getattr(properties, "ResponseTopic", None),
                correlation=getattr(properties, "CorrelationData", b""),
                user_properties=tuple(getattr(properties, "UserProperty", ())),
                received_at=self._clock(),
            )
        )


def _properties(packet: int) -> Properties:
    return Properties(packet)  # type: ignore[no-untyped-call]  # paho leaves this constructor untyped


def _set_no_delay(_client: Client, _user: object, sock: Any) -> None:  # noqa: ANN401 - paho's SocketLike
    """Without it a QoS 1 request and its response wait 88 ms for a delayed ACK."""
    with contextlib.suppress(OSError):  # the peer may already have closed it; the connect then fails
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class _SelfClosingSocket(ssl.SSLSocket):
    """Closes itself when its handshake fails: paho drops it open, and every attempt would leak one."""

    def do_handshake(self, block: bool = False) -> None:  # noqa: FBT001, FBT002 - the library's signature
        """As the library's."""
        try:
            super().do_handshake(block)
        except OSError:
            self.close()
            raise


def _tls_context(tls: MqttTls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=str(tls.ca_file) if tls.ca_file else None)
        if tls.certificate_file is not None:
            context.load_cert_chain(tls.certificate_file, tls.key_file)
    except (OSError, ssl.SSLError) as exc:
        raise LinkBrokenError("mqtt", f"its certificates cannot be used ({cause(exc)})") from exc
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sslsocket_class = _SelfClosingSocket
    return context
