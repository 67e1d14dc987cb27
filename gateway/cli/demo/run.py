"""`make run`: the demo plant, a broker and the gateway daemon, each a process of its own, until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import structlog
from rich.console import Console
from rich.panel import Panel

from gateway.config.load import load
from gateway.config.model import GatewayConfig
from gateway.core.errors import GatewayError, LinkError, cause
from gateway.link.client import LinkClient
from gateway.protocols.mqtt.broker import demo_broker
from gateway.protocols.opcua.passwords import hash_password
from gateway.protocols.opcua.pki import demo_client

_ROOT = Path(__file__).resolve().parents[3]
_READY_WITHIN_S = 60.0
_ARM_WITHIN_S = 30.0
_USER = "engineer"


def main() -> None:
    """Run the demo until Ctrl-C; exit status 1 with a sentence where it cannot start."""
    parser = argparse.ArgumentParser(description="run the demo plant and the gateway")
    parser.add_argument("--dir", type=Path, default=Path("var/demo"), help="where the demo keeps its files")
    parser.add_argument("--seed", type=int, default=1, help="seed of the plant's disturbances")
    parser.add_argument("--no-arm", action="store_true", help="leave the decision point in shadow")
    arguments = parser.parse_args()
    console = Console()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    try:
        asyncio.run(_demo(console, arguments.dir.resolve(), arguments.seed, arm=not arguments.no_arm))
    except (KeyboardInterrupt, asyncio.CancelledError):
        pass
    except ExceptionGroup as group:
        for problem in group.exceptions:
            _say(console, str(problem), "red")
        sys.exit(1)
    except GatewayError as exc:
        _say(console, str(exc), "red")
        sys.exit(1)


async def _demo(console: Console, folder: Path, seed: int, *, arm: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        config, password = _prepare(folder)
    except OSError as exc:
        problem = f"the demo's files cannot be prepared: {exc.strerror or exc}: {exc.filename or folder}"
        raise _DemoFailedError(problem) from exc
    _require_free_ports(config)
    log_file = folder / "gateway.log"
    plant_log = folder / "plant.log"
    async with (
        _child("plant", ("gateway.plantsim", *_plant_arguments(config, folder, seed)), plant_log) as plant,
        demo_broker(config.mqtt.port if config.mqtt else 0, folder / "mosquitto") as broker,
        _child("gateway", ("gateway", "--config", str(config.path)), log_file) as gateway,
    ):
        working = asyncio.create_task(_arm_and_tell(console, config, password, broker is not None, arm))
        stopping = asyncio.create_task(stop.wait())
        ended = asyncio.create_task(gateway.wait())
        broker_log = folder / "mosquitto" / "mosquitto.log"
        watched = [
            ("plant", plant, plant_log, "the gateway goes on without it and says that its link is lost")
        ]
        if broker is not None:
            watched.append(("broker", broker, broker_log, "the gateway goes on; what it publishes waits"))
        deaths = [asyncio.create_task(_tell_of_death(console, *one)) for one in watched]
        try:
            await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done() and not stop.is_set():
                problem = f"the gateway ended with status {ended.result()}; {_last_words(log_file)}"
                raise _DemoFailedError(problem)
            console.print("stopping: control-valid first, then the gateway, the broker, the plant")
        finally:
            tasks = (working, stopping, ended, *deaths)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _tell_of_death(
    console: Console, name: str, process: asyncio.subprocess.Process, log_file: Path, then: str
) -> None:
    """Says that a part the demo cannot replace has ended, and what that means; until cancelled."""
    status = await process.wait()
    said = f"the {name} ended with status {status}: {then}; Ctrl-C and `make run` bring it back"
    _say(console, f"{said}. {_last_words(log_file)}", "red")


def _last_words(log_file: Path) -> str:
    """The end of a log, for people."""
    try:
        lines = log_file.read_text(errors="replace").splitlines()[-12:]
    except OSError as exc:
        return f"{log_file} cannot be read: {cause(exc)}"
    return "\n".join((f"{log_file} ends with:", *lines)) if lines else f"{log_file} is empty"


class _DemoFailedError(GatewayError):
    """The demo cannot go on."""


def _prepare(folder: Path) -> tuple[GatewayConfig, str]:
    """The demo's files under `folder`, anew from the templates; state and watched folder are kept."""
    template = _ROOT / "packaging" / "demo"
    if not template.is_dir():
        problem = f"{template} is missing: run the demo from a checkout"
        raise _DemoFailedError(problem)
    for name in ("constraints.d", "secrets", "state"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for source in template.iterdir():
        if source.is_file():
            shutil.copyfile(source, folder / source.name)
    if not any((folder / "constraints.d").glob("*.json")):
        shutil.copyfile(_ROOT / "constraints" / "buffer-tank.json", folder / "constraints.d/buffer-tank.json")
    proofs = _ROOT / "constraints" / "proofs.json"
    if proofs.exists() and not (folder / "state" / "proofs.json").exists():
        shutil.copyfile(proofs, folder / "state" / "proofs.json")
    bundles = folder / "bundles"
    if not bundles.is_symlink():
        bundles.symlink_to(_ROOT / "gateway" / "inference" / "bundles")
    plain = folder / "secrets" / f"{_USER}.password"
    hashed = folder / "secrets" / f"{_USER}.hash"
    if not plain.exists() or not hashed.exists():
        plain.write_text(secrets.token_urlsafe(9) + "\n")
        plain.chmod(0o600)
        hashed.write_text(hash_password(plain.read_text().strip()) + "\n")
        hashed.chmod(0o600)
    demo_client(folder / "state" / "pki")
    return load(folder / "gateway.toml"), plain.read_text().strip()


def _require_free_ports(config: GatewayConfig) -> None:
    """A plant of another demo on our port would be driven by two gateways at once: better not to start."""
    wanted = {config.channel[0].port: "the plant"}
    for name, part in (("OPC UA", config.opcua), ("MQTT", config.mqtt), ("the page", config.web)):
        if part is not None:
            wanted[part.port] = name
    taken = []
    for port, name in wanted.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                taken.append(f"{port} ({name})")
    if taken:
        problem = f"in use on this machine: port {', '.join(taken)}; is another demo running?"
        raise _DemoFailedError(problem)


def _plant_arguments(config: GatewayConfig, folder: Path, seed: int) -> tuple[str, ...]:
    port = config.channel[0].port
    scan_log = folder / "plant" / "scan.csv"
    scan_log.parent.mkdir(exist_ok=True)
    return ("--host", "127.0.0.1", "--port", str(port), "--seed", str(seed), "--scan-log", str(scan_log))


@asynccontextmanager
async def _child(
    name: str, module: tuple[str, ...], log_file: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A child in a session of its own, so that Ctrl-C reaches only us and the order of stopping is ours."""
    with log_file.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            *module,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it ended between the two lines
                process.terminate()
            try:
                async with asyncio.timeout(3.0):
                    await process.wait()
            except TimeoutError:
                structlog.get_logger().error("child_killed", child=name)
                process.kill()
                await process.wait()


async def _arm_and_tell(
    console: Console,
    config: GatewayConfig,
    password: str,
    mqtt: bool,
    arm: bool,
) -> None:
    """Wait for the first verdict, say what runs, arm through the audited verb, say how that went."""
    point, started_ns = config.decision_point[0].id, time.time_ns()
    socket_path = config.gateway.state_dir / "run" / "o3.sock"
    try:
        async with asyncio.timeout(_READY_WITHIN_S):
            first = await _first_decision(socket_path, started_ns)
    except TimeoutError:
        log_file = config.path.parent / "gateway.log"
        _say(console, f"no decision within {_READY_WITHIN_S:.0f} s: read {log_file}", "red")
        return
    console.print(_panel(config, password, mqtt=mqtt))
    _say(console, f"first verdict: {first['outcome']} (decision {first['id']}, {point} in {first['mode']})")
    if not arm:
        return
    why = await _asked(socket_path, "binding.sign", _demo_sheet(config))
    if why:
        _say(console, why, "yellow")
    for _ in range(int(_ARM_WITHIN_S)):
        why = await _asked(socket_path, "mode", {"point": point, "mode": "armed"})
        if not why:
            console.print(f"`o3ctl mode {point} armed` done: the gateway is in control of the demo plant")
            return
        await asyncio.sleep(1)
    _say(console, why, "yellow")
    _say(console, f"arm it by hand: {_o3ctl()} mode {point} armed")


async def _first_decision(socket_path: Path, after_ns: int) -> dict[str, Any]:
    """The first with a verdict that was made since then: the log may hold some of a run before."""
    while True:
        with contextlib.suppress(LinkError):  # the daemon is still starting
            client = await LinkClient.connect(socket_path, "demo")
            try:
                answer = await client.ask("decisions", {"limit": 1})
                if answer.ok and answer.result:
                    found: dict[str, Any] = answer.result[0]
                    if found["at_ns"] >= after_ns and found["outcome"] != "undetermined":
                        return found
            finally:
                await client.aclose()
        await asyncio.sleep(0.1)


def _demo_sheet(config: GatewayConfig) -> dict[str, str]:
    """The arguments of `binding.sign`, as `o3ctl binding sign` would send them."""
    point = config.decision_point[0]
    sheet = point.binding_sheet or config.path.with_name("binding.csv")
    return {"point": point.id, "text": sheet.read_text(), "file": str(sheet), "by": "demo"}


async def _asked(socket_path: Path, verb: str, args: dict[str, str]) -> str:
    """Why the gateway did not do it; empty when it did."""
    try:
        client = await LinkClient.connect(socket_path, "demo")
    except LinkError as exc:
        return str(exc)
    try:
        return (await client.ask(verb, args)).error
    except LinkError as exc:
        return str(exc)
    finally:
        await client.aclose()


def _o3ctl() -> str:
    return os.path.relpath(Path(sys.executable).parent / "o3ctl")


def _say(console: Console, text: str, style: str = "") -> None:
    """As it is: a `[` in a text is no markup, and the terminal wraps it so that it can be copied whole."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def _panel(config: GatewayConfig, password: str, *, mqtt: bool) -> Panel:
    folder = os.path.relpath(config.path.parent)
    watched = os.path.relpath(config.gateway.constraints_dir)
    o3ctl = _o3ctl()
    opcua = config.opcua.port if config.opcua else 0
    web = config.web.port if config.web else 0
    broker = f"127.0.0.1:{config.mqtt.port}, topics {config.mqtt.topic_prefix}/#" if config.mqtt else "-"
    lines = [
        f"plant      Modbus TCP {config.channel[0].endpoint} (soft PLC, unit 1; panel, unit 2)",
        f"OPC UA     opc.tcp://127.0.0.1:{opcua}/o3",
        f"           user {_USER}, password {password}",
        f"           client certificate {folder}/state/pki/demo/ (trusted)",
        "           read-only without security, on this machine only",
        f"MQTT       {broker}" if mqtt else "MQTT       off: mosquitto is not installed",
        f"page, API  http://127.0.0.1:{web}/",
        f"watched    {watched}",
        f"log        {folder}/gateway.log",
        "",
        "try next, in another terminal:",
        f"  export O3_SOCKET={folder}/state/run/o3.sock",
        f"  {o3ctl} status",
        f"  {o3ctl} decisions --follow",
        f"  cp docs/examples/lower-level-limit.json {watched}/",
        f"  rm {watched}/lower-level-limit.json",
        f"  {o3ctl} runtime approve lower-level-limit",
        "    (in the field by another account than the one that took it out)",
        "Ctrl-C stops everything.",
    ]
    return Panel("\n".join(lines), title="O3 edge gateway demo", expand=False, highlight=False)


if __name__ == "__main__":
    main()
