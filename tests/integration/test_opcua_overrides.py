"""Overrides by OPC UA: methods by role, nodes that come and go, decisions that say so (S25)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from asyncua import ua
from asyncua.ua.uaerrors import BadNodeIdUnknown, BadUserAccessDenied

from gateway.link.messages import Answer, DecisionView, OverrideState
from tests.integration.opcua_peer import SOURCE_NS, Rig, decision, eventually, rig

pytestmark = pytest.mark.integration

FOLDER = "ns=1;s=Overrides"
RAMP = "tank/ramp"
UNDER = "with `tank/ramp` overridden until 2025-11-29 14:05:00 UTC by anna, confirmed by bert"
ACTIVE = OverrideState(
    id=RAMP,
    state="active",
    reason="valve test",
    requested_by="anna",
    confirmed_by="bert",
    since_ns=1_764_424_800_000_000_000,
    until_ns=1_764_425_100_000_000_000,
)


def under(number: str) -> DecisionView:
    return msgspec.structs.replace(decision(number, "permitted", SOURCE_NS), overridden=UNDER)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path) as made:
        yield made


async def test_request_confirm_and_release_are_asked_in_the_users_own_name(gateway: Rig) -> None:
    folder = (await gateway.client("engineer")).get_node(FOLDER)
    words = [ua.Variant(text) for text in (RAMP, "valve test", "30 min")]
    assert await folder.call_method("1:Request", *words) == [True, ""]
    assert await folder.call_method("1:Confirm", ua.Variant(RAMP)) == [True, ""]
    assert await folder.call_method("1:Release", ua.Variant(RAMP)) == [True, ""]
    assert [(ask.verb, ask.user) for ask in gateway.main.asked] == [
        ("override.request", "engineer"),
        ("override.confirm", "engineer"),
        ("override.release", "engineer"),
    ]
    assert [ask.args for ask in gateway.main.asked] == [
        {"constraint": RAMP, "reason": "valve test", "for": "30 min"},
        {"constraint": RAMP},
        {"constraint": RAMP},
    ]


async def test_a_refusal_comes_back_in_words_and_an_operator_confirms_nothing(gateway: Rig) -> None:
    gateway.main.answers = lambda ask: Answer(id=ask.id, ok=False, error="`tank/dry` is critical")
    folder = (await gateway.client("operator")).get_node(FOLDER)
    words = [ua.Variant(text) for text in ("tank/dry", "test", "1 min")]
    assert await folder.call_method("1:Request", *words) == [False, "`tank/dry` is critical"]
    asked = len(gateway.main.asked)
    with pytest.raises(BadUserAccessDenied):
        await folder.call_method("1:Confirm", ua.Variant(RAMP))
    assert len(gateway.main.asked) == asked


async def test_an_override_is_a_node_until_it_ends_and_the_decision_under_it_says_so(gateway: Rig) -> None:
    viewer = await gateway.client("viewer")
    mirror = gateway.running.mirror
    gateway.main.publish(ACTIVE)
    gateway.main.publish(under("d-1"))
    await eventually(lambda: RAMP in mirror._overrides.names and "buffer-tank" in mirror._decisions)
    base = f"ns=1;s=Overrides/{RAMP}"
    assert await viewer.get_node(f"{base}/State").read_value() == "active"
    assert await viewer.get_node(f"{base}/ConfirmedBy").read_value() == "bert"
    until = await viewer.get_node(f"{base}/Until").read_value()
    assert f"{until:%Y-%m-%d %H:%M:%S}" == "2025-11-29 14:05:00"
    said = viewer.get_node("ns=1;s=DecisionPoints/buffer-tank/Overridden")
    assert await said.read_value() == UNDER

    gateway.main.publish(msgspec.structs.replace(ACTIVE, state="ended"))
    await eventually(lambda: RAMP not in mirror._overrides.names)
    with pytest.raises(BadNodeIdUnknown):
        await viewer.get_node(f"{base}/State").read_value()


async def test_a_snapshot_that_does_not_tell_of_an_override_takes_its_node_out(gateway: Rig) -> None:
    mirror = gateway.running.mirror
    gateway.main.publish(ACTIVE)
    await eventually(lambda: RAMP in mirror._overrides.names)
    await gateway.stop_main()
    await eventually(lambda: not mirror.synchronised)
    await gateway.start_main()
    await eventually(lambda: mirror.synchronised)
    assert mirror._overrides.names == set()


async def test_requested_setpoints_come_back_with_what_was_overridden(gateway: Rig) -> None:
    view = msgspec.to_builtins(under("d-2"))
    gateway.main.answers = lambda ask: Answer(id=ask.id, ok=True, result=view)
    point = (await gateway.client("operator")).get_node("ns=1;s=DecisionPoints/buffer-tank")
    given = [ua.Variant('{"TK1.P101.SP": 40}'), ua.Variant(0.0), ua.Variant("")]
    answer = await point.call_method("1:RequestSetpoints", *given)
    assert UNDER in answer[-1]
