"""The same decision asked for by an OPC UA Call over SignAndEncrypt, beside the internal port."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from asyncua import Client, ua
from asyncua.crypto import security_policies

from gateway.protocols.opcua.pki import demo_client

RATE_HZ = 20.0
CALLS = 100
POINT = "DecisionPoints/buffer-tank"


async def call_ms(folder: Path, port: int = 4840) -> list[float]:
    """Milliseconds of each Call, at 20 a second, one client, to the demo running in `folder`."""
    identity = demo_client(folder / "state" / "pki")
    client = Client(f"opc.tcp://127.0.0.1:{port}/o3", timeout=10)
    client.application_uri = identity.uri
    await client.set_security(
        security_policies.SecurityPolicyAes256Sha256RsaPss,
        str(identity.certificate),
        str(identity.private_key),
        server_certificate=str(folder / "state" / "pki" / "own" / "cert.der"),
        mode=ua.MessageSecurityMode.SignAndEncrypt,
    )
    client.set_user("engineer")
    client.set_password((folder / "secrets" / "engineer.password").read_text().strip())
    spent: list[float] = []
    async with client:
        point = client.get_node(f"ns=1;s={POINT}")
        method = ua.NodeId.from_string(f"ns=1;s={POINT}/RequestDecision")
        arguments = (
            ua.Variant("", ua.VariantType.String),
            ua.Variant(100.0, ua.VariantType.Double),
            ua.Variant("", ua.VariantType.String),
        )
        began = time.monotonic()
        for number in range(CALLS):
            await asyncio.sleep(max(0.0, began + number / RATE_HZ - time.monotonic()))
            asked = time.perf_counter()
            await point.call_method(method, *arguments)
            spent.append(1000 * (time.perf_counter() - asked))
    return spent
