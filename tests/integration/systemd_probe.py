"""Runs in the unit's place inside a booted systemd: tries what must work and what must not, then stops.

The first run never feeds the watchdog; the second, which only the watchdog can have caused, says so.
"""

import json
import mmap
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.observability.systemd import sd_notify

STATE = Path("/var/lib/o3-gateway")
RESULT = STATE / "result.json"
MODULES = Path("/etc/o3-gateway/constraints.d")


def run_from(folder: str) -> None:
    script = Path(folder) / "script"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    subprocess.run([str(script)], check=True)  # noqa: S603 - must be refused by the kernel


def solve() -> str:
    import z3  # noqa: PLC0415 - loading it under the unit is what is tried

    solver = z3.Solver()
    solver.add(z3.Real("x") > 1)
    return str(solver.check())


def run_model() -> Any:  # noqa: ANN401 - JSON
    import numpy as np  # noqa: PLC0415 - as above
    import onnxruntime as ort  # noqa: PLC0415 - as above

    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    model = (Path(__file__).parents[1] / "data/systemd/add.onnx").read_bytes()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.array([1.0], dtype=np.float32)})[0].tolist()


def serve_opcua() -> str:
    import asyncua  # noqa: PLC0415 - as above

    return str(asyncua.Server.__name__)


TRIALS: dict[str, Callable[[], object]] = {
    "solve": solve,
    "run_model": run_model,
    "serve_opcua": serve_opcua,
    "spawn_worker": lambda: subprocess.run([sys.executable, "-c", ""], check=True).returncode,
    "listen_tcp": lambda: socket.create_server(("127.0.0.1", 0)).close(),
    "listen_unix": lambda: socket.socket(socket.AF_UNIX).bind("/run/o3-gateway/o3.sock"),
    "read_cpuinfo": lambda: bool(Path("/proc/cpuinfo").read_text()),
    "write_state": lambda: (STATE / "written").write_text("x"),
    "write_report": lambda: (MODULES / "m.json.refused.txt").write_text("x"),
    "run_from_state": lambda: run_from("/var/lib/o3-gateway"),
    "run_from_runtime": lambda: run_from("/run/o3-gateway"),
    "run_from_tmp": lambda: run_from("/tmp"),  # noqa: S108 - must be refused by the kernel
    "write_config": lambda: Path("/etc/o3-gateway/gateway.toml").write_text(""),
    "change_module": lambda: (MODULES / "m.json").write_text(""),
    "remove_module": (MODULES / "m.json").unlink,
    "read_credentials": lambda: list(Path("/etc/o3-gateway/credentials").iterdir()),
    "chown": lambda: os.chown("/var/lib/o3-gateway/written", 0, 0),
    "writable_code": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC),
    "raw_packets": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    "become_root": lambda: os.setuid(0),
    "read_home": lambda: list(Path("/home/secret").iterdir()),
}


def attempt(trial: Callable[[], object]) -> str:
    try:
        trial()
    except (OSError, ImportError) as exc:
        return type(exc).__name__
    return "done"


if __name__ == "__main__":
    if RESULT.exists():
        (STATE / "again").touch()
    else:
        RESULT.write_text(json.dumps({name: attempt(trial) for name, trial in TRIALS.items()}))
    sd_notify("READY=1")
    signal.pause()
