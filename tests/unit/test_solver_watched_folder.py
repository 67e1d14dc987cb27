"""The watched folder as editors, deployment tools, file systems and accidents treat it: the real watcher."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from gateway.core.clock import SystemClock
from gateway.daemon.runtime import whole
from gateway.solver.in_force import watcher as in_force_watcher
from gateway.solver.in_force.registry import Registry
from gateway.solver.in_force.watcher import (
    GIVE_UP_S,
    LIMIT_BYTES,
    Content,
    FolderChange,
    FolderReader,
    FolderWatcher,
)
from gateway.solver.rules.ruleset import RuleSet
from tests.unit.solver_demo import BUFFER_TANK, LOWER_LEVEL
from tests.unit.true_registry import TrueBench

TANK = BUFFER_TANK.read_bytes()
LOWER = LOWER_LEVEL.read_bytes()


@dataclass
class House:
    """A registry that is fed by the real watcher."""

    bench: TrueBench
    registry: Registry[RuleSet]
    batches: list[list[FolderChange]] = field(default_factory=list)
    there: list[bool] = field(default_factory=list)
    looks: int = 0  # how often the watcher has read the folder, away or not

    @property
    def folder(self) -> Path:
        return self.bench.folder

    def states(self) -> dict[str, str]:
        return {s.id: s.state for s in self.registry.statuses()}

    def because(self, name: str) -> str:
        return next("; ".join(s.refused_because) for s in self.registry.statuses() if s.id == name)

    def ids(self) -> set[str]:
        return set(self.registry.rule_set.module_ids) if self.registry.rule_set is not None else set()

    async def until(self, holds: Callable[[], bool], timeout_s: float = 60.0) -> float:
        """Seconds until it is so."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                while not holds():  # noqa: ASYNC110  # a registry gives no event
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"{self.states()} {self.registry.statuses()}") from None
        return time.monotonic() - started


