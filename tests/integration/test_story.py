"""The story of the demo, walked in order on one running gateway: shadow, armed, seen, swapped, stopped."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from asyncua import Client, ua
from asyncua.crypto import security_policies
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from gateway.link.messages import DecisionView
from gateway.protocols.opcua.pki import demo_client
from tests.integration.house import ANSWER_S, PASSWORD, POINT, ROOT, SLOWEST, USER, House, tell
from tests.integration.picture import lost_worker
from tests.integration.recorded import CONTROL_VALID, HEATER, LEASE, MIXER, PUMP, SEQUENCE, blocks

pytestmark = pytest.mark.integration

EXAMPLE = ROOT / "docs" / "examples" / "lower-level-limit.json"
METHOD = f"ns=1;s=DecisionPoints/{POINT}/RequestDecision"


@pytest.mark.timeout(900)
async def test_the_demo_from_shadow_to_stop(tmp_path: Path) -> None:
    async with House(tmp_path) as house:
        for step in (
            it_starts_in_shadow_decides_and_writes_nothing,
            armed_over_the_internal_port_its_writes_are_confirmed_by_the_plc,
            s23_the_first_write_after_arming_was_the_value_in_force,
            mbpoll_reads_the_same_working_values_from_the_plc,
            opc_ua_without_security_shows_everything_and_lets_nothing_be_done,
            opc_ua_signed_and_encrypted_a_user_asks_for_a_decision,
            mqtt_tells_tags_and_verdicts_and_answers_a_request,
            nonsense_over_the_internal_port_is_answered_with_a_sentence,
            a_dropped_module_is_in_force_without_a_missed_decision,
            a_broken_file_is_refused_by_name_line_and_column_and_nothing_changes,
            s24_taking_a_module_out_waits_for_a_person,
            the_kill_switch_gives_the_plant_back_and_resuming_takes_it_again,
            sigterm_clears_control_valid_first_and_ends_in_order,
            no_violating_value_ever_was_a_working_value,
        ):
            started = time.monotonic()
            await step(house)
            tell(f"{step.__name__}: {time.monotonic() - started:.1f} s")


def written(house: House) -> list[tuple[int, ...]]:
    """Hand-over blocks that reached the PLC through the recording proxy."""
    return blocks(house.proxy.sent())


async def it_starts_in_shadow_decides_and_writes_nothing(house: House) -> None:
    await house.until(lambda p: any(d.setpoints for d in p.decisions.values()), 20, "a verdict")
    assert house.picture.mode == "shadow"
    assert not house.picture.in_control
    assert written(house) == []


async def armed_over_the_internal_port_its_writes_are_confirmed_by_the_plc(house: House) -> None:
    tell(f"armed and first confirmed write: {await house.arm():.1f} s")
    armed_at = time.monotonic()
    await house.until(lambda p: confirmed(p.since(armed_at), 3), 20, "three confirmed writes")
    await house.panel.until(lambda words: works_as_written(words, written(house)[-1]), 5)
    sent = written(house)
    assert sent[0][CONTROL_VALID] == 1
    assert len({block[SEQUENCE] for block in sent}) == len(sent)  # nothing was ever repeated
    assert all(a[LEASE] != b[LEASE] for a, b in itertools.pairwise(sent))


def works_as_written(words: list[int], block: tuple[int, ...]) -> bool:
    """Whether the PLC, remote and in the gateway's control, has taken that block."""
    return (
        words[1] & 0b11 == 0b11
        and words[2] == block[SEQUENCE]
        and words[4:7] == [block[PUMP], block[HEATER], block[MIXER]]
    )


def confirmed(views: list[DecisionView], count: int) -> bool:
    return sum(view.write_outcome == "confirmed" for view in views) >= count


async def s23_the_first_write_after_arming_was_the_value_in_force(house: House) -> None:
    view = next(v for v in house.picture.decisions.values() if v.write_outcome == "confirmed")
    if view.written_by == "verdict" and view.outcome == "permitted":
        assert view.setpoints["TK1.P101.SP"] == view.inputs["TK1.P101.PV"]


