"""Throw-away Python environments for tools that cannot live beside the gateway."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.inference_exports import EXPORTS

PYTHON = (3, 11)  # of which the requirements are pinned
_NO_NETWORK = ("error sending request", "dns error", "Could not connect", "Connection refused", "timed out")
_NO_INDEX = ("Temporary failure in name resolution", "Failed to establish a new connection")


@contextmanager
def python_with(name: str, folder: Path) -> Iterator[Path]:
    """The Python of an environment with the packages of `name`; skips where there is no network."""
    requirements, python = EXPORTS / f"{name}.txt", folder / "bin" / "python"
    try:
        for words in commands(requirements, folder, python):
            done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
            if done.returncode and any(sign in done.stderr for sign in (*_NO_NETWORK, *_NO_INDEX)):
                pytest.skip(f"no package index can be reached: {done.stderr[-200:]}")
            assert done.returncode == 0, done.stderr
        yield python
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # some take 5 GB


def commands(requirements: Path, folder: Path, python: Path) -> tuple[tuple[str, ...], ...]:
    """What makes an environment: by uv where that is installed, else by this Python; may skip."""
    version = ".".join(map(str, PYTHON))
    uv = shutil.which("uv")
    if uv is not None:
        return (
            (uv, "venv", str(folder), "--python", version),
            (uv, "pip", "install", "--python", str(folder), "-r", str(requirements)),
        )
    if sys.version_info[:2] != PYTHON:
        pytest.skip(f"needs Python {version}, or uv, which brings it: pip install uv")
    pip = (str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check")
    return (sys.executable, "-m", "venv", str(folder)), (*pip, "-r", str(requirements))