@asynccontextmanager
async def house(root: Path) -> AsyncIterator[House]:
    """Running over a folder that holds the demo's module already."""
    bench = TrueBench(root)
    made = House(bench, bench.registry())
    (bench.folder / "tank.json").write_bytes(TANK)
    watcher = FolderWatcher(bench.folder, whole, SystemClock(), made.there.append)
    read = watcher._reader.read

    def counted(*, again: bool, told: Mapping[str, str] | None = None) -> dict[str, Content] | None:
        found = read(again=again, told=told or {})
        made.looks += 1
        return found

    watcher._reader.read = counted  # type: ignore[method-assign]  # a folder that stays as it is gives no event
    await made.registry.start(await watcher.first())

    async def apply(changes: Sequence[FolderChange]) -> None:
        made.batches.append(list(changes))
        await made.registry.apply(changes)

    task = asyncio.create_task(watcher.run(apply))
    try:
        assert made.ids() == {"buffer-tank"}
        yield made
        assert "buffer-tank" in made.ids()  # whatever happened: the required module is in force
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_file_renamed_over_another_is_in_force(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        (h.folder / "new").write_bytes(LOWER)
        (h.folder / "new").rename(h.folder / "limit.json")
        await h.until(lambda: "lower-level-limit" in h.ids())
        (h.folder / ".limit.json.tmp").write_bytes(LOWER.replace(b'"revision": 1', b'"revision": 2', 1))
        (h.folder / ".limit.json.tmp").rename(h.folder / "limit.json")
        await h.until(lambda: any(s.revision == 2 for s in h.registry.statuses()))


# As a configuration map is mounted: every file is a link through `..data`, which is swapped as a whole.
async def test_a_swap_of_the_link_behind_all_files_is_seen(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        for version, revision in (("..v1", b"1"), ("..v2", b"2")):
            (h.folder / version).mkdir()
            text = LOWER.replace(b'"revision": 1', b'"revision": ' + revision, 1)
            (h.folder / version / "limit.json").write_bytes(text)
        (h.folder / "..data").symlink_to("..v1")
        (h.folder / "limit.json").symlink_to("..data/limit.json")
        await h.until(lambda: "lower-level-limit" in h.ids())
        (h.folder / "..data_tmp").symlink_to("..v2")
        (h.folder / "..data_tmp").rename(h.folder / "..data")
        await h.until(lambda: any(s.revision == 2 for s in h.registry.statuses()))
        assert h.states() == {"buffer-tank": "active", "lower-level-limit": "active"}


async def test_a_slow_copy_is_not_refused_and_is_taken_once_when_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_force_watcher, "GIVE_UP_S", 60.0)  # no part comes later than that, on any machine
    async with house(tmp_path) as h:
        with (h.folder / "limit.json").open("wb", buffering=0) as file:
            for start in range(0, len(LOWER), 200):
                file.write(LOWER[start : start + 200])
                await asyncio.sleep(0.06)  # longer than a file takes to settle
        await h.until(lambda: "lower-level-limit" in h.ids())
        assert h.states() == {"buffer-tank": "active", "lower-level-limit": "active"}
        assert sum(c.name == "limit.json" for batch in h.batches for c in batch) == 1


async def test_the_same_bytes_dropped_again_are_nothing_new(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        (h.folder / "limit.json").write_bytes(LOWER)
        await h.until(lambda: "lower-level-limit" in h.ids())
        count = len(h.bench.active)
        (h.folder / "limit.json").unlink()
        (h.folder / "limit.json").write_bytes(LOWER)
        (h.folder / "again.json").write_bytes(b"{")  # told later than what came before it
        await h.until(lambda: "again" in h.states())
        assert len(h.bench.active) == count
        assert h.states()["lower-level-limit"] == "active"


# A vanished folder is no unload of anything (S24).
async def test_s24_a_folder_that_is_moved_away_changes_nothing_and_is_read_again_when_back(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as h:
        (h.folder / "limit.json").write_bytes(LOWER)
        await h.until(lambda: "lower-level-limit" in h.ids())
        h.folder.rename(tmp_path / "away")
        await h.until(lambda: h.there == [False])
        (tmp_path / "away" / "more.json").write_bytes(b"{")
        (tmp_path / "away").rename(h.folder)
        await h.until(lambda: h.there == [False, True] and "more" in h.states())
        assert h.states() == {"buffer-tank": "active", "lower-level-limit": "active", "more": "refused"}


# What an unmounted disk leaves behind is its empty mount point.
async def test_s24_an_empty_folder_in_the_place_of_ours_takes_nothing_out(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        (h.folder / "limit.json").write_bytes(LOWER)
        await h.until(lambda: "lower-level-limit" in h.ids())
        await h.until((h.folder / "limit.accepted.txt").exists)  # its report would land in the new folder
        h.folder.rename(tmp_path / "disk")
        h.folder.mkdir()
        await h.until(lambda: h.there[-1:] == [False])
        seen, gave_up_at = h.looks, time.monotonic() + GIVE_UP_S
        await h.until(lambda: h.looks >= seen + 2 and time.monotonic() > gave_up_at)
        assert h.states() == {"buffer-tank": "active", "lower-level-limit": "active"}
        h.folder.rmdir()
        (tmp_path / "disk").rename(h.folder)
        await h.until(lambda: h.there[-1:] == [True])
        assert h.states() == {"buffer-tank": "active", "lower-level-limit": "active"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
async def test_s24_an_unmounted_file_system_takes_nothing_out(tmp_path: Path) -> None:
    def mount(*command: str) -> bool:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0  # noqa: S603  # ours

    folder = tmp_path / "constraints.d"
    folder.mkdir()
    if not mount("mount", "-t", "tmpfs", "none", str(folder)):
        pytest.skip("mounting is not permitted here")
    try:
        async with house(tmp_path) as h:
            assert await asyncio.to_thread(mount, "umount", str(folder))
            await h.until(lambda: h.there == [False])
            assert h.states() == {"buffer-tank": "active"}
    finally:
        mount("umount", str(folder))


async def test_s24_deleted_files_wait_for_a_person_and_a_required_one_stays(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        (h.folder / "limit.json").write_bytes(LOWER)
        await h.until(lambda: "lower-level-limit" in h.ids())
        (h.folder / "limit.json").unlink()
        (h.folder / "tank.json").unlink()
        await h.until(lambda: h.states() == {"buffer-tank": "active", "lower-level-limit": "pending"})
        await h.until(lambda: "stays in force" in h.because("buffer-tank"))


async def test_what_is_no_plain_file_blocks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with house(tmp_path) as h:
        os.mkfifo(h.folder / "pipe.json")
        (h.folder / "folder.json").mkdir()
        (h.folder / "device.json").symlink_to("/dev/zero")
        (h.folder / "loop.json").symlink_to("loop.json")
        (h.folder / "nothing.json").symlink_to("missing")
        with socket.socket(socket.AF_UNIX) as listener:
            monkeypatch.chdir(h.folder)  # a socket's path is short
            listener.bind("socket.json")
            (h.folder / "limit.json").write_bytes(LOWER)
            await h.until(lambda: "lower-level-limit" in h.ids())
            refused = ("pipe", "folder", "device", "socket", "loop")
            await h.until(lambda: all(h.states().get(name) == "refused" for name in refused))
        assert "not a regular file" in h.because("device")
        await h.until(lambda: h.states().get("nothing") == "refused")
        assert "it is a link to `missing`, where nothing is" in h.because("nothing")
        (h.folder / "missing").write_bytes(TANK)
        (h.folder / "nothing.json").unlink()
        await h.until(lambda: "nothing" not in h.states())


async def test_s24_a_module_whose_link_leads_nowhere_stays_in_force_and_the_link_is_told(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as h:
        (h.folder / "target").write_bytes(LOWER)
        (h.folder / "limit.json").symlink_to("target")
        await h.until(lambda: "lower-level-limit" in h.ids())
        (h.folder / "target").unlink()
        await h.until(lambda: "where nothing is" in h.because("lower-level-limit"))
        assert h.states()["lower-level-limit"] == "active"
        report = h.folder / "limit.refused.txt"
        await h.until(lambda: report.exists() and "where nothing is" in report.read_text())
        (h.folder / "target").write_bytes(LOWER)
        await h.until(lambda: not h.because("lower-level-limit"))
        assert "lower-level-limit" in h.ids()


async def test_a_huge_file_is_refused_by_its_size_and_not_read(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        with (h.folder / "huge.json").open("wb") as file:
            file.truncate(1 << 40)  # a terabyte with nothing in it
        await h.until(lambda: h.states().get("huge") == "refused")
        assert f"a module has at most {LIMIT_BYTES}" in h.because("huge")


def test_a_file_nobody_may_read_is_refused() -> None:
    script = (
        "import os, sys; from pathlib import Path; from gateway.solver.in_force.watcher import FolderReader\n"
        "os.setuid(65534)\n"
        "print(FolderReader(Path(sys.argv[1])).read(again=False)['secret.json'].problem)"
    )
    folder = Path("/tmp") / f"o3-{os.getpid()}-unreadable"  # noqa: S108  # pytest's own folder is closed to others
    folder.mkdir()
    try:
        (folder / "secret.json").write_bytes(TANK)
        (folder / "secret.json").chmod(0)
        arguments = [sys.executable, "-c", script, str(folder)]
        if os.geteuid() != 0:
            found = FolderReader(folder).read(again=False)
            assert found is not None
            assert "Permission denied" in found["secret.json"].problem
            return
        done = subprocess.run(arguments, capture_output=True, text=True, check=True)  # noqa: S603  # ours
        assert "Permission denied" in done.stdout
    finally:
        (folder / "secret.json").unlink()
        folder.rmdir()


# The name travels in messages, logs, tables and file names.
async def test_odd_names_are_shown_harmlessly(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        for odd in (b"a\xff.json", b"b\n\x1b[31m.json", b"c" * 240 + b".json"):
            (h.folder / os.fsdecode(odd)).write_bytes(LOWER)
        for name in ("ünï cødé ☃.json", "spaces and 'quotes'.json", "-rf.json", "NEW.JSON"):
            (h.folder / name).write_bytes(b"{")
        for name in (".hidden.json", "~new.json", "#new#.json", "json"):
            (h.folder / name).write_bytes(b"{")
        await h.until(lambda: list(h.states().values()).count("refused") == 7)
        for status in h.registry.statuses():
            assert status.file.isprintable()
            assert msgspec.msgpack.decode(msgspec.msgpack.encode(status.file)) == status.file
        assert "not printable; rename it" in h.because("a\\udcff")
        assert h.states()["-rf"] == "refused"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        (TANK.replace(b"tank", b"t\xc3(nk", 1), "not UTF-8"),
        (b'{"id": "x", "revision": NaN}', "NaN"),
        (b'{"id": "x", "revision": -Infinity}', "Infinity"),
        (b'{"id": "x", "revision": 1e999999}', ""),
        (b'{"id": "x", "revision": ' + b"9" * 5_000 + b"}", ""),
        (b"[" * 100_000, ""),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, ""),
        (b'{"id": "x", "id": "y"}', "twice"),
        (b'{"id": "x", "revision": 1, "language": 1, "sneaky": true}', "sneaky"),
        (b"", ""),
        (b"\x00" * 1_000, ""),
    ],
)
async def test_hostile_contents_are_refused_in_words(tmp_path: Path, data: bytes, why: str) -> None:
    async with house(tmp_path) as h:
        (h.folder / "hostile.json").write_bytes(data)
        await h.until(lambda: h.states().get("hostile") == "refused")
        assert why in h.because("hostile")
        report = tmp_path / "state" / "refusals" / "hostile.json"
        await h.until(lambda: report.exists() and report.read_text().endswith("}\n"))  # a thread writes it
        assert json.loads(report.read_text())["problems"]


# Bounded, and seen to go on.
@pytest.mark.integration  # only for its length
@pytest.mark.timeout(1200)
async def test_a_thousand_files_at_once_are_one_activation(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        seen: set[tuple[int, int]] = set()
        for number in range(1_000):
            text = LOWER.replace(b'"lower-level-limit"', f'"limit-{number}"'.encode(), 1)
            (h.folder / f"m{number}.json").write_bytes(text)
        before = len(h.bench.active)

        def all_in_force() -> bool:
            seen.add(h.registry.progress)
            return len(h.ids()) == 1_001

        took = await h.until(all_in_force, 1000.0)
        assert len(h.bench.active) - before <= 4
        assert any(0 < done < total for done, total in seen)
        sys.stdout.write(
            f"1 000 files in force after {took:.1f} s, {len(h.bench.active) - before} activations\n"
        )