async def opc_ua_without_security_shows_everything_and_lets_nothing_be_done(house: House) -> None:
    url = f"opc.tcp://127.0.0.1:{house.opcua_port}/o3"
    await house.until(lambda p: p.gateway is not None and p.gateway.parts["o3-opcua"] == "ok", 30, "o3-opcua")
    async with await listening(url) as client:
        level = await client.get_node("ns=1;s=Tags/TK1.LT101").read_data_value()
        assert level.StatusCode is not None
        assert level.StatusCode.is_good()
        assert level.Value is not None
        assert 0.0 < level.Value.Value < 4.0
        verdict = client.get_node(f"ns=1;s=DecisionPoints/{POINT}/Verdict")
        async with asyncio.timeout(ANSWER_S):  # one decision of a busy machine may have had no time
            while await verdict.read_value() not in {"permitted", "repaired", "refused"}:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert await client.get_node(f"ns=1;s=DecisionPoints/{POINT}/Mode").read_value() == "armed"
        with pytest.raises(ua.UaStatusCodeError) as caught:
            await request_decision(client, "")
        assert caught.value.code == ua.StatusCodes.BadUserAccessDenied
        with pytest.raises(ua.UaStatusCodeError):
            await client.get_node("ns=1;s=Tags/TK1.P101.SP").write_value(100.0)


async def listening(url: str) -> Client:
    """A client of an endpoint that may still be starting."""
    async with asyncio.timeout(SLOWEST * 40):
        while True:
            try:
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", int(url.split(":")[2].split("/", maxsplit=1)[0])
                )
            except OSError:
                await asyncio.sleep(0.1)  # a port that is not open yet has no event; bounded above
                continue
            del reader
            writer.close()
            return Client(url, timeout=ANSWER_S)


async def decided(client: Client, what_if: str) -> list[Any]:
    """What is answered, asked again while there was no time for a verdict."""
    async with asyncio.timeout(ANSWER_S):
        while True:
            answer = await request_decision(client, what_if)
            if answer[0] != "undetermined":
                return answer


async def request_decision(client: Client, what_if: str) -> list[Any]:
    arguments = (
        ua.Variant(what_if, ua.VariantType.String),
        ua.Variant(0.0, ua.VariantType.Double),
        ua.Variant("", ua.VariantType.String),
    )
    point = client.get_node(f"ns=1;s=DecisionPoints/{POINT}")
    answer: list[Any] = await point.call_method(ua.NodeId.from_string(METHOD), *arguments)
    return answer


async def opc_ua_signed_and_encrypted_a_user_asks_for_a_decision(house: House) -> None:
    identity = demo_client(house.state / "pki")
    client = Client(f"opc.tcp://127.0.0.1:{house.opcua_port}/o3", timeout=ANSWER_S)
    client.application_uri = identity.uri
    await client.set_security(
        security_policies.SecurityPolicyAes256Sha256RsaPss,
        str(identity.certificate),
        str(identity.private_key),
        server_certificate=str(house.state / "pki" / "own" / "cert.der"),
        mode=ua.MessageSecurityMode.SignAndEncrypt,
    )
    client.set_user(USER)
    client.set_password(PASSWORD)
    async with client:
        verdict, setpoints, _, digest, number, _ = await decided(client, "")
        assert verdict in {"permitted", "repaired"}
        assert set(json.loads(setpoints)) == {"TK1.P101.SP", "TK1.H101.CMD", "TK1.M101.STAGE"}
        assert digest.startswith("sha256:")
        await house.until(lambda p: number in p.decisions, 5, "the decision on the Feed")
        assert house.picture.decisions[number].requested_by == USER
        what_if = json.dumps({"TK1.LT101": 3.59, "TK1.FT101": 36, "TK1.TT101": 40})
        verdict, _, counterexample, _, number, _ = await decided(client, what_if)
        assert verdict == "refused", counterexample
        assert counterexample
        view = (await house.asked("explain", {"id": number}))["write_outcome"]
        assert view == ""


async def mqtt_tells_tags_and_verdicts_and_answers_a_request(house: House) -> None:
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[mqtt.MQTTMessage] = asyncio.Queue()
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5, client_id="story")

    def took(_client: mqtt.Client, _user: object, message: mqtt.MQTTMessage) -> None:
        loop.call_soon_threadsafe(arrived.put_nowait, message)

    def joined(client: mqtt.Client, *_: object) -> None:
        client.subscribe([("o3/#", mqtt.SubscribeOptions(1)), ("answers/story", mqtt.SubscribeOptions(1))])

    client.on_message, client.on_connect = took, joined
    await asyncio.to_thread(client.connect, "127.0.0.1", house.mqtt_port)
    client.loop_start()
    try:
        async with asyncio.timeout(ANSWER_S):
            seen = await topics(arrived, {"o3/status", "o3/tags/TK1/LT101", f"o3/points/{POINT}/verdict"})
            assert seen["o3/status"].payload == b"online"
            assert seen["o3/status"].retain
            assert json.loads(seen[f"o3/points/{POINT}/verdict"].payload)["point"] == POINT
            properties: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # paho's own
            properties.ResponseTopic, properties.CorrelationData = "answers/story", b"41"
            answered = {"outcome": "undetermined"}  # for want of time, on a busy machine
            while answered["outcome"] == "undetermined":
                client.publish(f"o3/decide/{POINT}", "{}", properties=properties)
                answer = (await topics(arrived, {"answers/story"}))["answers/story"]
                answered = json.loads(answer.payload)
        told: Any = answer.properties  # paho sets its attributes by name
        assert told.CorrelationData == b"41"
        assert answered["outcome"] in {"permitted", "repaired"}
    finally:
        client.loop_stop()
        client.disconnect()


