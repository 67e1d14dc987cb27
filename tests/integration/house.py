"""The whole thing on loopback: plant, recording proxy, broker and daemon, each a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from pymodbus.client import AsyncModbusTcpClient

from gateway.link.client import LinkClient
from gateway.link.messages import Answer
from gateway.plantsim.judge import Violation, violations
from gateway.plantsim.plc import FALLBACK_LEVEL_M, Panel
from gateway.protocols.mqtt.broker import demo_broker
from gateway.protocols.opcua.passwords import hash_password
from gateway.protocols.opcua.pki import demo_client
from tests.integration.picture import Follower, Picture
from tests.ports import free_ports
from tests.recording_proxy import RecordingProxy

ROOT = Path(__file__).resolve().parents[2]
POINT = "buffer-tank"
USER, PASSWORD = "engineer", "correct horse"  # a test's
START_S = 60.0
ARM_S = 60.0
STOP_S = 10.0
ANSWER_S = 120.0
SLOWEST = 6  # a busy machine takes so many times as long as a quiet one: only a failure waits for the end
DEADLINE_MS = 250  # instead of the demo's 100: a test machine shares its cores
MODULES = {
    "solver": "gateway.solver.workers.worker",
    "engine": "gateway.inference.serving.worker",
    "opcua": "gateway.protocols.opcua",
    "web": "gateway.web",
}


class House:
    """`async with House(tmp_path) as house`: the demo running in shadow, its first decision made."""

    modules = 'proof_grace = "300 s"\n'  # of its configuration: a proof of a busy machine takes its time

    def __init__(
        self,
        folder: Path,
        *,
        model: str = "buffer-tank",
        seed: int = 1,
        level_m: float = 2.0,
        guided: bool = False,
        n_best: int = 1,
        repair: str = "segment",
        bundles: Path = ROOT / "gateway" / "inference" / "bundles",
    ) -> None:
        self.folder, self._model, self._seed, self._level_m = folder, model, seed, level_m
        self._bundles = bundles
        self._decoding = f'guided = {str(guided).lower()}\nn_best = {n_best}\nrepair = "{repair}"'
        self.scan_log = folder / "plant" / "scan.csv"
        self.watched = folder / "constraints.d"
        self.state = folder / "state"
        self.log_file = folder / "gateway.log"
        self.opcua_port, self.mqtt_port, self.web_port = free_ports(3)
        self.plant_port = 0
        self.follower = Follower(self.state / "run" / "o3.sock")
        self.daemon: asyncio.subprocess.Process | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self.plant_port = await stack.enter_async_context(self._plant())
            self.proxy = await stack.enter_async_context(RecordingProxy("127.0.0.1", self.plant_port))
            await stack.enter_async_context(demo_broker(self.mqtt_port, self.folder / "mosquitto"))
            self.panel = Switches(self.plant_port)
            stack.push_async_callback(self.panel.aclose)
            self._prepare()
            following = asyncio.create_task(self.follower.run(), name="follower")
            stack.push_async_callback(_cancelled, following)
            stack.push_async_callback(self.stop_daemon)
            await self.start_daemon()
            async with self._level_held():
                await self.until(lambda p: p.last is not None, START_S, "a first decision")
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @property
    def picture(self) -> Picture:
        """What the Feed says."""
        return self.follower.picture

    async def ask(self, verb: str, args: dict[str, Any] | None = None, *, user: str = "") -> Answer:
        """One question on a connection of its own."""
        client = await LinkClient.connect(self.state / "run" / "o3.sock", "test", ANSWER_S)
        try:
            return await client.ask(verb, args, user=user, deadline_ms=1000 * ANSWER_S)
        finally:
            await client.aclose()

    async def asked(self, verb: str, args: dict[str, Any] | None = None) -> Any:  # noqa: ANN401  # plain data
        """The result of a question that must not be refused."""
        answer = await self.ask(verb, args)
        assert answer.ok, answer.error
        return answer.result

    async def decided(self, args: dict[str, Any]) -> dict[str, Any]:
        """A verdict; asked again while there was no time for one, as a busy machine has it."""
        async with asyncio.timeout(ANSWER_S):
            while True:
                view: dict[str, Any] = await self.asked("decide", {"point": POINT, **args})
                if view["outcome"] != "undetermined":
                    return view

    async def until(self, holds: Callable[[Picture], bool], usual_s: float, what: str) -> float:
        """Seconds until the picture is so; fails with the last of everything when it does not get so.

        `usual_s` is the most that a quiet machine needs. A daemon that ends meanwhile ends the wait.
        """
        started, so = time.monotonic(), False
        daemon = self.daemon if self.daemon is not None and self.daemon.returncode is None else None

        def over(picture: Picture) -> bool:
            nonlocal so
            so = holds(picture)
            return so or (daemon is not None and daemon.returncode is not None)

        await self.follower.until(over, SLOWEST * usual_s)
        assert so, self._told(what, time.monotonic() - started)
        return time.monotonic() - started

    async def arm(self) -> float:
        """Armed as an engineer would, as soon as that is allowed, and a first write confirmed."""
        started = time.monotonic()
        await self.allowed_to_arm()
        await self.until(lambda p: p.in_control and p.wrote(started), 15, "a confirmed write in control")
        return time.monotonic() - started

    async def allowed_to_arm(self) -> None:
        """Signed and armed; a write may still have to come."""
        started = time.monotonic()
        await self.sign()
        why = "nobody asked yet"
        while why and time.monotonic() - started < SLOWEST * ARM_S:
            decided = len(self.picture.decisions)
            why = (await self.ask("mode", {"point": POINT, "mode": "armed"})).error
            if why:  # another decision brings other facts
                await self.until(lambda p, n=decided: len(p.decisions) > n, 10, "one more decision")  # type: ignore[misc]
        assert not why, self._told(f"armed ({why})", SLOWEST * ARM_S)

    async def sign(self) -> None:
        """The demo's binding sheet handed in, as an engineer would (S26)."""
        sheet = self.folder / "binding.csv"
        await self.asked("binding.sign", {"point": POINT, "text": sheet.read_text(), "file": str(sheet)})

    async def start_daemon(self) -> None:
        """A daemon process; the picture tells when it works."""
        with self.log_file.open("ab") as output:
            self.daemon = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gateway", "--config", str(self.folder / "gateway.toml")),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd=ROOT,
            )

    async def stop_daemon(self, number: signal.Signals = signal.SIGTERM) -> float:
        """Seconds from the signal to the end; killed when that does not come."""
        process = self.daemon
        started = time.monotonic()
        if process is None or process.returncode is not None:
            return 0.0
        process.send_signal(number)
        try:
            async with asyncio.timeout(SLOWEST * STOP_S):
                await process.wait()
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        return time.monotonic() - started

    def pids(self, part: str) -> list[int]:
        """Process ids of the daemon's children that are of a part, the oldest first."""
        assert self.daemon is not None
        found: list[psutil.Process] = []
        for child in psutil.Process(self.daemon.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
                if MODULES[part] in child.cmdline():
                    found.append(child)
        return [child.pid for child in sorted(found, key=lambda child: (child.create_time(), child.pid))]

    def kill(self, part: str) -> list[int]:
        """kill -9 of every process of a part."""
        killed = self.pids(part)
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        return killed

    async def close(self) -> None:
        """Everything ended in order; the scan log is whole afterwards."""
        await self._stack.aclose()

    def violations(self) -> list[Violation]:
        """What the plant's own record says; whole only after `close`."""
        return violations(self.scan_log)

    def logged(self, event: str) -> int:
        """How often the daemon's log tells of an event."""
        return self.log_file.read_text(errors="replace").count(f'"event":"{event}"')

    def log_tail(self, lines: int = 25) -> str:
        """The end of the daemon's log."""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])

    @asynccontextmanager
    async def _level_held(self) -> AsyncIterator[None]:
        """The level is what was asked for until the first decision, however long the daemon takes to start.

        Else the PLC's own control would pump down meanwhile what is above its setpoint.
        """
        enough = asyncio.Event()

        async def hold() -> None:
            while not enough.is_set():
                await self.panel.set(Panel.PRESET_LEVEL_MM, round(1000 * self._level_m))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.02):  # a scan of the PLC
                        await enough.wait()

        if self._level_m <= FALLBACK_LEVEL_M:
            yield
            return
        holding = asyncio.create_task(hold(), name="level")
        try:
            yield
        finally:
            enough.set()
            await holding

    def _told(self, what: str, timeout_s: float) -> str:
        p = self.picture
        parts = p.gateway.parts if p.gateway else {}
        return (
            f"not within {timeout_s:.0f} s: {what}\nlast: {p.last}\npoints: {p.points}\n"
            f"modules: {p.modules}\nparts: {parts}\nlog:\n{self.log_tail()}"
        )

    def _prepare(self) -> None:
        for name in ("constraints.d", "secrets", "state", "plant"):
            (self.folder / name).mkdir(exist_ok=True)
        for source in (ROOT / "packaging" / "demo").iterdir():
            shutil.copyfile(source, self.folder / source.name)
        shutil.copyfile(ROOT / "constraints" / "buffer-tank.json", self.watched / "buffer-tank.json")
        shutil.copyfile(ROOT / "constraints" / "proofs.json", self.state / "proofs.json")
        config = self.folder / "gateway.toml"
        text = config.read_text()
        for old, new in (
            ('bundles_dir = "bundles"', f"bundles_dir = {json.dumps(str(self._bundles))}"),
            ("port = 4840", f"port = {self.opcua_port}"),
            ("port = 18883", f"port = {self.mqtt_port}"),
            ("port = 8480", f"port = {self.web_port}"),
            ("127.0.0.1:15020", f"127.0.0.1:{self.proxy.port}"),
            ('model = "buffer-tank"', f'model = "{self._model}"'),
            ('format = "console"', 'format = "json"'),
            ('deadline = "100 ms"', f'deadline = "{DEADLINE_MS} ms"\n{self._decoding}'),
        ):
            assert text.count(old) == 1, f"the demo's configuration has no single `{old}`"
            text = text.replace(old, new)
        config.write_text(f"{text}\n[modules]\n{self.modules}")
        sheet = self.folder / "binding.csv"
        sheet.write_text(sheet.read_text().replace("127.0.0.1:15020", f"127.0.0.1:{self.proxy.port}"))
        (self.folder / "secrets" / f"{USER}.hash").write_text(hash_password(PASSWORD) + "\n")
        demo_client(self.state / "pki")

    @asynccontextmanager
    async def _plant(self) -> AsyncIterator[int]:
        """The demo plant as a program; yields its port."""
        self.scan_log.parent.mkdir(parents=True, exist_ok=True)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway.plantsim", "--host", "127.0.0.1", "--port", "0"),
            *("--seed", str(self._seed), "--level", str(self._level_m), "--scan-log", str(self.scan_log)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            cwd=ROOT,
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(SLOWEST * START_S):
                line = (await process.stdout.readline()).decode()
            yield int(line.rsplit(":", 1)[1])
        finally:
            if process.returncode is None:
                process.terminate()
            await process.communicate()


class Switches:
    """The plant's local panel and registers, by a Modbus client of their own: not through the proxy."""

    def __init__(self, port: int) -> None:
        self._client = AsyncModbusTcpClient("127.0.0.1", port=port, timeout=START_S)

    async def set(self, switch: Panel, value: int) -> None:
        """Move one switch."""
        await self._connected()
        reply = await self._client.write_register(int(switch), value, device_id=2)
        assert not reply.isError(), reply

    async def inputs(self) -> list[int]:
        """The PLC's input registers 0..12."""
        await self._connected()
        reply = await self._client.read_input_registers(0, count=13, device_id=1)
        assert not reply.isError(), reply
        return list(reply.registers)

    async def until(self, holds: Callable[[list[int]], bool], usual_s: float) -> float:
        """Seconds until the PLC's registers are so; `usual_s` is the most that a quiet machine needs."""
        started, words = time.monotonic(), [0]
        try:
            async with asyncio.timeout(SLOWEST * usual_s):
                while not holds(words := await self.inputs()):  # noqa: ASYNC110  # registers give no event
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"the PLC did not get so within {SLOWEST * usual_s:g} s: {words}") from None
        return time.monotonic() - started

    async def aclose(self) -> None:
        """Hang up."""
        self._client.close()

    async def _connected(self) -> None:
        if not self._client.connected:
            assert await self._client.connect(), "the plant does not answer"


def tell(figure: str) -> None:
    """A figure of this run, for whoever looks (`pytest -s`, or the report of a failure)."""
    sys.stdout.write(figure + "\n")


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
