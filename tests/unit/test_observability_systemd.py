from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from gateway.core.clock import FakeClock
from gateway.observability.systemd import sd_notify, watchdog_interval_s
from gateway.observability.watchdog import Watchdog


def test_systemd_hears_the_state_on_its_socket(tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.settimeout(60)
        assert sd_notify("READY=1\nSTATUS=armed", {"NOTIFY_SOCKET": str(path)})
        assert listener.recv(100) == b"READY=1\nSTATUS=armed"


def test_an_abstract_notify_socket_is_understood() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("")  # autobind, unix(7): the kernel picks an abstract name
        listener.settimeout(60)
        name = listener.getsockname().decode()
        assert sd_notify("WATCHDOG=1", {"NOTIFY_SOCKET": "@" + name[1:]})
        assert listener.recv(100) == b"WATCHDOG=1"


@pytest.mark.parametrize("address", ["", "vsock:2:1", "/nowhere/notify"])
def test_outside_systemd_nothing_happens(address: str) -> None:
    assert not sd_notify("READY=1", {"NOTIFY_SOCKET": address})


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "7"}, 0.5),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "8"}, None),
    ],
)
def test_the_watchdog_interval_is_systemds_and_only_for_this_process(
    environ: dict[str, str], expected: float | None
) -> None:
    assert watchdog_interval_s(environ, pid=7) == expected


class Heard:
    def __init__(self) -> None:
        self.states: list[str] = []

    def __call__(self, state: str) -> bool:
        self.states.append(state)
        return True


def test_the_ping_goes_out_only_while_every_loop_is_fed() -> None:
    clock, heard = FakeClock(), Heard()
    watchdog = Watchdog(heard, clock, interval_s=9)
    assert not watchdog.tick()  # nobody decides yet

    watchdog.expect("decisions", within_s=3)
    watchdog.expect("polls", within_s=5)
    clock.advance(2.9)
    assert watchdog.tick()
    watchdog.fed("polls")
    clock.advance(0.2)
    assert not watchdog.tick()
    assert watchdog.silent() == ("decisions",)
    assert not watchdog.health().ok
    assert "`decisions`" in watchdog.health().text

    watchdog.fed("decisions")
    assert watchdog.tick()
    assert watchdog.health().ok
    assert heard.states == ["WATCHDOG=1", "WATCHDOG=1"]
    assert watchdog.statistics().withheld == 2


def test_a_loop_that_ended_on_purpose_is_not_missed() -> None:
    clock, heard = FakeClock(), Heard()
    watchdog = Watchdog(heard, clock, interval_s=None)
    watchdog.expect("decisions", within_s=3)
    watchdog.expect("polls", within_s=1)
    clock.advance(2)
    watchdog.forget("polls")
    watchdog.fed("polls")

    assert watchdog.tick()


async def test_the_watchdog_ticks_three_times_an_interval() -> None:
    slept: list[float] = []
    enough = asyncio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 4:
            enough.set()
            await asyncio.Event().wait()

    heard = Heard()
    watchdog = Watchdog(heard, FakeClock(), interval_s=9, sleep=sleep)
    watchdog.expect("decisions", within_s=3)
    task = asyncio.ensure_future(watchdog.run())
    await asyncio.wait_for(enough.wait(), 60)
    task.cancel()

    assert slept == [3.0] * 4
    assert heard.states == ["WATCHDOG=1"] * 4
