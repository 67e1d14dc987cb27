"""A client of another make: node-opcua, over each policy with OAEP."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from gateway.link.messages import Answer
from gateway.protocols.opcua import pki
from tests.integration.opcua_peer import PASSWORD, rig

PEERS = Path(__file__).parents[1] / "peers"
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(NODE is None, reason="node is not installed: apt-get install nodejs"),
    pytest.mark.skipif(
        not (PEERS / "node_modules" / "node-opcua-client").is_dir(),
        reason="node-opcua is not installed: npm ci in tests/peers",
    ),
]


@pytest.mark.parametrize("policy", ["Basic256Sha256", "Aes128_Sha256_RsaOaep", "Aes256_Sha256_RsaPss"])
async def test_node_opcua_browses_reads_subscribes_and_calls(tmp_path: Path, policy: str) -> None:
    view = {
        "outcome": "permitted",
        "setpoints": {"TK1.P101.SP": "40.5"},
        "id": "d9",
        "certificate_digest": "c",
    }
    async with rig(tmp_path) as made:
        made.main.answers = lambda ask: Answer(id=ask.id, ok=True, result=view)
        client = pki.demo_client(made.directory)
        settings = {
            "url": made.url,
            "policy": policy,
            "certificate": str(client.certificate),
            "privateKey": str(client.private_key),
            "uri": client.uri,
            "user": "operator",
            "password": PASSWORD,
            "pki": str(tmp_path / "peer-pki"),
        }
        assert NODE is not None
        process = await asyncio.create_subprocess_exec(
            NODE,
            str(PEERS / "opcua_client.mjs"),
            json.dumps(settings),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=PEERS,
        )
        async with asyncio.timeout(300):
            output, problems = await process.communicate()
        assert process.returncode == 0, problems.decode()
        report = json.loads(output.decode().strip().splitlines()[-1])
        assert {"Mode", "Verdict", "RequestDecision"} <= set(report["children"])
        assert report["level"] == {"value": 2.0, "status": "Good", "source": "2023-11-14T22:13:20.123Z"}
        assert (report["unit"], report["range"]) == ("m", [0.0, 5.0])
        assert report["written"] == "BadNotWritable"
        assert report["changed"] == 2.0
        assert report["call"] == "Good"
        assert report["outputs"] == ["permitted", '{"TK1.P101.SP": "40.5"}', "", "c", "d9", ""]
        assert made.main.asked[0].user == "operator"
