"""The process o3-web over a real internal port and real HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from gateway.link.messages import Answer, Ask
from gateway.link.server import LinkServer, Peer, own_uids
from tests.integration.mqtt_peer import PATIENCE_S, REPOSITORY
from tests.ports import free_port
from tests.unit.web_fakes import decision, snapshot

pytestmark = pytest.mark.integration


async def answer(ask: Ask, peer: Peer) -> Answer:
    del peer
    return Answer(id=ask.id, ok=True, result={})


def link_server(path: Path) -> LinkServer:
    return LinkServer(path, answer, lambda: [*snapshot(), decision(1)], own_uids())


@asynccontextmanager
async def web(socket: Path, port: int, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    command = (sys.executable, "-m", "gateway.web", "--link", str(socket), "--port", str(port), *options)
    process = await asyncio.create_subprocess_exec(*command, cwd=REPOSITORY, stderr=asyncio.subprocess.PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def status_becomes(client: httpx.AsyncClient, path: str, code: int) -> httpx.Response:
    async with asyncio.timeout(2 * PATIENCE_S):
        while True:
            try:
                found = await client.get(path)
            except httpx.ConnectError:
                found = None
            if found is not None and found.status_code == code:
                return found
            await asyncio.sleep(0.05)  # an HTTP client has no event to wait for; bounded above


async def test_the_api_follows_the_gateway_through_its_loss_and_return(tmp_path: Path) -> None:
    socket, port = tmp_path / "o3.sock", free_port()
    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client,
        web(socket, port) as process,
    ):
        lost = await status_becomes(client, "/health", 503)
        assert "no gateway answers" in lost.json()["parts"]["link"]
        server = link_server(socket)
        async with server.listening():
            await status_becomes(client, "/health", 200)
            server.publish(decision(2, "refused"))
            found = await status_becomes(client, "/api/v1/decisions/d-2", 200)
            assert found.json()["outcome"] == "refused"
            assert (await client.get("/")).status_code == 200
        gone = await status_becomes(client, "/api/v1/tags", 503)
        assert "no link to the gateway" in gone.text
        async with link_server(socket).listening():
            await status_becomes(client, "/api/v1/tags", 200)
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE_S):
                assert await process.wait() == 0


async def test_a_taken_port_ends_the_process_with_an_error(tmp_path: Path) -> None:
    listener = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with web(tmp_path / "o3.sock", port) as process, asyncio.timeout(2 * PATIENCE_S):
        assert await process.wait() == 1
    listener.close()


async def test_only_a_loopback_address_may_be_listened_on(tmp_path: Path) -> None:
    async with web(tmp_path / "o3.sock", 1, "--host", "0.0.0.0") as process:  # noqa: S104 - must be refused
        _, said = await process.communicate()
        assert process.returncode == 2
        assert b"only a loopback address" in said


async def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    port = free_port()
    program = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-m', 'gateway.web', *sys.argv[1:]])\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    options = ("--link", str(tmp_path / "o3.sock"), "--port", str(port))
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *options, cwd=REPOSITORY, stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
        await status_becomes(client, "/health", 503)
        handle = os.pidfd_open(child)
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(handle, ended.set)
        parent.kill()
        await parent.wait()
        async with asyncio.timeout(PATIENCE_S):
            await ended.wait()
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)


async def test_it_ends_when_the_process_that_started_it_was_gone_before_it_could_look(tmp_path: Path) -> None:
    port = free_port()
    async with (
        web(tmp_path / "o3.sock", port, "--parent", str(2**22 + 1)) as process,
        asyncio.timeout(2 * PATIENCE_S),
    ):
        assert await process.wait() == 0