async def topics(arrived: asyncio.Queue[mqtt.MQTTMessage], wanted: set[str]) -> dict[str, mqtt.MQTTMessage]:
    """The first message of each wanted topic."""
    seen: dict[str, mqtt.MQTTMessage] = {}
    while wanted - set(seen):
        message = await arrived.get()
        seen.setdefault(message.topic, message)
    return seen


async def mbpoll_reads_the_same_working_values_from_the_plc(house: House) -> None:
    if shutil.which("mbpoll") is None:
        tell("mbpoll is not installed: its step is left out")
        return
    command = f"mbpoll -0 -1 -q -a 1 -t 3 -r 0 -c 13 -p {house.plant_port} 127.0.0.1"
    process = await asyncio.create_subprocess_exec(*command.split(), stdout=asyncio.subprocess.PIPE)
    output = (await process.communicate())[0].decode()
    assert process.returncode == 0, output
    words = {
        int(line[1 : line.index("]")]): int(line.split(":")[1].split()[0])
        for line in output.splitlines()
        if line.startswith("[")
    }
    assert words[1] & 0b11 == 0b11
    (block,) = (block for block in written(house) if block[SEQUENCE] == words[2])
    assert (words[4], words[5], words[6]) == (block[PUMP], block[HEATER], block[MIXER])


async def nonsense_over_the_internal_port_is_answered_with_a_sentence(house: House) -> None:
    at = time.monotonic()
    wish = {"TK1.P101.SP": 50, "TK1.H101.CMD": False, "TK1.M101.STAGE": 1}
    for verb, given, words in (
        ("decide", {"point": POINT, "deadline_ms": "x"}, "does not fit"),
        ("decide", {"point": POINT, "deadline_ms": float("nan")}, "no meaning"),
        ("decide", {"point": POINT, "proposal": {"TK1.P101.SP": 50}}, "missing: TK1.H101.CMD"),
        ("decide", {"point": POINT, "proposal": {**wish, "TK1.P101.SP": 7000}}, "does not fit its register"),
        ("decide", {"point": POINT, "what_if": {"TK1.P101.SP": 1}}, "is not an input"),
        ("decide", {"point": "nowhere"}, "unknown decision point"),
        ("decisions", {"limit": "x"}, "does not fit"),
        ("mode", {"point": POINT, "mode": "banana"}, "not a mode"),
        ("banana", {}, "not a verb"),
    ):
        answer = await house.ask(verb, given)
        assert not answer.ok
        assert words in answer.error, answer.error
    refused = await house.asked("decide", {"point": POINT, "proposal": {**wish, "TK1.P101.SP": 100}})
    if refused["outcome"] == "refused":  # else repaired: what is nearest may be written
        assert refused["setpoints"] == {}
    await house.until(lambda p: confirmed(p.since(at), 1), 5, "decisions go on")
    assert house.picture.in_control


async def a_dropped_module_is_in_force_without_a_missed_decision(house: House) -> None:
    generation = house.picture.gateway.generation if house.picture.gateway else 0
    dropped_at = time.monotonic()
    shutil.copyfile(EXAMPLE, house.watched / EXAMPLE.name)
    took = await house.until(
        lambda p: (
            p.module("lower-level-limit") == "active" and (p.gateway or missing()).generation > generation
        ),
        15,
        "the dropped module in force",
    )
    decided = await house.until(
        lambda p: any(d.generation > generation for d in p.since(dropped_at)), 10, "a decision under it"
    )
    tell(f"dropped module in force after {took:.2f} s, first decision under it {decided:.2f} s later")
    await house.until(lambda p: confirmed(p.since(dropped_at), 3), 15, "three confirmed writes since")
    views = house.picture.since(dropped_at)
    examined = {"permitted", "repaired", "refused"}  # a busy machine has no time for some
    missed = [view.reason for view in views if view.outcome not in examined]
    assert not [why for why in missed if "rule set" in why or lost_worker(why)], missed
    moments = [view.at_ns / 1e9 for view in house.picture.decisions.values() if view.requested_by == "period"]
    gaps = [b - a for a, b in itertools.pairwise(moments)]
    tell(f"longest time between two decisions: {max(gaps[-6:]):.2f} s")
    assert house.picture.mode == "armed"


