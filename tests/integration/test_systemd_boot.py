"""The unit in a really booted systemd: this machine's own tree under an overlay, in systemd-nspawn.

Effects are asserted, never `systemctl show`. Limits of memory and addresses are not enforced in there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
UNITS = REPOSITORY / "packaging" / "systemd"
NEEDED = ("systemd-nspawn", "systemd-sysusers", "systemd-tmpfiles", "mount")
INIT = Path("/lib/systemd/systemd")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="booting systemd-nspawn needs root"),
    pytest.mark.skipif(
        any(shutil.which(t) is None for t in NEEDED) or not INIT.exists(), reason="no systemd-nspawn"
    ),
]

# Where the booted tree sees the checkout and its environment, wherever they lie here: its /tmp is its own.
CHECKOUT, VENV = "/srv/checkout", "/srv/venv"

MUST_WORK = {
    "solve",
    "run_model",
    "serve_opcua",
    "spawn_worker",
    "listen_tcp",
    "listen_unix",
    "read_cpuinfo",
    "write_state",
    "write_report",
}
DROP_IN = """\
[Service]
ExecStart=
ExecStart={python} -m tests.integration.systemd_probe
Environment=PYTHONPATH={repository}
# The interpreter of a checkout lies elsewhere than a package's; home folders stay hidden but for it.
ExecPaths={venv} {base}
ProtectHome=tmpfs
ExecStopPost=/bin/sh -c 'echo "$SERVICE_RESULT" >> /var/lib/o3-gateway/ended'
BindReadOnlyPaths={base} {venv} {repository}
"""
BOOT_TARGET = """\
[Unit]
Requires=basic.target
Wants=o3-gateway.service o3-again.path
After=basic.target
AllowIsolate=yes
"""
AGAIN_PATH = """\
[Path]
PathExists=/var/lib/o3-gateway/again
Unit=poweroff.target
"""


def call(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=300)  # noqa: S603 - our own words


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """This machine's root, read-only below a throw-away layer, with the unit installed."""
    call("mount", "-t", "tmpfs", "tmpfs", str(tmp_path))
    root = tmp_path / "root"
    try:
        for name in ("upper", "work", "root"):
            (tmp_path / name).mkdir()
        layers = f"lowerdir=/,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
        try:
            call("mount", "-t", "overlay", "overlay", "-o", layers, str(root))
        except subprocess.CalledProcessError:
            pytest.skip("the kernel refuses an overlay of the root file system")
        try:
            install(root)
            yield root
        finally:
            call("umount", str(root))
    finally:
        call("umount", str(tmp_path))


def install(root: Path) -> None:
    units = root / "etc/systemd/system"
    (units / "o3-gateway.service.d").mkdir(parents=True)
    shutil.copy(UNITS / "o3-gateway.service", units)
    for kind in ("sysusers", "tmpfiles"):
        folder = root / f"usr/lib/{kind}.d"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(UNITS / f"o3-gateway.{kind}.conf", folder / "o3-gateway.conf")
    call("systemd-sysusers", f"--root={root}", "o3-gateway.conf")
    call("systemd-tmpfiles", f"--root={root}", "--create", "o3-gateway.conf")
    (root / "etc/o3-gateway/constraints.d/m.json").write_text("{}")
    (root / "home/secret").mkdir(parents=True, exist_ok=True)
    for place in (CHECKOUT, VENV):
        (root / place.lstrip("/")).mkdir(parents=True, exist_ok=True)
    drop_in = DROP_IN.format(
        python=f"{VENV}/bin/python", repository=CHECKOUT, venv=VENV, base=sys.base_prefix
    )
    (units / "o3-gateway.service.d/probe.conf").write_text(drop_in)
    (units / "o3-boot.target").write_text(BOOT_TARGET)
    (units / "o3-again.path").write_text(AGAIN_PATH)


def test_under_the_unit_all_parts_work_nothing_else_does_and_the_watchdog_bites(tree: Path) -> None:
    command = (
        "systemd-nspawn",
        "-D",
        str(tree),
        "--register=no",
        "--keep-unit",
        "--private-network",
        "--quiet",
        f"--bind-ro={REPOSITORY}:{CHECKOUT}",
        f"--bind-ro={sys.prefix}:{VENV}",
    )
    booted = subprocess.run(  # noqa: S603 - our own words
        (*command, "-b", "systemd.unit=o3-boot.target"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    result = tree / "var/lib/o3-gateway/result.json"
    if not result.exists() and "Welcome to" not in booted.stdout:
        pytest.skip(f"systemd-nspawn cannot boot here: {booted.stderr.strip()[-200:]}")
    tried = json.loads(result.read_text())
    assert {name for name, outcome in tried.items() if outcome == "done"} == MUST_WORK, tried
    assert (tree / "var/lib/o3-gateway/ended").read_text().splitlines()[0] == "watchdog"
    assert (tree / "var/lib/o3-gateway/again").exists()  # and it was started again
