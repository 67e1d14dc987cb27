from __future__ import annotations

import asyncio
import datetime as dt
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from asyncua import Client, Node, ua

from gateway.link.messages import Answer
from gateway.protocols.opcua.settings import Limits
from gateway.protocols.opcua.space import node_id
from gateway.protocols.opcua.wire import Foreign, sample, standard
from tests.integration.opcua_peer import (
    MODULE,
    POINT,
    SOURCE_NS,
    TIMEOUT_S,
    Rig,
    decision,
    eventually,
    gateway_state,
    rig,
    tag_info,
    tag_state,
)

pytestmark = pytest.mark.integration

LEVEL = "ns=1;s=Tags/TK1.LT101"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path) as made:
        yield made


class Changes:
    """Data changes and events as they come."""

    def __init__(self) -> None:
        self.values: asyncio.Queue[Any] = asyncio.Queue()
        self.events: asyncio.Queue[Any] = asyncio.Queue()

    def datachange_notification(self, _node: Node, _value: Foreign, data: Foreign) -> None:
        self.values.put_nowait(data.monitored_item.Value)

    def event_notification(self, event: Foreign) -> None:
        self.events.put_nowait(event)

    async def value(self) -> Foreign:
        return await asyncio.wait_for(self.values.get(), TIMEOUT_S)

    async def event(self) -> Foreign:
        return await asyncio.wait_for(self.events.get(), TIMEOUT_S)


async def code_of(awaitable: Foreign) -> str:
    """Name of the StatusCode an operation ends with."""
    with pytest.raises(ua.UaStatusCodeError) as caught:
        await awaitable
    return str(ua.StatusCode(caught.value.code).name)


