"""The life of o3-opcua: build, listen, follow main's Feed, mark everything Bad when it is gone."""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import structlog
from asyncua import ua

from gateway.core.clock import Clock, SystemClock
from gateway.core.errors import ConfigError, LinkError, cause, remedy
from gateway.link.client import LinkClient
from gateway.link.messages import FeedBatch
from gateway.protocols.opcua import pki
from gateway.protocols.opcua.access import Login
from gateway.protocols.opcua.mirror import Mirror
from gateway.protocols.opcua.requests import Requests
from gateway.protocols.opcua.server import GatewayServer
from gateway.protocols.opcua.settings import Settings
from gateway.protocols.opcua.wire import sample, standard

log = structlog.get_logger().bind(component="opcua")

_SILENCE_S = 1.0  # without a batch, main is asked whether it lives
_ANSWER_MS = 300.0
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 0.1, 2.0

Connect = Callable[[], Awaitable[LinkClient]]


@dataclass(frozen=True, slots=True)
class Running:
    """A server that listens, and its mirror."""

    server: GatewayServer
    mirror: Mirror
    requests: Requests


@asynccontextmanager
async def serving(settings: Settings, clock: Clock | None = None) -> AsyncIterator[Running]:
    """Listen while the block runs; says goodbye to clients at the end.

    Raises `ConfigError` where certificates or keys cannot be used, `OSError` where it cannot listen.
    """
    clock = clock or SystemClock()
    directory = Path(settings.pki_dir)
    with _identified(directory):
        trust_list = pki.TrustList(directory)
        identity = pki.own_identity(directory, settings.application_uri, settings.hostnames)
        if pki.expires_soon(identity.certificate, dt.datetime.now(dt.UTC)):
            log.warning("certificate_expires", path=str(identity.certificate))
    server = GatewayServer(settings, trust_list, Login(settings.users, settings.limits, clock))
    with _uncollected():
        await server.init()
    with _identified(directory):
        await server.load_identity(identity)
    await describe(server, settings)
    requests = Requests()
    mirror = Mirror(server.internal, requests, clock)
    mirror.identify(nameplate(settings))
    await mirror.lost()
    await server.start()
    try:
        yield Running(server, mirror, requests)
    finally:
        await say_goodbye(server)
        await server.stop()


@contextmanager
def _identified(directory: Path) -> Iterator[None]:
    """What keeps the server from its own certificate and key, as a sentence to act on."""
    try:
        yield
    except OSError as exc:
        why = f"{exc.filename or directory}: {cause(exc)}: {remedy(exc)}"
        raise ConfigError((why,)) from exc
    except ValueError as exc:
        why = (
            f"{directory / 'own'}: the certificate or the key cannot be used: put back a copy, or take both "
            "away: new ones are made at the next start, and every client must trust the new certificate"
        )
        raise ConfigError((why,)) from exc


async def follow(running: Running, connect: Connect) -> None:
    """Mirror the Feed for ever: one fresh connection after another, with back-off; ends when orphaned."""
    parent, backoff_s = os.getppid(), _FIRST_BACKOFF_S
    while os.getppid() == parent:
        try:
            link = await connect()
        except LinkError as exc:
            log.info("link_unavailable", problem=exc.problem)
        else:
            try:
                await _follow_one(running, link)
            except LinkError as exc:
                log.warning("link_lost", problem=exc.problem)
            finally:
                running.requests.link = None
                await running.mirror.lost()
                await link.aclose()
            backoff_s = _FIRST_BACKOFF_S
        await asyncio.sleep(backoff_s)
        backoff_s = min(2 * backoff_s, _LONGEST_BACKOFF_S)
    log.warning("process_orphaned")


async def _follow_one(running: Running, link: LinkClient) -> None:
    """Batches until the link breaks; a silent main is asked, and one that does not answer is lost."""
    running.requests.link = link
    batches: asyncio.Queue[FeedBatch] = asyncio.Queue(1)

    async def receive() -> None:
        async for batch in link.feed():
            await batches.put(batch)

    receiver = asyncio.create_task(receive(), name="opcua-feed")
    try:
        while True:
            waiter = asyncio.create_task(batches.get(), name="opcua-next-batch")
            done, _ = await asyncio.wait(
                {waiter, receiver}, timeout=_SILENCE_S, return_when=asyncio.FIRST_COMPLETED
            )
            if waiter in done:
                await running.mirror.apply(waiter.result())
                continue
            waiter.cancel()
            if receiver in done:
                await receiver
                return
            await link.ask("status", deadline_ms=_ANSWER_MS)
    finally:
        receiver.cancel()
        await asyncio.gather(receiver, return_exceptions=True)


@contextmanager
def _uncollected() -> Iterator[None]:
    """No collections while the standard's nodes are made: all of them stay."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def freeze() -> None:
    """What start-up made stays; a full collection would halt publishing."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def nameplate(settings: Settings) -> dict[str, str]:
    """Who made this and what it is."""
    return {
        "Manufacturer": "O3",
        "Model": "O3 edge gateway",
        "SerialNumber": settings.gateway_id,
        "SoftwareRevision": _version(),
        "ProductInstanceUri": settings.application_uri,
    }


async def describe(server: GatewayServer, settings: Settings) -> None:
    """Build information, capabilities and operation limits as they are enforced."""
    now = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    await server.set_build_info("urn:o3-gateway", "O3", "O3 edge gateway", _version(), "0", now)
    limits, ids = settings.limits, ua.ObjectIds
    prefix = "Server_ServerCapabilities_OperationLimits_"
    for name in [
        "MaxNodesPerRead",
        "MaxNodesPerWrite",
        "MaxNodesPerBrowse",
        "MaxNodesPerTranslateBrowsePathsToNodeIds",
        "MaxMonitoredItemsPerCall",
        "MaxNodesPerRegisterNodes",
    ]:
        await _write(server, getattr(ids, prefix + name), limits.nodes_per_call, ua.VariantType.UInt32)
    await _write(
        server, getattr(ids, prefix + "MaxNodesPerMethodCall"), limits.methods_per_call, ua.VariantType.UInt32
    )
    capabilities = "Server_ServerCapabilities_"
    for name, value, kind in (
        ("MaxBrowseContinuationPoints", limits.continuation_points, ua.VariantType.UInt16),
        ("MaxQueryContinuationPoints", 0, ua.VariantType.UInt16),
        ("MaxHistoryContinuationPoints", 0, ua.VariantType.UInt16),
        ("MinSupportedSampleRate", limits.publishing_interval_ms, ua.VariantType.Double),
    ):
        await _write(server, getattr(ids, capabilities + name), value, kind)
    await _write(server, ids.Server_ServerDiagnostics_EnabledFlag, False, ua.VariantType.Boolean)  # noqa: FBT003  # a value


async def _write(server: GatewayServer, node: int, value: object, kind: ua.VariantType) -> None:
    value_ = sample(ua.Variant(value, kind), source=dt.datetime.now(dt.UTC))
    await server.internal.aspace.write_attribute_value(standard(node), ua.AttributeIds.Value, value_)


async def say_goodbye(server: GatewayServer) -> None:
    """Server state Shutdown, for clients that look."""
    shutdown = ua.ServerState.Shutdown
    await _write(server, ua.ObjectIds.Server_ServerStatus_State, shutdown, ua.VariantType.Int32)


def _version() -> str:
    try:
        return metadata.version("o3-gateway")
    except metadata.PackageNotFoundError:
        return "unknown"
