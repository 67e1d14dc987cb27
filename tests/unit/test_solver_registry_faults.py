"""The registry where disks fill up, bytes rot, folders cannot be looked into and links lead nowhere."""

from __future__ import annotations

import asyncio
import os
import pwd
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.core.errors import GatewayError
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.in_force.acts import Acts
from gateway.solver.in_force.registry import Registry
from gateway.solver.in_force.watcher import FileSettled, unreadable
from gateway.solver.modules.compile import compile_module
from gateway.solver.modules.module import Module
from tests.unit.registry_bench import Bench, Rules, at_work, compiled, states
from tests.unit.solver_demo import LOWER_LEVEL, TAGS


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    made.folder.mkdir()
    return made


async def started(bench: Bench) -> Registry[Rules]:
    """A start that finds the folder as it is."""
    registry = bench.registry()
    found = [
        FileSettled(path.name, bench.drop(path.name, path.read_text()).content)
        if path.exists()
        else FileSettled(path.name, unreadable("it is a link to nothing"))
        for path in sorted(bench.folder.glob("*.json"))
    ]
    await registry.start(found)
    return registry


async def test_s24_a_link_that_came_to_lead_nowhere_during_a_stop_takes_no_module_out(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("a.json", "a", 1)])
    (bench.folder / "a.json").unlink()
    (bench.folder / "a.json").symlink_to(bench.root / "nowhere.json")
    again = await started(bench)
    (status,) = again.statuses()
    assert (status.id, status.state, again.book.waiting) == ("a", "active", {})
    assert status.refused_because == ("it is a link to nothing",)


