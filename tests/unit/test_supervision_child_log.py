"""Processes that the daemon starts log as it does, and live on where nobody can take a line."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from gateway.supervision.child_log import LEVEL, STYLE, log_as_parent


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    chain: list[Any] = structlog.get_config()["processors"]
    before = list(chain)
    yield
    chain[:] = before


def lines(environ: dict[str, str]) -> list[str]:
    out = io.StringIO()
    log = structlog.get_logger().bind(component="web")  # as modules do, before anything is known
    log_as_parent(environ, out)
    log.debug("too_small")
    log.info("link_up", path=Path("/x"))
    log.warning("link_lost", problem="none answers")
    return out.getvalue().splitlines()


@pytest.mark.parametrize("style", ["json", "journald"])
def test_lines_are_json_where_the_daemons_are_for_machines(style: str) -> None:
    first, second = map(json.loads, lines({STYLE: style, LEVEL: "info"}))
    assert (first["event"], first["path"], first["component"]) == ("link_up", "/x", "web")
    assert (second["event"], second["level"], second["problem"]) == ("link_lost", "warning", "none answers")
    assert second["at"].endswith("Z")


def test_lines_are_for_people_where_the_daemons_are() -> None:
    (line,) = lines({STYLE: "console", LEVEL: "warning"})
    assert "link_lost" in line
    assert "\x1b" not in line
    with pytest.raises(json.JSONDecodeError):
        json.loads(line)


def test_started_by_hand_it_writes_json_where_no_terminal_is() -> None:
    assert json.loads(lines({})[0])["event"] == "link_up"


CODE = """
import structlog
from gateway.supervision.child_log import log_as_parent
log = structlog.get_logger().bind(component="early")
log_as_parent()
for n in range(1000):
    log.warning("lost", number=n)
print("alive", flush=True)
import os; os._exit(0)
"""


# `/dev/full` is a disk without room: o3-opcua and o3-web ended with the first line they could not write.
def test_a_process_outlives_a_full_disk_under_its_log() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(  # noqa: S603  # our own interpreter
            [sys.executable, "-c", CODE],
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            timeout=360,
            check=False,
            env={**os.environ, STYLE: "json"},
        )
    assert (done.returncode, done.stdout) == (0, "alive\n")
