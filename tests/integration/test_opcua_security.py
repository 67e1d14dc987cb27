"""What the stock server lets through and ours must not: each a black-box test over TCP."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from asyncua import Client, ua
from asyncua.crypto import security_policies
from asyncua.ua.ua_binary import struct_from_binary

from gateway.protocols.opcua import pki
from gateway.protocols.opcua.settings import Limits
from gateway.protocols.opcua.wire import Foreign
from tests.integration.opcua_peer import HASH, PASSWORD, TIMEOUT_S, FakeMain, Rig, eventually, rig, tag_state

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

LEVEL = "ns=1;s=Tags/TK1.LT101"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    async with rig(tmp_path_factory.mktemp("opcua")) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def gateway(shared: Rig) -> AsyncIterator[Rig]:
    """The shared server with connections of this test's own, closed when it ends."""
    async with AsyncExitStack() as stack:
        yield replace(shared, stack=stack)


async def code_of(awaitable: Foreign) -> str:
    """Name of the StatusCode an operation ends with."""
    with pytest.raises(ua.UaStatusCodeError) as caught:
        await awaitable
    return str(ua.StatusCode(caught.value.code).name)


def _protocol(client: Client) -> Foreign:
    return client.uaclient.protocol


async def refused(client: Client) -> None:
    """A connection attempt that must not end in a session."""
    try:
        with pytest.raises((ua.UaError, ConnectionError, TimeoutError, OSError)):
            await client.connect()
    finally:
        client.disconnect_socket()
        await asyncio.gather(client.disconnect(), return_exceptions=True)


async def test_a_session_on_a_none_channel_is_refused_when_only_secured_endpoints_are_offered(
    gateway: Rig,
) -> None:
    client = Client(gateway.url, timeout=TIMEOUT_S)
    await client.connect_socket()
    await client.send_hello()
    await client.open_secure_channel()
    endpoints = await client.get_endpoints()  # discovery stays possible
    assert len(endpoints) == 3
    assert await code_of(client.create_session()) == "BadSecurityPolicyRejected"
    await client.close_secure_channel()
    client.disconnect_socket()


async def test_a_session_without_the_channels_certificate_is_refused(gateway: Rig) -> None:
    client = await gateway.unconnected()
    await client.connect_socket()
    await client.send_hello()
    await client.open_secure_channel()
    parameters = ua.CreateSessionParameters()
    parameters.ClientNonce = bytes(32)
    parameters.ClientDescription.ApplicationUri = client.application_uri
    parameters.RequestedSessionTimeout = 60_000
    parameters.ClientCertificate = None
    assert await code_of(client.uaclient.create_session(parameters)) == "BadCertificateInvalid"
    other = pki.Identity(gateway.directory / "o.der", gateway.directory / "o.pem", client.application_uri)
    pki.make_certificate(other, "other", ["localhost"], server=False)
    pki.trust(gateway.directory, other.certificate)
    parameters.ClientCertificate = other.certificate.read_bytes()
    assert await code_of(client.uaclient.create_session(parameters)) == "BadCertificateInvalid"
    await client.close_secure_channel()
    client.disconnect_socket()


@pytest.mark.parametrize(
    "policy",
    [
        security_policies.SecurityPolicyBasic256Sha256,
        security_policies.SecurityPolicyAes128Sha256RsaOaep,
        security_policies.SecurityPolicyAes256Sha256RsaPss,
    ],
)
async def test_every_policy_offered_carries_a_session(gateway: Rig, policy: type[Any]) -> None:
    client = await gateway.client("viewer", policy=policy)
    assert await client.get_node(LEVEL).read_value() == 2.0


async def test_an_untrusted_certificate_is_refused_and_kept_in_rejected(gateway: Rig) -> None:
    stranger = pki.Identity(gateway.directory / "s.der", gateway.directory / "s.pem", "urn:stranger")
    pki.make_certificate(stranger, "stranger", ["localhost"], server=False)
    await refused(await gateway.unconnected(identity=stranger))
    (kept,) = (gateway.directory / "rejected").iterdir()
    assert kept.read_bytes() == stranger.certificate.read_bytes()
    pki.trust(gateway.directory, kept)  # takes effect without a restart
    client = await gateway.client(identity=stranger)
    assert await client.get_node(LEVEL).read_value() == 2.0


