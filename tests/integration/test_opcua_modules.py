"""Constraint modules by OPC UA methods: roles first, bytes or text, answers in words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from asyncua import ua

from gateway.link.messages import Answer
from tests.integration.opcua_peer import Rig, rig

pytestmark = pytest.mark.integration

FOLDER = "ns=1;s=ConstraintModules"
PENDING = {"id": "tank", "state": "pending", "refused_because": ["its file was taken out"]}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path) as made:
        yield made


def load_arguments(source: object, kind: ua.VariantType, priority: int, *, shadow: bool) -> list[ua.Variant]:
    return [
        ua.Variant("tank.json"),
        ua.Variant(source, kind),
        ua.Variant(priority, ua.VariantType.Int32),
        ua.Variant(shadow, ua.VariantType.Boolean),
    ]


async def test_a_module_is_loaded_from_bytes_or_text_by_the_user_who_logged_in(gateway: Rig) -> None:
    folder = (await gateway.client("engineer")).get_node(FOLDER)
    given: Any = load_arguments(b"{\xff}", ua.VariantType.ByteString, 3, shadow=False)
    assert await folder.call_method("1:Load", *given) == [True, ""]
    given = load_arguments('{"id": 1}', ua.VariantType.String, -1, shadow=True)
    assert await folder.call_method("1:LoadText", *given) == [True, ""]
    assert [(ask.verb, ask.user) for ask in gateway.main.asked] == [("runtime.load", "engineer")] * 2
    assert [ask.args for ask in gateway.main.asked] == [
        {"name": "tank.json", "data": b"{\xff}", "priority": 3},
        {"name": "tank.json", "data": '{"id": 1}', "shadow": True},
    ]


@pytest.mark.parametrize(
    ("method", "verb"),
    [
        ("Unload", "runtime.unload"),
        ("Rollback", "runtime.rollback"),
        ("Approve", "runtime.approve"),
        ("Promote", "runtime.promote"),
    ],
)
async def test_every_act_names_its_module_and_answers_in_words(gateway: Rig, method: str, verb: str) -> None:
    folder = (await gateway.client("engineer")).get_node(FOLDER)
    gateway.main.answers = lambda ask: Answer(id=ask.id, ok=True, result=[PENDING])
    assert await folder.call_method(f"1:{method}", ua.Variant("tank")) == [
        True,
        "tank: its file was taken out",
    ]
    gateway.main.answers = lambda ask: Answer(id=ask.id, ok=False, error="`engineer` made this change")
    assert await folder.call_method(f"1:{method}", ua.Variant("tank")) == [
        False,
        "`engineer` made this change",
    ]
    assert [(ask.verb, ask.args) for ask in gateway.main.asked] == [(verb, {"module": "tank"})] * 2


async def test_s27_an_operator_may_not_touch_the_rules(gateway: Rig) -> None:
    folder = (await gateway.client("operator")).get_node(FOLDER)
    for method in ("Unload", "Rollback", "Approve", "Promote"):
        with pytest.raises(ua.UaStatusCodeError) as caught:
            await folder.call_method(f"1:{method}", ua.Variant("tank"))
        assert caught.value.code == ua.StatusCodes.BadUserAccessDenied
    assert not gateway.main.asked
