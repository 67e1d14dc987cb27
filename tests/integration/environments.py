"""Throw-away Python environments for tools that cannot live beside the gateway."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.inference_exports import EXPORTS

_NO_NETWORK = ("error sending request", "dns error", "Could not connect", "Connection refused", "timed out")


@contextmanager
def python_with(name: str, folder: Path) -> Iterator[Path]:
    """The Python of an environment with the packages of `name`; skips where there is no uv or no network."""
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed: pip install uv")
    try:
        for words in (
            ("venv", str(folder), "--python", "3.11"),
            ("pip", "install", "--python", str(folder), "-r", str(EXPORTS / f"{name}.txt")),
        ):
            done = subprocess.run((uv, *words), capture_output=True, text=True, check=False)  # noqa: S603
            if done.returncode and any(sign in done.stderr for sign in _NO_NETWORK):
                pytest.skip(f"no package index can be reached: {done.stderr[-200:]}")
            assert done.returncode == 0, done.stderr
        yield folder / "bin" / "python"
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # some take 5 GB
