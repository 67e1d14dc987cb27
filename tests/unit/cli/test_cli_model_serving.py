"""`o3ctl model list|load|unload|rollback`: what is asked, and what people see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.cli.told.words import engine_sentence
from gateway.link.messages import ModelState
from tests.unit.cli.test_cli_verbs import NOW, o3ctl, running

MODEL = ModelState(
    id="buffer-tank",
    bundle="second",
    revision="buffer-tank/2",
    digest="d52aca479d056a06e5d22acea4e50b26",
    state="ready",
    previous="first",
    by="anna",
    at_ns=NOW,
    points=["buffer-tank"],
    problem="",
)


@pytest.mark.parametrize(
    ("arguments", "verb", "args"),
    [
        (["list"], "model.list", {}),
        (["load", "second"], "model.load", {"bundle": "second", "model": "", "keep_armed": False}),
        (
            ["load", "second", "--for", "buffer-tank", "--keep-armed"],
            "model.load",
            {"bundle": "second", "model": "buffer-tank", "keep_armed": True},
        ),
        (["unload"], "model.unload", {"model": "", "keep_armed": False}),
        (["rollback", "buffer-tank"], "model.rollback", {"model": "buffer-tank", "keep_armed": False}),
    ],
)
async def test_every_verb_asks_its_question_and_prints_the_new_list(
    tmp_path: Path, arguments: list[str], verb: str, args: dict[str, Any]
) -> None:
    async with running(tmp_path) as (gateway, socket):
        gateway.results[verb] = [MODEL]
        people = await o3ctl("model", *arguments, "--socket", socket)
        programs = await o3ctl("model", *arguments, "--socket", socket, "--json")

    assert people.exit_code == 0, people.output
    for part in ("second", "first", "anna", "ready"):
        assert part in people.output
    looked: list[tuple[str, dict[str, Any]]] = [] if verb == "model.list" else [("status", {})]
    assert gateway.asked == [(verb, args), *looked, (verb, args)]
    assert ("buffer-tank is in shadow: `o3ctl mode buffer-tank armed`" in people.output) is bool(looked)
    assert json.loads(programs.stdout)[0]["digest"] == MODEL.digest


async def test_why_a_bundle_was_passed_over_is_told(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, socket):
        problem = "`third` cannot be served: it is gone"
        fields = {name: getattr(MODEL, name) for name in MODEL.__struct_fields__}
        gateway.results["model.list"] = [ModelState(**fields | {"problem": problem})]
        told = await o3ctl("model", "list", "--socket", socket)

    assert "is gone" in " ".join(told.output.split())


async def test_why_the_newest_bundle_was_refused_is_told(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, socket):
        why = "`third`: model.onnx was cut short, copy the bundle again"
        gateway.results["model.list"] = [msgspec.structs.replace(MODEL, last_refusal=why)]
        told = await o3ctl("model", "list", "--socket", socket)

    assert f"buffer-tank refused {why}" in told.output


def test_status_says_which_folder_serves_and_what_a_rollback_goes_to() -> None:
    facts = {"bundle": "buffer-tank/2", "folder": "second", "previous": "first", "state": "ready"}
    assert engine_sentence(facts) == (
        "inference buffer-tank/2, folder second, no provider yet, ready, a rollback goes to first"
    )
