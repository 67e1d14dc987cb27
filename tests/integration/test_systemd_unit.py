"""The unit as systemd's own tools judge it, and the user and folders it needs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).parents[2] / "packaging" / "systemd"
UNIT = UNITS / "o3-gateway.service"
EXPOSURE_LIMIT = 1.6

pytestmark = pytest.mark.integration


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed")


def call(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own words
        command, capture_output=True, text=True, timeout=300, check=False
    )


@needs("systemd-analyze")
def test_the_unit_is_clean_for_systemd_analyze(tmp_path: Path) -> None:
    text = UNIT.read_text()
    (program,) = re.findall(r"^ExecStart=(\S+)", text, re.MULTILINE)
    installed = tmp_path / UNIT.name  # the program is not installed here; everything else is as shipped
    installed.write_text(text.replace(f"ExecStart={program}", "ExecStart=/bin/true"))
    found = call("systemd-analyze", "verify", str(installed))
    assert (found.returncode, found.stdout + found.stderr) == (0, "")
    installed.write_text(installed.read_text().replace("WatchdogSec=5", "WatchdogSecs=5"))
    assert "WatchdogSecs" in call("systemd-analyze", "verify", str(installed)).stderr  # it can fail


@needs("systemd-analyze")
def test_the_exposure_stays_within_its_limit() -> None:
    threshold = f"--threshold={EXPOSURE_LIMIT * 10:.0f}"
    found = call("systemd-analyze", "security", "--offline=true", threshold, str(UNIT))
    if "unrecognized option" in found.stderr:
        pytest.skip("this systemd-analyze cannot judge a unit offline")
    assert found.returncode == 0, found.stdout + found.stderr
    level = re.search(r"exposure level for \S+: ([0-9.]+)", found.stdout)
    assert level is not None
    assert float(level[1]) <= EXPOSURE_LIMIT


def test_the_unit_keeps_the_lessons_of_the_field() -> None:
    settings = dict(
        line.split("=", 1) for line in UNIT.read_text().splitlines() if re.match(r"[A-Z]\w+=", line)
    )
    assert settings["Type"] == "notify"
    assert settings["WatchdogSec"] == "5"
    assert settings["Restart"] == "always"
    assert settings["StartLimitIntervalSec"] == "0"  # unattended: never gives up
    assert settings["KillMode"] == "mixed"  # the daemon clears control-valid before its workers go
    assert settings["OOMPolicy"] == "continue"  # a lost worker is replaced, not followed
    assert settings["SystemCallErrorNumber"] == "EPERM"  # @privileged contains chown
    assert "/var/lib/o3-gateway" in settings["NoExecPaths"]  # a rule for /var would not cover it
    assert "ProcSubset" not in settings  # would hide /proc/cpuinfo from ONNX Runtime
    assert settings["AmbientCapabilities"] == settings["CapabilityBoundingSet"] == ""


@needs("systemd-sysusers")
@needs("systemd-tmpfiles")
def test_user_and_folders_are_made_with_the_modules_out_of_the_gateways_reach(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    for kind in ("sysusers", "tmpfiles"):
        folder = root / "usr/lib" / f"{kind}.d"
        folder.mkdir(parents=True)
        shutil.copy(UNITS / f"o3-gateway.{kind}.conf", folder / "o3-gateway.conf")
    made = call("systemd-sysusers", f"--root={root}", "o3-gateway.conf")
    if made.returncode != 0 and "not permitted" in made.stderr:
        pytest.skip("making users needs root")
    assert made.returncode == 0, made.stderr
    account = (root / "etc/passwd").read_text().split(":")
    assert (account[0], account[-1].strip()) == ("o3-gateway", "/usr/sbin/nologin")
    assert call("systemd-tmpfiles", f"--root={root}", "--create", "o3-gateway.conf").returncode == 0
    modules = (root / "etc/o3-gateway/constraints.d").stat()
    assert (oct(modules.st_mode & 0o7777), modules.st_uid, modules.st_gid) == ("0o1775", 0, int(account[3]))
    assert (root / "etc/o3-gateway/credentials").stat().st_mode & 0o777 == 0o700
