"""Commands of a page, typed as a newcomer would into a shell in the checkout."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.integration.house import ROOT, SLOWEST, House
from tests.integration.picture import Picture

_LONGEST_S = 120.0


async def typed(text: str, folder: Path) -> str:
    """What a block prints, typed in the checkout; each of its commands must succeed."""
    shell = await _shell(text, folder)
    async with asyncio.timeout(SLOWEST * _LONGEST_S):
        out, _ = await shell.communicate()
    assert shell.returncode == 0, f"{text}\n{out.decode()}"
    return out.decode()


async def followed(command: str, folder: Path, until: bytes) -> str:
    """What a command that never ends prints, ended as a person would once that was among it."""
    shell = await _shell(f"exec {command}", folder)
    assert shell.stdout is not None
    out = b""
    try:
        async with asyncio.timeout(SLOWEST * _LONGEST_S):
            while until not in out:
                line = await shell.stdout.readline()
                assert line, f"{command} ended by itself\n{out.decode()}"
                out += line
    finally:
        shell.send_signal(signal.SIGINT)
        rest, _ = await shell.communicate()
    out += rest
    assert b"Traceback" not in out, out.decode()
    return out.decode()


async def _shell(text: str, folder: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *("bash", "-euo", "pipefail", "-c", text),
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "O3_SOCKET": str(folder / "var/demo/state/run/o3.sock"),
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


def checkout(folder: Path, house: House) -> Path:
    """A folder that looks like the checkout in which the demo runs."""
    folder.mkdir()
    (folder / "var").mkdir()
    (folder / "var" / "demo").symlink_to(house.folder)
    (folder / "constraints").symlink_to(ROOT / "constraints")
    return folder


def stands(picture: Picture, module: str, state: str) -> bool:
    """Whether a module is known to be in that state."""
    known = picture.modules.get(module)
    return known is not None and known.state == state