# As on a network share that is half away: what cannot be looked at is not gone, and ends no start.
@pytest.mark.parametrize("error", [PermissionError(13, "denied"), OSError(5, "input/output error")])
async def test_s24_files_that_cannot_be_looked_at_are_not_gone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    registry = bench.registry()
    await registry.start([bench.module("a.json", "a", 1), bench.module("b.json", "b", 1)])
    real_stat, real_lstat = os.stat, os.lstat

    def looked(path: str | Path, *args: object, **more: object) -> os.stat_result:
        if str(path).endswith("a.json"):
            raise error
        return real_stat(path, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", looked)
    monkeypatch.setattr(os, "lstat", lambda p, **more: looked(p) if more == {} else real_lstat(p, **more))
    again = bench.registry()
    await again.start([])
    assert states(again) == {"a": "active", "b": "active"}
    assert again.book.waiting == {}
    copied = bench.module("other.json", "a", 2, more="tighter")
    await again.apply([copied])
    assert "a@1" in bench.active[-1].ids, "its own file may be there: this is a copy"


async def test_bytes_that_rotted_are_kept_anew_from_the_folder(bench: Bench) -> None:
    registry = bench.registry()
    change = bench.module("a.json", "a", 1)
    await registry.start([change])
    (kept,) = (p for p in (bench.root / "state" / "modules").glob("*.json") if p.name != "state.json")
    kept.write_bytes(b"\0" * 10)
    second = await started(bench)
    assert states(second) == {"a": "active"}
    third = bench.registry()
    await third.start([])
    assert states(third) == {"a": "active"}
    assert third.book.refused == {}


async def test_what_cannot_be_swept_stops_no_activation(bench: Bench) -> None:
    registry = bench.registry()
    await registry.start([bench.module("a.json", "a", 1)])
    (bench.root / "state" / "modules" / "saved.json").mkdir()
    await registry.apply([bench.module("b.json", "b", 1)])
    assert states(registry) == {"a": "active", "b": "active"}
    assert bench.recorded[-1][0] == "activation"


@pytest.mark.parametrize("unload", [False, True])
async def test_an_approved_change_that_fails_by_no_fault_of_its_own_is_tried_again(
    bench: Bench, *, unload: bool
) -> None:
    async with at_work(bench) as (registry, acts):
        registry.put_off.pause_s = 0.01
        await registry.apply([bench.module("a.json", "a", 1), bench.module("b.json", "b", 1)])
        if unload:
            await acts.unload("a", "anna")
        else:
            await registry.apply([bench.module("a.json", "a", 2)])
        bench.lost = True
        with pytest.raises(GatewayError, match="no solver worker is left"):
            await acts.approve("a", "otto")
        assert registry.book.waiting["a"].because
        bench.lost = False
        wanted = ("b@1",) if unload else ("a@2", "b@1")
        async with asyncio.timeout(60):
            while bench.active[-1].ids != wanted:  # noqa: ASYNC110  what is awaited is a list
                await asyncio.sleep(0.005)
            async with registry.lock:
                assert registry.book.waiting == {}
                assert registry.book.refused == {}


async def test_an_approved_change_is_not_tried_again_once_its_file_says_something_else(bench: Bench) -> None:
    async with at_work(bench) as (registry, acts):
        registry.put_off.pause_s = 0.01
        await registry.apply([bench.module("a.json", "a", 1)])
        await registry.apply([bench.module("a.json", "a", 2)])
        bench.lost = True
        with pytest.raises(GatewayError, match="no solver worker is left"):
            await acts.approve("a", "otto")
        await registry.apply([bench.module("a.json", "a", 3)])
        bench.lost = False
        looked = asyncio.Event()
        registry.on_change = looked.set
        async with asyncio.timeout(60):
            await looked.wait()
        assert bench.active[-1].ids == ("a@1",)
        assert registry.book.waiting["a"].offer is not None
        assert registry.book.waiting["a"].offer.module.revision == 3


# Else one file ends the gateway, and every start after it, for it lies in the folder still.
@pytest.mark.parametrize(
    "fault", [KeyError("violated"), ValueError("too long"), RecursionError(), OverflowError()]
)
async def test_a_file_on_which_the_compiler_fails_is_refused_like_any_other(
    bench: Bench, fault: Exception
) -> None:
    def compiled_or_not(data: bytes, source: str) -> Module:
        if b"evil" in data:
            raise fault
        return compiled(data, source)

    registry = bench.registry()
    registry.compile = registry.staging.compile = compiled_or_not
    await registry.start([bench.module("a.json", "a", 1), bench.module("e.json", "evil", 1)])
    assert states(registry) == {"a": "active", "e": "refused"}
    with pytest.raises(GatewayError, match="the compiler failed on it"):
        await Acts(registry).load("f.json", b'{"id": "evil", "revision": 1}', "anna")
    assert not (bench.folder / "f.json").exists()


@pytest.mark.parametrize("part", ["assemble", "weaker"])
async def test_modules_on_which_their_combination_or_comparison_fails_are_refused(
    bench: Bench, part: str
) -> None:
    registry = bench.registry()

    def failing(*_: object) -> Rules:
        raise OverflowError(part)

    await registry.start([bench.module("a.json", "a", 1)])
    setattr(registry, part, failing)
    await registry.apply([bench.module("b.json", "b", 1), bench.module("c.json", "c", 1)])
    assert states(registry) == {"a": "active", "b": "refused", "c": "refused"}
    assert f"OverflowError: {part}" in registry.statuses()[1].refused_because[0]


def test_a_step_of_no_plant_is_refused() -> None:
    text = LOWER_LEVEL.read_text()
    assert '"step": "1 s"' in text
    for step in ("9" * 400 + " s", "0.0009 s", "25 h"):
        with pytest.raises(ModuleRefusedError, match="is of no plant; write one from 1 ms to 24 h"):
            compile_module(text.replace('"1 s"', f'"{step}"', 1).encode(), "l.json", TAGS)


# The names of accounts may come over a network that does not answer.
async def test_whose_change_it_is_is_never_asked_where_decisions_wait(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def getpwuid(_uid: int) -> SimpleNamespace:
        asked.append(threading.get_ident())
        return SimpleNamespace(pw_name="anna")

    monkeypatch.setattr(pwd, "getpwuid", getpwuid)
    registry = bench.registry()
    await registry.start([bench.module("a.json", "a", 1)])
    await registry.apply([bench.module("a.json", "a", 2)])
    assert registry.book.waiting["a"].by == {"anna"}
    assert asked
    assert threading.get_ident() not in asked
