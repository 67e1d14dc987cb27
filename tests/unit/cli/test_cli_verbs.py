from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from gateway.cli.main import app
from gateway.link.messages import (
    Alarm,
    Answer,
    Ask,
    FeedItem,
    GatewayState,
    ModuleState,
    PointState,
    ResidualState,
    TagInfo,
    TagState,
)
from gateway.link.server import LinkServer, Peer
from tests.unit.cli.test_cli_words import a_view

NOW = 1_700_000_000_000_000_000
GATEWAY = GatewayState(
    id="line-3",
    version="0.1.0",
    started_ns=NOW,
    healthy=False,
    parts={"audit": "audit log cannot be appended to: disk is full", "plc1": "ok"},
    generation=12,
    rule_set_digest="sha256:aaaa",
    counters={},
    writes_stopped=True,
    config_digest="bbbb",
    inference={"ep_actual": "CPUExecutionProvider"},
)
POINT = PointState(
    id="buffer-tank",
    mode="shadow",
    inputs=["TK1.LT101"],
    outputs=["TK1.P101.SP"],
    model="buffer-tank",
    alarm="",
    last_decision="d-7f3a",
    in_control=False,
    blocked="mode is shadow",
    residuals=[ResidualState("TK1.LT101", 10, -0.0125, 0.0, 0.259, 1)],
    guided=True,
    drift={"TK1.P101.SP": 0.125},
)
MODULE = ModuleState(
    id="lower-limit",
    file="lower.json",
    state="refused",
    revision=3,
    digest="sha256:cccc",
    priority=5,
    last_attempt_ns=NOW,
    last_success_ns=0,
    refused_because=["lower.json:3:7: unknown tag `PT_204`"],
    constraints=[],
)
ALARM = Alarm(
    source="point:buffer-tank",
    active=True,
    acknowledged=False,
    severity=700,
    cause="refused 3 times in a row",
    consequence="the PLC owns the plant",
    action="look at o3ctl decisions",
    since_ns=NOW,
)
TAG = {
    "info": TagInfo("TK1.LT101", "real", "m", "tank level", -0.1, 5.0, writable=False),
    "state": TagState("TK1.LT101", 1.98, 0, None, NOW),
}

STANDING = {
    "point": "buffer-tank",
    "digest": "dddd",
    "signed_by": "anna",
    "user": "otto",
    "at_ns": NOW,
    "void": "the binding changed: `LT`: scale is 0.1 in the sheet and 1 in the configuration",
}