async def test_a_certificate_of_another_application_is_refused(gateway: Rig) -> None:
    client = await gateway.unconnected()
    client.application_uri = "urn:somebody:else"
    await refused(client)


@pytest.mark.parametrize(
    ("user", "password"),
    [("operator", "wrong"), ("admin", "admin"), ("admin", PASSWORD), ("Admin", ""), ("", PASSWORD)],
)
async def test_a_wrong_name_or_password_opens_nothing(gateway: Rig, user: str, password: str) -> None:
    await refused(await gateway.unconnected(user, password))


async def test_an_anonymous_session_is_refused_on_a_secured_endpoint(gateway: Rig) -> None:
    client = await gateway.unconnected()
    client._username = client._password = None
    await refused(client)


async def test_guessing_a_password_must_wait(tmp_path: Path) -> None:
    async with rig(tmp_path, limits=Limits(login_failures=2, login_wait_s=3600)) as made:
        for _ in range(2):
            await refused(await made.unconnected("operator", "wrong"))
        await refused(await made.unconnected("operator", PASSWORD))  # right, and still too early
        viewer = await made.client("viewer")  # another name is not held up
        assert await viewer.get_node(LEVEL).read_value() == 2.0


async def test_authentication_tokens_are_random(gateway: Rig) -> None:
    tokens = []
    for _ in range(3):
        client = await gateway.client("viewer")
        tokens.append(_protocol(client).authentication_token)
    assert len({t.Identifier for t in tokens}) == 3
    assert all(t.NodeIdType == ua.NodeIdType.ByteString and len(t.Identifier) == 32 for t in tokens)


async def test_a_request_with_another_sessions_token_is_refused(gateway: Rig) -> None:
    victim, attacker = await gateway.client("viewer"), await gateway.client("viewer")
    own = _protocol(attacker).authentication_token
    _protocol(attacker).authentication_token = _protocol(victim).authentication_token
    assert await code_of(attacker.get_node(LEVEL).read_value()) == "BadSessionIdInvalid"
    _protocol(attacker).authentication_token = own


class Nothing:
    """A handler that does not care."""

    def datachange_notification(self, _node: Foreign, _value: Foreign, _data: Foreign) -> None: ...


async def test_a_foreign_subscription_is_as_unknown_as_none(gateway: Rig) -> None:
    victim, attacker = await gateway.client("viewer"), await gateway.client("operator")
    subscription = await victim.create_subscription(100, Nothing())
    await subscription.subscribe_data_change(victim.get_node(LEVEL))
    mine = await attacker.create_subscription(100, Nothing())  # so that publishing is allowed
    number = subscription.subscription_id
    assert number is not None
    (code,) = await attacker.uaclient.delete_subscriptions([number])
    assert code.name == "BadSubscriptionIdInvalid"
    mode = ua.SetPublishingModeParameters(PublishingEnabled=False, SubscriptionIds=[number])
    codes = await attacker.uaclient.set_publishing_mode(mode)
    assert [c.name for c in codes] == ["BadSubscriptionIdInvalid"]
    items = ua.CreateMonitoredItemsParameters()
    items.SubscriptionId = number
    items.ItemsToCreate = [ua.MonitoredItemCreateRequest()]
    assert await code_of(attacker.uaclient.create_monitored_items(items)) == "BadSubscriptionIdInvalid"
    (moved,) = await attacker.uaclient.transfer_subscriptions(
        ua.TransferSubscriptionsParameters(SubscriptionIds=[number], SendInitialValues=True)
    )
    assert moved.StatusCode.name == "BadUserAccessDenied"
    assert number in gateway.running.server.internal.subscription_service.subscriptions
    await mine.delete()