async def test_a_tag_has_unit_range_quality_and_the_time_of_its_source(gateway: Rig) -> None:
    client = await gateway.client("viewer")
    node = client.get_node(LEVEL)
    value: Any = await node.read_data_value()
    assert value.Value.Value == 2.0
    assert value.StatusCode.is_good()
    assert value.SourceTimestamp == dt.datetime.fromtimestamp(SOURCE_NS // 1000 / 1e6, dt.UTC)
    units = await (await node.get_child("0:EngineeringUnits")).read_value()
    assert (units.UnitId, units.DisplayName.Text) == (0x4D5452, "m")  # MTR
    span = await (await node.get_child("0:EURange")).read_value()
    assert (span.Low, span.High) == (0.0, 5.0)
    assert await node.read_type_definition() == standard(ua.ObjectIds.AnalogItemType)
    flag = client.get_node("ns=1;s=Tags/TK1.H101.CMD")
    assert await flag.read_type_definition() == standard(ua.ObjectIds.TwoStateDiscreteType)
    assert await flag.read_value() is True


async def test_a_tag_without_a_sample_waits_for_initial_data(gateway: Rig) -> None:
    client = await gateway.client("viewer")
    value: Any = await client.get_node("ns=1;s=Tags/TK1.M101.STAGE").read_data_value(
        raise_on_bad_status=False
    )
    assert value.StatusCode.name == "BadWaitingForInitialData"
    assert value.Value.Value is None


async def test_names_of_the_server_agree(gateway: Rig) -> None:
    client = await gateway.client("viewer")
    uri = "urn:o3-gateway:line-3"
    assert (await client.get_namespace_array())[1] == uri
    assert (await client.get_node(ua.ObjectIds.Server_ServerArray).read_value()) == [uri]
    assert [s.ApplicationUri for s in await client.find_servers()] == [uri]
    found = await client.get_endpoints()
    assert {e.SecurityMode for e in found} == {ua.MessageSecurityMode.SignAndEncrypt}
    assert len(found) == 3


async def test_objects_are_browsable_by_path(gateway: Rig) -> None:
    client = await gateway.client("viewer")
    node = await client.nodes.objects.get_child(["1:O3Gateway", "1:Tags", "1:TK1", "1:LT101"])
    assert node.nodeid == node_id("Tags/TK1.LT101")
    point = await client.nodes.objects.get_child(["1:O3Gateway", "1:DecisionPoints", "1:buffer-tank"])
    names = {(await child.read_browse_name()).Name for child in await point.get_children()}
    assert {"Mode", "Verdict", "Violated", "CounterexampleJson", "RequestDecision", "SetMode"} <= names
    revision = await client.get_node("ns=1;s=ConstraintModules/buffer-tank/Revision").read_value()
    assert revision == 4


async def test_changes_reach_a_subscriber_and_a_quality_change_is_told(gateway: Rig) -> None:
    client = await gateway.client("viewer")
    changes = Changes()
    subscription = await client.create_subscription(100, changes)
    node = client.get_node(LEVEL)
    deadband: Any = 0.5  # asyncua names a Double that nobody makes
    await subscription.deadband_monitor(node, deadband)
    assert (await changes.value()).Value.Value == 2.0
    for value in (2.3, 2.4, 2.6):  # 2.6 is beyond the deadband of what was reported, 2.4 is not
        gateway.main.publish(tag_state("TK1.LT101", value))
        await eventually(lambda v=value: _value(gateway) == v)  # type: ignore[misc]  # bound default
    assert (await changes.value()).Value.Value == 2.6
    gateway.main.publish(tag_state("TK1.LT101", 2.6, status=0x808C0000))
    bad = await changes.value()
    assert bad.StatusCode.name == "BadSensorFailure"
    assert bad.Value.Value is None


def _value(gateway: Rig) -> Foreign:
    node = node_id("Tags/TK1.LT101")
    found: Any = gateway.running.server.internal.aspace.read_attribute_value(node, ua.AttributeIds.Value)
    return found.Value.Value


async def test_a_lost_link_makes_every_tag_bad_and_it_recovers(gateway: Rig) -> None:
    client = await gateway.client("viewer")
    changes = Changes()
    subscription = await client.create_subscription(100, changes)
    await subscription.subscribe_data_change(client.get_node(LEVEL))
    assert (await changes.value()).StatusCode.is_good()
    await gateway.stop_main()
    bad = await changes.value()
    assert bad.StatusCode.name == "BadNoCommunication"
    level = client.get_node(ua.ObjectIds.Server_ServiceLevel)
    assert await level.read_value() == 1
    assert not await client.get_node("ns=1;s=Diagnostics/LinkUp").read_value()
    gateway.main.items[3] = tag_state("TK1.LT101", 1.5)
    await gateway.start_main()
    good = await changes.value()
    assert (good.StatusCode.name, good.Value.Value) == ("Good", 1.5)
    await eventually(lambda: gateway.running.mirror.synchronised)
    assert await level.read_value() == 255


async def test_a_silent_main_is_a_lost_one(gateway: Rig) -> None:
    """A stopped process keeps its socket open; only an answer proves that it lives."""
    never: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    async def silence(_ask: Foreign, _peer: Foreign) -> Answer:
        return await never

    assert gateway.main.server is not None
    gateway.main.server._answer = silence
    await eventually(lambda: not gateway.running.mirror.synchronised)
    never.cancel()


async def test_a_new_snapshot_removes_what_is_gone_and_adds_what_is_new(gateway: Rig) -> None:
    client = await gateway.client("viewer")
    await gateway.stop_main()
    await eventually(lambda: not gateway.running.mirror.synchronised)
    gateway.main.items = [tag_info("TK1.TT101", unit="degC"), tag_state("TK1.TT101", 3.0), gateway_state()]
    await gateway.start_main()
    await eventually(lambda: gateway.running.mirror.synchronised)
    assert await client.get_node("ns=1;s=Tags/TK1.TT101").read_value() == 3.0
    assert await code_of(client.get_node(LEVEL).read_value()) == "BadNodeIdUnknown"
    assert (
        await code_of(client.get_node("ns=1;s=DecisionPoints/buffer-tank/Mode").read_value())
        == "BadNodeIdUnknown"
    )


async def test_a_module_that_is_gone_takes_its_nodes_with_it_and_may_come_back(gateway: Rig) -> None:
    client = await gateway.client("viewer")
    broken = msgspec.structs.replace(
        MODULE, id="broken", state="refused", refused_because=["broken.json:2:1: x"]
    )
    state = client.get_node("ns=1;s=ConstraintModules/broken/State")
    for _ in range(2):
        gateway.main.publish(broken)
        await eventually(lambda: "broken" in gateway.running.mirror._modules.names)
        assert await state.read_value() == "refused"
        gateway.main.publish(msgspec.structs.replace(broken, state="gone"))
        await eventually(lambda: "broken" not in gateway.running.mirror._modules.names)
        assert await code_of(state.read_value()) == "BadNodeIdUnknown"


async def test_a_decision_is_shown_and_a_refusal_is_an_event(gateway: Rig) -> None:
    client = await gateway.client("viewer")
    changes = Changes()
    subscription = await client.create_subscription(100, changes)
    await subscription.subscribe_events()
    now = time.time_ns()
    gateway.main.publish(decision("d1", "permitted", now))
    gateway.main.publish(decision("d2", "refused", now + 1000))
    event = await changes.event()
    assert event.Severity == 600
    assert event.SourceName == "buffer-tank"
    assert "level reaches 4.6 m" in event.Message.Text
    base = "ns=1;s=DecisionPoints/buffer-tank/"
    names = ("DecisionId", "Verdict", "Violated", "LatencyMs", "CertificateDigest", "WriteOutcome")
    values = [await client.get_node(base + name).read_value() for name in names]
    assert values == ["d2", "refused", ["buffer-tank/max-level"], 5.0, "cert", "confirmed"]
    assert json.loads(await client.get_node(base + "Proposal").read_value()) == {"TK1.P101.SP": "80.0"}
    assert changes.events.empty()


async def test_a_decision_is_requested_by_method_and_answered_after_main_decided(gateway: Rig) -> None:
    view = {
        "outcome": "repaired",
        "setpoints": {"TK1.P101.SP": "40.5"},
        "id": "d9",
        "certificate_digest": "c",
    }
    gateway.main.answers = lambda ask: Answer(id=ask.id, ok=True, result=view)
    client = await gateway.client("operator")
    point = client.get_node("ns=1;s=DecisionPoints/buffer-tank")
    what_if = ua.Variant('{"TK1.LT101": 2.10}')
    outputs = await point.call_method("1:RequestDecision", what_if, ua.Variant(250.0), ua.Variant("P1"))
    assert outputs == ["repaired", '{"TK1.P101.SP": "40.5"}', "", "c", "d9", ""]
    (asked,) = gateway.main.asked
    assert (asked.verb, asked.user, asked.deadline_ms) == ("decide", "operator", 250.0)
    assert asked.args == {
        "point": "buffer-tank",
        "what_if": {"TK1.LT101": "2.10"},  # the text a person wrote: exact
        "deadline_ms": 250.0,
        "class": "P1",
    }


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), "BadArgumentsMissing"),
        ((ua.Variant(""), ua.Variant(0.0)), "BadArgumentsMissing"),
        ((ua.Variant(""), ua.Variant("soon"), ua.Variant("")), "BadInvalidArgument"),
        ((ua.Variant(""), ua.Variant(0.0), ua.Variant(""), ua.Variant("")), "BadTooManyArguments"),
        ((ua.Variant("{"), ua.Variant(0.0), ua.Variant("")), "BadInvalidArgument"),
        ((ua.Variant(""), ua.Variant(float("nan")), ua.Variant("")), "BadOutOfRange"),
    ],
)
async def test_wrong_arguments_have_their_own_codes(
    gateway: Rig, arguments: tuple[Any, ...], code: str
) -> None:
    client = await gateway.client("operator")
    point = client.get_node("ns=1;s=DecisionPoints/buffer-tank")
    assert await code_of(point.call_method("1:RequestDecision", *arguments)) == code
    assert not gateway.main.asked


