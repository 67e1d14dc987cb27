"""Models by OPC UA: which bundle serves, what was refused and why, and the engineer's methods (S27)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from asyncua import ua
from asyncua.ua.uaerrors import BadUserAccessDenied

from gateway.link.messages import Answer, ModelState
from tests.integration.opcua_peer import SOURCE_NS, Rig, eventually, rig

pytestmark = pytest.mark.integration

FOLDER = "ns=1;s=Models"
WHY = "`second`: model.onnx was cut short, copy the bundle again"
SERVING = ModelState(
    id="buffer-tank",
    bundle="first",
    revision="buffer-tank/2",
    digest="d52aca47",
    state="ready",
    previous="earlier",
    by="anna",
    at_ns=SOURCE_NS,
    points=["buffer-tank"],
    swaps=3,
    refused=1,
    last_refusal=WHY,
    costs_ms={"decision": 1.5, "step_of_8": 0.4},
    provider="CPUExecutionProvider",
    asked_provider="cuda:0",
    fell_back="`cuda:0` was asked for and the model runs on CPUExecutionProvider",
    memory={"sessions": 3.0, "pages": 256.0, "pages_free": 212.0, "internal_fragmentation": 0.035},
    counted_ns=SOURCE_NS,
)
KEEP, LEAVE = (ua.Variant(kept, ua.VariantType.Boolean) for kept in (True, False))


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path) as made:
        yield made


async def test_load_unload_and_rollback_are_asked_in_the_users_own_name(gateway: Rig) -> None:
    folder = (await gateway.client("engineer")).get_node(FOLDER)
    model, bundle = ua.Variant("buffer-tank"), ua.Variant("second")
    assert await folder.call_method("1:Load", model, bundle, KEEP) == [True, ""]
    assert await folder.call_method("1:Unload", model, LEAVE) == [True, ""]
    assert await folder.call_method("1:Rollback", ua.Variant("", ua.VariantType.String), LEAVE) == [True, ""]

    assert {ask.user for ask in gateway.main.asked} == {"engineer"}
    assert [(ask.verb, ask.args) for ask in gateway.main.asked] == [
        ("model.load", {"model": "buffer-tank", "bundle": "second", "keep_armed": True}),
        ("model.unload", {"model": "buffer-tank", "keep_armed": False}),
        ("model.rollback", {"model": "", "keep_armed": False}),
    ]


async def test_a_refusal_comes_back_in_words(gateway: Rig) -> None:
    folder = (await gateway.client("engineer")).get_node(FOLDER)
    why = "`second` did not take over: it was cut short, copy it again; `first` still serves `buffer-tank`"
    gateway.main.answers = lambda ask: Answer(id=ask.id, ok=False, error=why)
    answer = await folder.call_method("1:Load", ua.Variant("buffer-tank"), ua.Variant("second"), LEAVE)
    assert answer == [False, why]


async def test_s27_an_operator_changes_no_model(gateway: Rig) -> None:
    folder = (await gateway.client("operator")).get_node(FOLDER)
    for name, words in (("Load", ("", "second")), ("Unload", ("",)), ("Rollback", ("",))):
        with pytest.raises(BadUserAccessDenied):
            await folder.call_method(f"1:{name}", *(ua.Variant(word) for word in words), LEAVE)
    assert not gateway.main.asked


async def test_nodes_say_which_bundle_serves_and_what_was_refused(gateway: Rig) -> None:
    viewer, names = await gateway.client("viewer"), gateway.running.mirror._models.names

    async def shown(name: str) -> Any:  # noqa: ANN401  # what a node holds
        return await viewer.get_node(f"{FOLDER}/buffer-tank/{name}").read_value()

    gateway.main.publish(SERVING)
    await eventually(lambda: "buffer-tank" in gateway.running.mirror._models.names)
    assert names == set()  # it came with what was published
    assert (await shown("Bundle"), await shown("Digest"), await shown("By")) == ("first", "d52aca47", "anna")
    assert (await shown("Swaps"), await shown("Refused"), await shown("LastRefusal")) == (3, 1, WHY)
    assert json.loads(await shown("CostsMs"))["step_of_8"] == 0.4
    assert (await shown("AskedProvider"), await shown("Provider")) == ("cuda:0", "CPUExecutionProvider")
    assert await shown("FellBack") == SERVING.fell_back
    held = [await shown(name) for name in ("Sessions", "Pages", "PagesFree", "Fragmentation")]
    assert held == [3, 256, 212, 0.035]
    assert json.loads(await shown("Memory")) == SERVING.memory
    assert await shown("Points") == ["buffer-tank"]

    gateway.main.publish(msgspec.structs.replace(SERVING, bundle="second", last_refusal=""))
    gateway.main.publish(msgspec.structs.replace(SERVING, id="another"))  # items are taken in order
    await eventually(lambda: "another" in gateway.running.mirror._models.names)
    assert (await shown("Bundle"), await shown("LastRefusal")) == ("second", "")


async def test_a_snapshot_that_does_not_tell_of_a_model_takes_its_node_out(gateway: Rig) -> None:
    mirror = gateway.running.mirror
    gateway.main.publish(SERVING)
    await eventually(lambda: "buffer-tank" in mirror._models.names)
    await gateway.stop_main()
    await eventually(lambda: not mirror.synchronised)
    await gateway.start_main()
    await eventually(lambda: mirror.synchronised)
    assert mirror._models.names == set()
    engineer = await gateway.client("engineer")  # the folder's methods stay
    assert (await engineer.get_node(FOLDER).call_method("1:Rollback", ua.Variant("m"), LEAVE))[0]