class Gateway:
    """Answers as the daemon would; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.results: dict[str, Any] = {
            "status": {"gateway": GATEWAY, "points": [POINT], "modules": [MODULE], "alarms": [ALARM]},
            "tags": [TAG],
            "decisions": [a_view(id="d-2", at_ns=NOW + 2), a_view(id="d-1", at_ns=NOW + 1)],
            "explain": a_view(),
            "mode": {"mode": "armed"},
            "ack": {},
            "stop-writes": {"writes_stopped": True},
            "binding.print": {"sheet": "tag,role\nLT,input\n", "not_good": {"FT": "BadNoCommunication"}},
            "binding.show": STANDING,
            "binding.sign": STANDING,
        } | {
            f"runtime.{verb}": [MODULE]
            for verb in ("list", "load", "unload", "approve", "rollback", "promote")
        }

    async def answer(self, ask: Ask, _peer: Peer) -> Answer:
        self.asked.append((ask.verb, ask.args))
        if ask.args.get("point") == "nowhere":
            return Answer(id=ask.id, ok=False, error="unknown decision point `nowhere`; known: `buffer-tank`")
        return Answer(id=ask.id, ok=True, result=msgspec.to_builtins(self.results[ask.verb]))


@asynccontextmanager
async def running(folder: Path, feed: list[FeedItem] | None = None) -> AsyncIterator[tuple[Gateway, Path]]:
    gateway, path = Gateway(), folder / "o3.sock"
    server = LinkServer(path, gateway.answer, lambda: list(feed or []), frozenset({os.getuid()}))
    async with server.listening():
        yield gateway, path


@dataclass(frozen=True)
class Ran:
    exit_code: int
    stdout: str
    stderr: str
    output: str


async def o3ctl(*arguments: str | Path) -> Ran:
    """The command run in this process; off the loop, because it makes its own."""

    def run() -> Ran:
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        return Ran(result.exit_code, result.stdout, result.stderr, result.output)

    return await asyncio.to_thread(run)


async def test_status_shows_what_needs_a_person(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, socket):
        result = await o3ctl("status", "--socket", socket)

    assert result.exit_code == 0, result.output
    for part in (
        "WRITES ARE STOPPED",
        "refused 3 times in a row",
        "NOT HEALTHY",
        "disk is full",
        "mode is shadow",
        "lower.json:3:7: unknown tag `PT_204`",
        "CPUExecutionProvider",
        "assumptions: watched over up to 10 steps; TK1.LT101 uses 25 % of the band predicted over 10 steps",
        "the model is guided; up to 12.5 % of its probability is masked out (TK1.P101.SP, on average)",
    ):
        assert part in result.output
    assert "\x1b" not in result.output


# Of a module in force: what an analysis found of it; of one that waits: by what mark it is approved.
async def test_the_list_of_modules_tells_what_is_known_of_them_and_what_waits(tmp_path: Path) -> None:
    said = [
        "3 warnings; asked for 0.5 s, among buffer-tank 7",
        "warning: influence: too late",
        "note: x",
        "y" * 500,
    ]
    active = msgspec.structs.replace(MODULE, state="active", refused_because=[], analysis=said)
    waiting = msgspec.structs.replace(MODULE, id="other", state="pending", change="0a1b2c", analysis=said[:1])
    async with running(tmp_path) as (gateway, socket):
        gateway.results["runtime.list"] = [active, waiting]
        result = await o3ctl("runtime", "list", "--socket", socket)
    text = " ".join(result.output.split())
    for part in ("3 warnings; asked for", "influence: too late", "more of it", "0a1b2c"):
        assert part in text
    assert "yyyy" not in text


@pytest.mark.parametrize(
    ("arguments", "verb", "args"),
    [
        (["status"], "status", {}),
        (["tags"], "tags", {}),
        (
            ["decisions", "--point", "buffer-tank", "-n", "5"],
            "decisions",
            {"limit": 5, "point": "buffer-tank"},
        ),
        (["explain", "d-7f3a"], "explain", {"id": "d-7f3a"}),
        (["mode", "buffer-tank", "armed"], "mode", {"point": "buffer-tank", "mode": "armed"}),
        (["ack", "audit"], "ack", {"source": "audit"}),
        (["stop-writes"], "stop-writes", {"resume": False}),
        (["stop-writes", "--resume"], "stop-writes", {"resume": True}),
        (["runtime", "list"], "runtime.list", {}),
        (["runtime", "unload", "m"], "runtime.unload", {"module": "m"}),
        (["runtime", "approve", "m"], "runtime.approve", {"module": "m"}),
        (
            ["runtime", "approve", "m", "--change", "0a1b"],
            "runtime.approve",
            {"module": "m", "change": "0a1b"},
        ),
        (["runtime", "rollback", "m"], "runtime.rollback", {"module": "m"}),
        (["runtime", "rollback"], "runtime.rollback", {"module": ""}),
        (["runtime", "promote", "m"], "runtime.promote", {"module": "m"}),
    ],
)
async def test_every_verb_asks_its_question_and_prints_for_people_and_programs(
    tmp_path: Path, arguments: list[str], verb: str, args: dict[str, Any]
) -> None:
    async with running(tmp_path) as (gateway, socket):
        people = await o3ctl(*arguments, "--socket", socket)
        programs = await o3ctl(*arguments, "--socket", socket, "--json")

    assert people.exit_code == 0, people.output
    assert people.output.strip()
    assert gateway.asked == [(verb, args)] * 2
    assert json.loads(programs.stdout) == json.loads(msgspec.json.encode(gateway.results[verb]))


async def test_the_socket_may_be_named_before_or_behind_the_verb(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, socket):
        ways: list[list[str | Path]] = [
            ["--socket", socket, "status"],
            ["status", "--socket", socket],
            ["--socket", socket, "runtime", "list"],
            ["--socket", socket, "binding", "show", "buffer-tank"],
            ["--socket", tmp_path / "none.sock", "status", "--socket", socket],
        ]
        for arguments in ways:
            done = await o3ctl(*arguments)
            assert done.exit_code == 0, done.output
        assert (await o3ctl("--socket", tmp_path / "none.sock", "status")).exit_code == 3
    assert len(gateway.asked) == 5


async def test_s26_a_binding_sheet_is_printed_to_be_filled_in_and_signed_from_its_file(
    tmp_path: Path,
) -> None:
    sheet = tmp_path / "binding.csv"
    async with running(tmp_path) as (gateway, socket):
        printed = await o3ctl("binding", "print", "buffer-tank", "--socket", socket)
        sheet.write_text(printed.stdout)
        signed = await o3ctl(
            *("binding", "sign", "buffer-tank", "--file", sheet, "--by", "anna", "--socket", socket)
        )
        missing = await o3ctl("binding", "sign", "buffer-tank", "--file", tmp_path / "no.csv")

    assert printed.stdout == "tag,role\nLT,input\n"
    assert "`FT` is BadNoCommunication" in printed.stderr
    assert gateway.asked[1] == (
        "binding.sign",
        {"point": "buffer-tank", "text": sheet.read_text(), "file": str(sheet), "by": "anna"},
    )
    assert "signed by anna (user otto)" in signed.stdout
    assert "scale is 0.1 in the sheet" in signed.stdout
    assert missing.exit_code == 1
    assert "cannot be read" in missing.stderr


# The gateway reads no file of its caller's choice: it has another user's rights.
async def test_a_module_is_sent_as_its_bytes_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b'{"id": "a"}')
    async with running(tmp_path) as (gateway, socket):
        ways: list[list[str | Path]] = [[file], ["--file", file], ["--module", file]]
        for arguments in ways:
            done = await o3ctl("runtime", "load", *arguments, "--priority", "3", "--socket", socket)
            assert done.exit_code == 0, done.output
        await o3ctl("runtime", "load", "--file", file, "--shadow", "--socket", socket)
        wrong: list[list[str | Path]] = [[], [file, "--file", file]]
        for arguments in wrong:
            assert (await o3ctl("runtime", "load", *arguments, "--socket", socket)).exit_code == 2

    given = {"name": "a.json", "data": b'{"id": "a"}'}
    assert gateway.asked == [("runtime.load", {**given, "priority": 3})] * 3 + [
        ("runtime.load", {**given, "shadow": True})
    ]


async def test_devices_pipes_folders_and_huge_files_are_refused_before_they_are_sent(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "huge.json").write_bytes(b" " * (4 * 1024 * 1024 + 1))
    for path, why in (
        (Path("/dev/zero"), "it is not a regular file"),
        (tmp_path / "pipe.json", "it is not a regular file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "huge.json", "a module has at most 4194304 bytes"),
        (tmp_path / "none.json", "No such file or directory"),
    ):
        refused = await o3ctl("runtime", "load", "--file", path)
        assert refused.exit_code == 1
        assert f"`{path}` cannot be read: {why}" in refused.stderr


async def test_a_refusal_is_the_gateways_own_sentence_and_status_1(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, socket):
        result = await o3ctl("mode", "nowhere", "armed", "--socket", socket)

    assert result.exit_code == 1
    assert "unknown decision point `nowhere`" in result.stderr
    assert result.stdout == ""


async def test_decisions_of_a_point_that_is_nowhere_are_an_error(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, socket):
        for option in ("", "--json", "--follow"):
            more = [option] if option else []
            result = await o3ctl("decisions", "--point", "nowhere", "--socket", socket, *more)
            assert result.exit_code == 1
            assert "unknown decision point `nowhere`" in result.stderr
            assert ("unknown decision point `nowhere`" in result.stdout) is (option == "--json")


async def test_no_gateway_is_one_sentence_to_act_on_and_status_3(tmp_path: Path) -> None:
    result = await o3ctl("status", "--socket", tmp_path / "none.sock")

    assert result.exit_code == 3
    assert len(result.stderr.splitlines()) == 1
    assert "systemctl start o3-gateway" in result.stderr


async def test_wrong_usage_is_status_2() -> None:
    for arguments in (["mode", "p", "on"], ["frobnicate"], ["decisions", "-n", "0"], ["explain"]):
        assert (await o3ctl(*arguments)).exit_code == 2


async def test_an_answer_in_another_versions_words_is_a_sentence(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, socket):
        gateway.results["explain"] = {"id": 7}
        result = await o3ctl("explain", "d-1", "--socket", socket)

    assert result.exit_code == 1
    assert "another version" in result.stderr


async def test_following_prints_old_then_new_until_the_gateway_goes(tmp_path: Path) -> None:
    feed: list[FeedItem] = [a_view(id="d-0", at_ns=NOW), a_view(id="d-3", at_ns=NOW + 3)]
    async with running(tmp_path, feed) as (_, socket):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway.cli.main", "decisions", "--follow", "--json"),
            *("--socket", str(socket)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        async with asyncio.timeout(180):
            seen = [json.loads(await process.stdout.readline())["id"] for _ in range(3)]
    async with asyncio.timeout(180):
        _, errors = await process.communicate()

    assert seen == ["d-1", "d-2", "d-3"]
    assert process.returncode == 3
    assert b"closed the connection" in errors