async def test_each_method_needs_its_role(gateway: Rig) -> None:
    point = "ns=1;s=DecisionPoints/buffer-tank"
    arguments = (ua.Variant(""), ua.Variant(0.0), ua.Variant(""))
    viewer = await gateway.client("viewer")
    refused = viewer.get_node(point).call_method("1:RequestDecision", *arguments)
    assert await code_of(refused) == "BadUserAccessDenied"
    operator = await gateway.client("operator")
    refused = operator.get_node(point).call_method("1:SetMode", ua.Variant("armed"))
    assert await code_of(refused) == "BadUserAccessDenied"
    assert not gateway.main.asked
    engineer = await gateway.client("engineer")
    await engineer.get_node(point).call_method("1:SetMode", ua.Variant("shadow"))
    assert gateway.main.asked[0].args == {"point": "buffer-tank", "mode": "shadow"}
    executable = f"{point}/SetMode"
    assert not await _executable(operator, executable)
    assert await _executable(engineer, executable)


async def _executable(client: Client, node: str) -> bool:
    value: Any = await client.get_node(node).read_attribute(ua.AttributeIds.UserExecutable)
    return bool(value.Value.Value)


async def test_a_method_without_a_link_says_so(gateway: Rig) -> None:
    client = await gateway.client("operator")
    point = client.get_node("ns=1;s=DecisionPoints/buffer-tank")
    await gateway.stop_main()
    await eventually(lambda: not gateway.running.mirror.synchronised)
    call = point.call_method("1:RequestDecision", ua.Variant(""), ua.Variant(0.0), ua.Variant(""))
    assert await code_of(call) == "BadNoCommunication"


