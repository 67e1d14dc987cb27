"""Main as o3-opcua sees it: the real internal port, with a Feed and answers under test control."""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from asyncua import Client, ua
from asyncua.crypto import security_policies

from gateway.link.client import LinkClient
from gateway.link.messages import (
    Answer,
    Ask,
    DecisionView,
    FeedItem,
    GatewayState,
    ModuleState,
    PointState,
    TagInfo,
    TagState,
)
from gateway.link.server import LinkServer, Peer, own_uids
from gateway.protocols.opcua import pki
from gateway.protocols.opcua.passwords import hash_password
from gateway.protocols.opcua.process import Running, follow, serving
from gateway.protocols.opcua.settings import Settings, UserSettings
from gateway.protocols.opcua.wire import Foreign

SOURCE_NS = 1_700_000_000_123_456_000
PASSWORD = "correct horse"  # noqa: S105  # a test's
HASH = hash_password(PASSWORD)
TIMEOUT_S = 120.0  # a full machine took 14 s for the first picture


def tag_info(name: str, kind: str = "real", unit: str = "m", low: float | None = 0.0) -> TagInfo:
    high = 5.0 if low is not None else None
    return TagInfo(id=name, kind=kind, unit=unit, description="", low=low, high=high, writable=False)


def tag_state(name: str, value: Foreign, status: int = 0, at_ns: int = SOURCE_NS) -> TagState:
    return TagState(id=name, value=value, status=status, source_ts_ns=at_ns, server_ts_ns=at_ns + 1_000_000)


def decision(number: str, outcome: str, at_ns: int) -> DecisionView:
    return DecisionView(
        id=number,
        point="buffer-tank",
        mode="armed",
        requested_by="period",
        at_ns=at_ns,
        outcome=outcome,
        reason="",
        proposal={"TK1.P101.SP": "80.0"},
        setpoints={"TK1.P101.SP": "40.5"} if outcome in {"permitted", "repaired"} else {},
        written_by="verdict",
        violated=[] if outcome == "permitted" else ["buffer-tank/max-level"],
        counterexample="" if outcome == "permitted" else "level reaches 4.6 m",
        counterexample_json="{}",
        margins=[("buffer-tank/max-level", "0.1", "m")],
        generation=3,
        rule_set_digest="rules",
        model_digest="model",
        certificate_digest="cert",
        confidence=None,
        write_outcome="confirmed",
        timings_ms={"check": 3.0, "propose": 2.0},
        inputs={},
    )


def gateway_state(*, healthy: bool = True) -> GatewayState:
    return GatewayState(
        id="line-3",
        version="0.1.0",
        started_ns=SOURCE_NS,
        healthy=healthy,
        parts={"plc1": "ok"},
        generation=3,
        rule_set_digest="rules",
        counters={"decisions": 7},
        writes_stopped=False,
        config_digest="config",
        inference={},
    )


POINT = PointState(
    id="buffer-tank",
    mode="armed",
    inputs=["TK1.LT101"],
    outputs=["TK1.P101.SP"],
    model="buffer-tank",
    alarm="",
    last_decision="",
    in_control=True,
    blocked="",
)
MODULE = ModuleState(
    id="buffer-tank",
    file="buffer-tank.json",
    state="active",
    revision=4,
    digest="abc",
    priority=5,
    last_attempt_ns=SOURCE_NS,
    last_success_ns=SOURCE_NS,
    refused_because=[],
    constraints=["max-level"],
)


def plant() -> list[FeedItem]:
    return [
        tag_info("TK1.LT101"),
        tag_info("TK1.H101.CMD", kind="boolean", unit="", low=None),
        tag_info("TK1.M101.STAGE", kind="integer", unit=""),
        tag_state("TK1.LT101", 2.0),
        tag_state("TK1.H101.CMD", value=True),
        POINT,
        MODULE,
        gateway_state(),
    ]