def missing() -> Any:  # noqa: ANN401  # stands for a state that has not come yet
    raise AssertionError("the gateway's state has not come yet")


async def a_broken_file_is_refused_by_name_line_and_column_and_nothing_changes(house: House) -> None:
    before = (house.picture.gateway or missing()).rule_set_digest
    (house.watched / "broken.json").write_text('{\n "id": "broken",\n "revision": \n}\n')
    report = house.watched / "broken.refused.txt"
    await house.until(lambda p: "refused" in {m.state for m in p.modules.values()}, 15, "a refusal")
    refused = next(m for m in house.picture.modules.values() if m.state == "refused")
    assert refused.file.endswith("broken.json")
    assert any("broken.json:4:1" in why for why in refused.refused_because), refused.refused_because
    await house.until(lambda _p: report.exists() and "broken.json:4:1" in report.read_text(), 5, "a report")
    assert "broken.json:4:1" in house.log_file.read_text()
    status = await house.asked("status")
    assert any("broken.json:4:1" in why for m in status["modules"] for why in m["refused_because"])
    assert status["gateway"]["rule_set_digest"] == before
    async with (
        await listening(f"opc.tcp://127.0.0.1:{house.opcua_port}/o3") as client,
        asyncio.timeout(ANSWER_S),
    ):
        while not (broken := await broken_module(client)):  # noqa: ASYNC110  another process shows it
            await asyncio.sleep(0.05)
        because = await client.get_node(f"ns=1;s=ConstraintModules/{broken}/RefusedBecause").read_value()
        assert any("broken.json:4:1" in why for why in because)
    (house.watched / "broken.json").unlink()


async def broken_module(client: Client) -> str:
    """The name of its node; "" while o3-opcua has not heard of it."""
    folder = client.get_node("ns=1;s=ConstraintModules")
    names = [(await child.read_browse_name()).Name or "" for child in await folder.get_children()]
    return next((name for name in names if "broken" in name), "")


async def s24_taking_a_module_out_waits_for_a_person(house: House) -> None:
    before = (house.picture.gateway or missing()).generation
    (house.watched / EXAMPLE.name).unlink()
    await house.until(lambda p: p.module("lower-level-limit") == "pending", 15, "a waiting removal")
    assert (house.picture.gateway or missing()).generation == before
    await house.asked("runtime.approve", {"module": "lower-level-limit"})
    await house.until(
        lambda p: (
            (p.gateway or missing()).generation > before and p.module("lower-level-limit") in {"unloaded", ""}
        ),
        15,
        "the approved removal",
    )
    approved_at = time.monotonic()
    await house.until(lambda p: confirmed(p.since(approved_at), 2), 15, "writes under the weaker set")


async def the_kill_switch_gives_the_plant_back_and_resuming_takes_it_again(house: House) -> None:
    await house.asked("stop-writes")
    tell(f"kill switch to the PLC's own control: {await house.panel.until(lambda w: not w[1] & 2, 2):.3f} s")
    count = len(written(house))
    stopped_ns = time.time_ns()

    def since() -> list[DecisionView]:
        return [view for view in house.picture.decisions.values() if view.at_ns > stopped_ns]

    await house.until(lambda _p: len(since()) >= 2, 10, "decisions go on")
    assert not any(view.write_outcome == "confirmed" for view in since())
    assert [block for block in written(house)[count:] if block[CONTROL_VALID]] == []
    await house.asked("stop-writes", {"resume": True})
    await house.panel.until(lambda w: bool(w[1] & 2), 15)


async def sigterm_clears_control_valid_first_and_ends_in_order(house: House) -> None:
    assert (await house.panel.inputs())[1] & 2
    stopping = asyncio.create_task(house.stop_daemon(signal.SIGTERM))
    given_back = await house.panel.until(lambda w: not w[1] & 2, 2)
    took = await stopping
    tell(f"control-valid cleared after {given_back:.3f} s, ended after {took:.2f} s")
    assert written(house)[-1][CONTROL_VALID] == 0
    assert house.daemon is not None
    assert house.daemon.returncode == 0, house.log_tail()


async def no_violating_value_ever_was_a_working_value(house: House) -> None:
    await house.close()
    assert house.violations() == []
    assert list(unsafe(written(house))) == []


def unsafe(sent: list[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """Blocks whose outputs break the demo's rules by themselves."""
    for block in sent:
        if block[CONTROL_VALID] and (block[PUMP] > 1000 or (block[HEATER] and not block[MIXER])):
            yield block
