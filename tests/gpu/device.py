"""The device as its own tool describes it; nothing here needs one but `asked`."""

from __future__ import annotations

import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import version

QUERY = ("name", "driver_version", "memory.total", "memory.used")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The first device; memory in MiB, of all processes on it."""

    name: str
    driver: str
    total_mib: int
    used_mib: int


def device_of(told: str) -> Device:
    """From a line `name, driver, total, used`; raises `ValueError` for any other."""
    first = next(iter(told.strip().splitlines()), "")
    name, driver, total, used = (part.strip() for part in first.rsplit(",", 3))
    return Device(name=name, driver=driver, total_mib=int(total), used_mib=int(used))


def asked() -> Device:
    """The first device now; raises `OSError` or `CalledProcessError` where there is none to ask."""
    told = subprocess.run(  # noqa: S603  a fixed command
        ("nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"),  # noqa: S607
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return device_of(told.stdout)


def versions() -> dict[str, str]:
    """What the figures depend on beside the device."""
    return {
        "onnxruntime": _version("onnxruntime-gpu") or _version("onnxruntime"),
        "numpy": _version("numpy"),
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except ModuleNotFoundError:  # also `PackageNotFoundError`
        return ""