async def test_nobody_registers_a_server(gateway: Rig) -> None:
    client = Client(gateway.url, timeout=TIMEOUT_S)
    await client.connect_socket()
    await client.send_hello()
    await client.open_secure_channel()
    server = ua.RegisteredServer()
    server.ServerUri = "urn:evil"
    server.ServerNames = [ua.LocalizedText("evil")]
    assert await code_of(client.uaclient.register_server(server)) == "BadServiceUnsupported"
    parameters = ua.RegisterServer2Parameters()
    parameters.Server = server
    assert await code_of(client.uaclient.register_server2(parameters)) == "BadServiceUnsupported"
    assert [s.ApplicationUri for s in await client.find_servers()] == ["urn:o3-gateway:line-3"]
    await client.close_secure_channel()
    client.disconnect_socket()


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (struct.pack("<3scI", b"HEL", b"F", 2**31), "BadTcpMessageTooLarge"),
        (struct.pack("<3scI", b"OPN", b"F", 70_000), "BadTcpMessageTooLarge"),
        (struct.pack("<3scI", b"MSG", b"F", 3), "BadTcpMessageTooLarge"),
        (b"GET / HTTP/1.1\r\n\r\n", "BadTcpMessageTypeInvalid"),
        (struct.pack("<3scIIIIII", b"MSG", b"F", 28, 0, 0, 1, 1, 0), "BadTcpSecureChannelUnknown"),
    ],
)
async def test_a_header_that_declares_too_much_or_nothing_sensible_closes_the_connection(
    gateway: Rig, header: bytes, code: str
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.running.server.port)
    writer.write(header)
    async with asyncio.timeout(TIMEOUT_S):
        answer = await reader.read()  # ends: the server closed
    assert answer[:4] == b"ERRF"
    message = struct_from_binary(ua.ErrorMessage, ua.utils.Buffer(answer[8:]))
    assert message.Error.name == code
    writer.close()


async def test_a_message_in_many_chunks_may_not_grow_before_a_session(gateway: Rig) -> None:
    """64 kB before a session: a stranger costs no more memory than that."""
    client = Client(gateway.url, timeout=TIMEOUT_S)
    await client.connect_socket()
    await client.send_hello()
    await client.open_secure_channel()
    parameters = ua.GetEndpointsParameters()
    parameters.LocaleIds = ["x" * 1000] * 200
    request = ua.GetEndpointsRequest()
    request.Parameters = parameters
    with pytest.raises((ua.UaError, ConnectionError, TimeoutError)):
        await _protocol(client).send_request(request)
    client.disconnect_socket()


async def test_the_demos_endpoint_reads_and_nothing_more(tmp_path: Path) -> None:
    async with rig(tmp_path, loopback_none=True) as made:
        client = Client(made.url, timeout=TIMEOUT_S)
        async with client:
            assert await client.get_node(LEVEL).read_value() == 2.0
            point = client.get_node("ns=1;s=DecisionPoints/buffer-tank")
            call = point.call_method("1:RequestDecision", ua.Variant(""), ua.Variant(0.0), ua.Variant(""))
            assert await code_of(call) == "BadUserAccessDenied"
            assert not made.main.asked
        named = Client(made.url, timeout=TIMEOUT_S)
        named.set_user("operator")
        named.set_password(PASSWORD)
        await refused(named)  # no password over None


async def test_a_session_whose_connection_broke_makes_room_for_a_new_one(tmp_path: Path) -> None:
    """A client that reconnects again and again must not lock itself out."""
    async with rig(tmp_path, limits=Limits(sessions=2)) as made:
        await made.client("viewer")
        lost = await made.unconnected("viewer")
        await lost.connect()
        await lost.create_subscription(100, Nothing())  # keeps the session alive without a connection
        _protocol(lost).transport.abort()
        internal = made.running.server.internal
        await eventually(lambda: len(made.running.server.bserver.clients) == 1)  # type: ignore[union-attr]  # started
        assert internal.session_count() == 2
        again = await made.client("viewer")
        assert await again.get_node(LEVEL).read_value() == 2.0
        await asyncio.gather(lost.disconnect(), return_exceptions=True)