async def test_nothing_can_be_written_or_added(gateway: Rig) -> None:
    client = await gateway.client("engineer")
    node = client.get_node(LEVEL)
    assert await code_of(node.write_value(3.0)) == "BadNotWritable"
    assert (
        await code_of(node.write_attribute(ua.AttributeIds.DisplayName, sample(ua.Variant("x"))))
        == "BadNotWritable"
    )
    assert await code_of(client.nodes.objects.add_folder(1, "mine")) == "BadUserAccessDenied"
    assert _value(gateway) == 2.0


async def test_browse_comes_in_pages_and_points_are_released(gateway: Rig) -> None:
    client = await gateway.client("viewer")
    wanted = ua.BrowseDescription()
    wanted.NodeId = node_id("DecisionPoints/buffer-tank")
    wanted.ResultMask = 63
    everything = ua.BrowseParameters(NodesToBrowse=[wanted])
    whole = (await client.uaclient.browse(everything))[0]
    paged = ua.BrowseParameters(NodesToBrowse=[wanted], RequestedMaxReferencesPerNode=4)
    page = (await client.uaclient.browse(paged))[0]
    names = [r.BrowseName.Name for r in page.References]
    while page.ContinuationPoint:
        assert len(page.References) == 4
        following = ua.BrowseNextParameters(
            ReleaseContinuationPoints=False, ContinuationPoints=[page.ContinuationPoint]
        )
        page = (await client.uaclient.browse_next(following))[0]
        names += [r.BrowseName.Name for r in page.References]
    assert names == [r.BrowseName.Name for r in whole.References]
    stale = (
        await client.uaclient.browse_next(
            ua.BrowseNextParameters(ReleaseContinuationPoints=True, ContinuationPoints=[b"stale"])
        )
    )[0]
    assert stale.StatusCode.name == "BadContinuationPointInvalid"


async def test_operation_limits_are_enforced(tmp_path: Path) -> None:
    async with rig(tmp_path, limits=Limits(nodes_per_call=20)) as made:
        client = await made.client("viewer")
        nodes = [client.get_node(LEVEL)] * 20
        assert len(await client.read_values(nodes)) == 20
        assert await code_of(client.read_values([*nodes, nodes[0]])) == "BadTooManyOperations"


async def test_the_point_state_follows_the_feed(gateway: Rig) -> None:
    client = await gateway.client("viewer")
    node = client.get_node("ns=1;s=DecisionPoints/buffer-tank/Mode")
    changes = Changes()
    subscription = await client.create_subscription(100, changes)
    await subscription.subscribe_data_change(node)
    assert (await changes.value()).Value.Value == "armed"
    gateway.main.publish(msgspec.structs.replace(POINT, mode="shadow"))
    assert (await changes.value()).Value.Value == "shadow"
