"""`o3ctl model` on the running demo: armed points, restarts, kills in the middle (S23, S24, S27)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from asyncua import ua
from asyncua.crypto import security_policies

from gateway.core.clock import Deadline, SystemClock
from gateway.core.decision import Proposal, RequestClass
from gateway.core.errors import LinkError
from gateway.core.tagstore import Snapshot
from gateway.daemon.recall import recalled
from gateway.inference.client.model_engine import ModelEngine
from gateway.inference.client.past import Moment
from gateway.inference.client.served import ServedModel
from gateway.pipeline.point import Point
from gateway.protocols.opcua.pki import demo_client
from gateway.storage.audit import AuditLog
from gateway.storage.chain import open_for_reading
from gateway.storage.reading import AuditEvent, events
from tests.integration.house import PASSWORD, POINT, ROOT, SLOWEST, USER, House, tell
from tests.integration.picture import lost_worker
from tests.integration.test_story import listening
from tests.unit.bad_bundles import ENDLESS
from tests.unit.inference_demo import demo_definitions

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

CONFIGURED, SECOND = "buffer-tank", "second"


class OwnBundles(House):
    """The demo with bundles of its own: the configured one, the same under another name, and a broken one."""

    rules = "shadow"

    def _prepare(self) -> None:
        super()._prepare()
        bundles = self.folder / "bundles"
        shipped = ROOT / "gateway" / "inference" / "bundles" / CONFIGURED
        for name in (CONFIGURED, SECOND, "broken"):
            shutil.copytree(shipped, bundles / name)
        (bundles / "broken" / "model.onnx").write_bytes(b"not a model")
        another = bundles / SECOND / "bundle.json"  # another model by its digest, the same by what it wants
        another.write_text(another.read_text().replace('"revision":', '"revision" :'))
        config = self.folder / "gateway.toml"
        lines = [line for line in config.read_text().splitlines() if not line.startswith("bundles_dir")]
        at = lines.index("[gateway]") + 1
        lines[at:at] = ['bundles_dir = "bundles"', f'model_change = "{self.rules}"']
        config.write_text("\n".join(lines) + "\n")

    async def served_by(self) -> str:
        """The name of the bundle in service."""
        ((model),) = await self.asked("model.list")
        return str(model["bundle"])

    def events(self, kind: str) -> list[AuditEvent]:
        """What the audit log says, oldest first."""
        with closing(open_for_reading(self.state / "audit.sqlite")) as db:
            return [event for event in reversed(events(db, 1000, None)) if event.kind == kind]


class KeptArmed(OwnBundles):
    """The same under rules that let a point stay armed."""

    rules = "keep"


async def _until(holds: Callable[[], Any], house: OwnBundles, timeout_s: float, what: str) -> None:
    """Wait for more of the Feed until it is so."""
    await house.until(lambda _p: bool(holds()), timeout_s, what)


async def test_s27_an_armed_point_leaves_armed_and_the_choice_outlives_a_kill(tmp_path: Path) -> None:
    async with OwnBundles(tmp_path) as house:
        await house.arm()
        refused = await house.ask("model.load", {"bundle": "broken"})
        assert "`broken` did not take over" in refused.error
        kept = await house.ask("model.load", {"bundle": SECOND, "keep_armed": True})
        assert "do not let a point stay armed" in kept.error
        assert house.picture.mode == "armed"
        assert await house.served_by() == CONFIGURED

        loaded = await house.ask("model.load", {"bundle": SECOND})
        assert loaded.ok, loaded.error
        await house.until(lambda p: p.mode == "shadow", 5, "out of armed")
        (event,) = house.events("model")
        assert event.what["armed"] == POINT
        assert event.what["to"] == SECOND
        assert event.what["from_digest"] != event.what["to_digest"]

        await house.stop_daemon(signal.SIGKILL)
        decided = len(house.picture.decisions)
        await house.start_daemon()
        await house.until(lambda p: len(p.decisions) > decided + 1, 60, "decisions after the kill")
        assert await house.served_by() == SECOND
        assert house.picture.mode == "shadow"
        back = await house.ask("model.rollback")
        assert back.ok, back.error
        assert await house.served_by() == CONFIGURED


async def test_s23_s27_kept_armed_it_decides_on_and_a_bundle_that_keeps_dying_is_left(tmp_path: Path) -> None:
    async with KeptArmed(tmp_path) as house:
        await house.arm()
        started, decided = time.monotonic(), len(house.picture.decisions)
        loaded = await house.ask("model.load", {"bundle": SECOND, "keep_armed": True})
        assert loaded.ok, loaded.error
        taken_over = time.monotonic()
        await house.until(lambda p: p.wrote(taken_over), 15, "a write by the new model")
        assert house.picture.mode == "armed"
        assert house.picture.in_control
        meanwhile = [view for view in house.picture.since(started) if lost_worker(view.reason)]
        assert meanwhile == []
        tell(f"{len(house.picture.decisions) - decided} decisions around the swap, none lost")

        await house.stop_daemon(signal.SIGKILL)
        house.picture.points.clear()  # what was seen before counts no more
        await house.start_daemon()
        await house.until(lambda p: p.mode == "armed" and p.in_control, 60, "armed again by itself (S23)")
        assert await house.served_by() == SECOND

        for _ in range(3):
            (pid, *_rest) = house.kill("engine")
            await _until(lambda gone=pid: house.pids("engine") not in ([], [gone]), house, 20, "a new worker")  # type: ignore[misc]
        await house.until(lambda p: p.seen_alarm_with("was lost 3 times"), 30, "the alarm")
        assert await house.served_by() == CONFIGURED
        assert house.events("model")[-1].who == "gateway"
        assert house.picture.mode == "armed"


async def test_a_daemon_killed_in_the_middle_of_a_swap_serves_the_old_one(tmp_path: Path) -> None:
    async with OwnBundles(tmp_path) as house:
        ENDLESS.made_in(
            tmp_path / "bundles" / ENDLESS.name
        )  # however late the kill, the middle lasts till then
        (serving,) = house.pids("engine")
        asking = asyncio.create_task(house.ask("model.load", {"bundle": ENDLESS.name}))
        async with asyncio.timeout(SLOWEST * 20):
            while house.pids("engine") == [serving]:  # noqa: ASYNC110  # a process table gives no event
                await asyncio.sleep(0.005)
        successor = house.pids("engine")[-1]
        await house.stop_daemon(signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(successor, signal.SIGKILL)  # in a graph without an end it does not see the daemon's
        with contextlib.suppress(LinkError):
            assert not (await asking).ok
        decided = len(house.picture.decisions)
        await house.start_daemon()
        await house.until(lambda p: len(p.decisions) > decided + 1, 60, "decisions after the kill")
        assert await house.served_by() == CONFIGURED
        assert house.events("model") == []


async def test_s27_scada_lets_a_bundle_take_over_by_opc_ua_and_reads_why_another_one_may_not(
    tmp_path: Path,
) -> None:
    async with OwnBundles(tmp_path) as house:
        identity = demo_client(house.state / "pki")
        client = await listening(f"opc.tcp://127.0.0.1:{house.opcua_port}/o3")
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
            folder, text = client.get_node("ns=1;s=Models"), ua.VariantType.String
            leave = ua.Variant(False, ua.VariantType.Boolean)  # noqa: FBT003  a value of that type

            async def load(bundle: str) -> list[Any]:
                found: list[Any] = await folder.call_method(
                    "1:Load", ua.Variant("", text), ua.Variant(bundle, text), leave
                )
                return found

            assert await load(SECOND) == [True, ""]
            assert await house.served_by() == SECOND
            (event,) = house.events("model")
            assert event.who == USER
            done, because = await load("broken")
            assert not done
            assert "it was cut short, copy the bundle again; `second` still serves `buffer-tank`" in because
            node = client.get_node("ns=1;s=Models/buffer-tank/LastRefusal")
            async with asyncio.timeout(SLOWEST * 10):
                while "cut short" not in await node.read_value():  # noqa: ASYNC110  told once a second
                    await asyncio.sleep(0.05)
            assert await client.get_node("ns=1;s=Models/buffer-tank/Bundle").read_value() == SECOND
            assert await client.get_node("ns=1;s=Models/buffer-tank/Swaps").read_value() == 1


async def test_what_the_daemon_recorded_warms_a_model_so_that_its_first_decision_needs_no_history(
    tmp_path: Path,
) -> None:
    async with OwnBundles(tmp_path) as house:
        await house.until(
            lambda p: sum(bool(view.proposal) for view in p.decisions.values()) >= 15, 60, "15 proposals"
        )
        await house.stop_daemon(signal.SIGKILL)
    clock = SystemClock()
    audit = AuditLog(house.state / "audit.sqlite", clock)
    await audit.start()
    settings = SimpleNamespace(id=POINT, request_class=RequestClass.P1)
    try:
        pasts = await recalled(audit, [cast("Point", SimpleNamespace(settings=settings))], clock)
    finally:
        await audit.aclose()
    moments, _ = pasts[POINT]
    assert len(moments) >= 10
    served, twin = (ServedModel(name, [tmp_path / "bundles" / SECOND], _make) for name in ("served", "twin"))
    served.recall(pasts)
    await served.start()
    await twin.start()
    try:
        for moment in moments:
            await _asked_again(twin, moment.at, moment)
        at = moments[-1].at + 1.0
        ours, theirs = await _asked_again(served, at, moments[-1]), await _asked_again(twin, at, moments[-1])
        assert ours.values == theirs.values
        assert ours.confidence == pytest.approx(theirs.confidence, rel=1e-5)
        assert served.statistics().histories_sent == 0
    finally:
        await served.aclose()
        await twin.aclose()


def _make(folder: Path, on_lost: Callable[[], None]) -> ModelEngine:
    return ModelEngine(folder, demo_definitions(), "cpu", on_lost=on_lost)


async def _asked_again(served: ServedModel, at: float, moment: Moment) -> Proposal:
    deadline = Deadline.after(60.0, SystemClock())
    taken = Snapshot(at, moment.snapshot.values)
    return await served.for_point(POINT).propose(taken, moment.previous, deadline)