async def test_a_subscription_moves_to_a_new_session_of_its_owner_without_a_gap(gateway: Rig) -> None:
    first = await gateway.unconnected("operator")
    await first.connect()
    subscription = await first.create_subscription(100, Nothing())
    await subscription.subscribe_data_change(first.get_node("ns=1;s=Tags/TK1.M101.STAGE"))
    number = subscription.subscription_id
    assert number is not None
    _protocol(first).transport.abort()
    await asyncio.gather(first.disconnect(), return_exceptions=True)
    service = gateway.running.server.internal.subscription_service
    await eventually(lambda: len(gateway.running.server.bserver.clients) == 0)  # type: ignore[union-attr]  # started
    gateway.main.publish(tag_state("TK1.M101.STAGE", 2))
    second = await gateway.client("operator")
    (moved,) = await second.uaclient.transfer_subscriptions(
        ua.TransferSubscriptionsParameters(SubscriptionIds=[number], SendInitialValues=True)
    )
    assert moved.StatusCode.is_good()
    seen: list[Any] = []
    while not any(value == 2 for value in seen):
        answer = await asyncio.wait_for(second.uaclient.publish([]), TIMEOUT_S)
        assert answer.Parameters.SubscriptionId == number
        for notification in answer.Parameters.NotificationMessage.NotificationData:
            seen += [item.Value.Value.Value for item in notification.MonitoredItems]
    assert number in service.subscriptions


async def test_a_hundred_connections_leave_nothing_behind(gateway: Rig) -> None:
    server = gateway.running.server
    for _ in range(20):
        clients = [await gateway.unconnected("viewer") for _ in range(5)]
        await asyncio.gather(*(client.connect() for client in clients))
        await clients[0].create_subscription(100, Nothing())
        _protocol(clients[1]).transport.abort()
        await asyncio.gather(*(client.disconnect() for client in clients), return_exceptions=True)
    assert server.bserver is not None
    await eventually(lambda: not server.bserver.clients)  # type: ignore[union-attr]  # as above
    await eventually(lambda: server.internal.session_count() == 0)
    assert not server.internal.subscription_service.subscriptions
    assert not server.internal.asyncio_transports


async def test_too_many_sessions_are_refused_and_places_come_back(tmp_path: Path) -> None:
    async with rig(tmp_path, limits=Limits(sessions=2)) as made:
        await made.client("viewer")
        second = await made.unconnected("viewer")
        await second.connect()
        await refused(await made.unconnected("viewer"))
        await second.disconnect()
        third = await made.client("viewer")
        assert await third.get_node(LEVEL).read_value() == 2.0
        internal = made.running.server.internal
        await eventually(lambda: internal.session_count() == 2)


async def test_the_process_tells_when_it_listens_and_ends_on_sigterm(tmp_path: Path) -> None:
    main = FakeMain(tmp_path / "o3.sock")
    config = tmp_path / "opcua.json"
    user = {"name": "viewer", "password_hash": HASH, "role": "viewer"}
    config.write_text(
        json.dumps({"gateway_id": "line-3", "pki_dir": str(tmp_path / "pki"), "port": 0, "users": [user]})
    )
    ours, theirs = os.pipe()
    arguments = ("--link", str(main.path), "--config", str(config), "--ready-fd", str(theirs))
    async with main.listening(), asyncio.timeout(TIMEOUT_S):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway.protocols.opcua", *arguments, pass_fds=(theirs,)
        )
        os.close(theirs)
        port = int(await asyncio.to_thread(os.read, ours, 100))
        os.close(ours)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"nonsense")
        assert (await reader.read())[:3] == b"ERR"
        writer.close()
        process.terminate()
        assert await process.wait() == 0


async def test_the_process_ends_when_its_parent_was_gone_before_it_could_look(tmp_path: Path) -> None:
    config = tmp_path / "opcua.json"
    config.write_text(json.dumps({"gateway_id": "line-3", "pki_dir": str(tmp_path / "pki"), "port": 0}))
    arguments = ("--link", str(tmp_path / "o3.sock"), "--config", str(config), "--parent", str(2**22 + 1))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway.protocols.opcua", *arguments
    )
    async with asyncio.timeout(TIMEOUT_S):
        assert await process.wait() == 0
