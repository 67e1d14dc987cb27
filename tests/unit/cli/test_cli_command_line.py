"""The command line itself: where it finds the gateway, what it loads, and what each of its verbs says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from gateway.cli.live.asking import find_socket
from gateway.cli.main import app


def test_the_socket_is_found_where_it_was_named_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    installed = tmp_path / "installed.sock"
    assert find_socket(Path("/a"), {"O3_SOCKET": "/b"}) == Path("/a")
    assert find_socket(None, {"O3_SOCKET": "/b"}) == Path("/b")
    assert find_socket(None, {}, installed) == installed
    for demo in (Path("var/demo/state/run/o3.sock"), Path("var/demo/run/o3.sock")):
        demo.parent.mkdir(parents=True)
        demo.touch()
        assert find_socket(None, {}, installed) == demo
    installed.touch()
    assert find_socket(None, {}, installed) == installed


# `o3ctl --help` must not wait for pydantic, z3 or asyncio.
def test_the_command_line_itself_imports_little() -> None:
    code = "import sys, gateway.cli.main; print(*sys.modules)"
    done = subprocess.run(  # noqa: S603  # our own interpreter
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=360, check=True
    )
    loaded = set(done.stdout.split())

    assert loaded.isdisjoint({"asyncio", "msgspec", "pydantic", "structlog", "z3", "numpy", "gateway.daemon"})


def verbs(command: Any, *path: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401  # typer names no type of them
    if hasattr(command, "commands"):
        for name, part in command.commands.items():
            yield from verbs(part, *path, name)
    else:
        yield " ".join(path), command


# Two verbs print a document that programs read as it is.
def test_every_verb_speaks_to_programs_and_explains_each_of_its_words() -> None:
    found = dict(verbs(typer.main.get_command(app)))
    silent = {name for name, verb in found.items() if not any("--json" in of.opts for of in verb.params)}
    unexplained = {
        f"{name} {of.name}"
        for name, verb in found.items()
        for of in verb.params
        if not getattr(of, "help", "")
    }

    assert len(found) > 30
    assert silent == {"export", "schema print"}
    assert unexplained == set()
    assert all(verb.help for verb in found.values())