@dataclass
class FakeMain:
    """Main under test control: `items` is the next snapshot, `publish` a delta, `answers` what Ask gets."""

    path: Path
    items: list[FeedItem] = field(default_factory=plant)
    asked: list[Ask] = field(default_factory=list)
    answers: Callable[[Ask], Answer] = lambda ask: Answer(id=ask.id, ok=True, result={})
    server: LinkServer | None = None

    async def _answer(self, ask: Ask, _peer: Peer) -> Answer:
        if ask.verb != "status":
            self.asked.append(ask)
        return self.answers(ask)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        self.server = LinkServer(self.path, self._answer, lambda: list(self.items), own_uids())
        async with self.server.listening():
            yield

    def publish(self, item: FeedItem) -> None:
        assert self.server is not None
        self.server.publish(item)


@dataclass
class Rig:
    """A running o3-opcua between a fake main and OPC UA clients."""

    running: Running
    main: FakeMain
    directory: Path
    settings: Settings
    stack: AsyncExitStack
    main_stack: AsyncExitStack

    @property
    def url(self) -> str:
        return f"opc.tcp://127.0.0.1:{self.running.server.port}/o3"

    async def client(
        self,
        user: str = "operator",
        password: str = PASSWORD,
        policy: type[Any] = security_policies.SecurityPolicyAes256Sha256RsaPss,
        identity: pki.Identity | None = None,
    ) -> Client:
        """A connected client, closed at the end of the test."""
        return await self.stack.enter_async_context(await self.unconnected(user, password, policy, identity))

    async def unconnected(
        self,
        user: str = "operator",
        password: str = PASSWORD,
        policy: type[Any] = security_policies.SecurityPolicyAes256Sha256RsaPss,
        identity: pki.Identity | None = None,
    ) -> Client:
        identity = identity or pki.demo_client(self.directory)
        client = Client(self.url, timeout=TIMEOUT_S)
        client.application_uri = identity.uri
        await client.set_security(
            policy,
            str(identity.certificate),
            str(identity.private_key),
            server_certificate=str(self.directory / "own" / "cert.der"),
            mode=ua.MessageSecurityMode.SignAndEncrypt,
        )
        client.set_user(user)
        client.set_password(password)
        return client

    async def stop_main(self) -> None:
        await self.main_stack.aclose()

    async def start_main(self) -> None:
        await self.main_stack.enter_async_context(self.main.listening())


@cache
def pki_template() -> Path:
    """Our certificate and the demo client's, made once a run: keys are slow to make."""
    directory = Path(tempfile.mkdtemp(prefix="o3-pki-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    pki.TrustList(directory)
    pki.own_identity(directory, "urn:o3-gateway:line-3", [])
    pki.demo_client(directory)
    return directory


@asynccontextmanager
async def rig(tmp_path: Path, **changes: Foreign) -> AsyncIterator[Rig]:
    """o3-opcua on a free port, synchronised with a fake main."""
    main = FakeMain(tmp_path / "o3.sock")
    await asyncio.to_thread(shutil.copytree, pki_template(), tmp_path / "pki", dirs_exist_ok=True)
    roles = {"viewer": "viewer", "operator": "operator", "engineer": "engineer"}
    users = [UserSettings(name=name, password_hash=HASH, role=role) for name, role in roles.items()]  # type: ignore[arg-type]  # literals
    settings = Settings(
        **{"gateway_id": "line-3", "pki_dir": str(tmp_path / "pki"), "port": 0, "users": users, **changes}
    )
    async with AsyncExitStack() as stack, AsyncExitStack() as main_stack:
        await main_stack.enter_async_context(main.listening())
        running = await stack.enter_async_context(serving(settings))
        follower = asyncio.create_task(follow(running, lambda: LinkClient.connect(main.path, "o3-opcua")))

        async def stop_following() -> None:
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)

        stack.push_async_callback(stop_following)
        made = Rig(running, main, tmp_path / "pki", settings, stack, main_stack)
        await eventually(lambda: running.mirror.synchronised)
        yield made


async def eventually(condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    """Return when `condition` holds; the loop turns meanwhile."""
    async with asyncio.timeout(timeout_s):  # what is waited for has no event to wait on
        while not condition():  # noqa: ASYNC110  # a state of another task, seen from outside
            await asyncio.sleep(0.01)
