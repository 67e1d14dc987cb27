import asyncio
import grp
import hashlib
import json
import os
import pwd
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.core.clock import FakeClock, SystemClock
from gateway.solver.in_force import watcher
from gateway.solver.in_force.watcher import (
    Content,
    FileGone,
    FileSettled,
    FolderChange,
    FolderReader,
    FolderWatcher,
    Settling,
    is_module_name,
)


def parses(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


def content(data: bytes) -> Content:
    return Content(data, hashlib.sha256(data).hexdigest())


GOOD, OTHER, HALF = content(b'{"id": 1}'), content(b'{"id": 2}'), content(b'{"id"')


def test_a_file_is_told_of_once_after_two_looks_at_the_same_content() -> None:
    settling = Settling(parses)
    assert settling.look(0.0, {"a.json": GOOD}) == []
    assert settling.unsettled
    assert settling.look(0.02, {"a.json": GOOD}) == []
    assert settling.look(0.06, {"a.json": GOOD}) == [FileSettled("a.json", GOOD)]
    assert settling.look(0.5, {"a.json": GOOD}) == []
    assert not settling.unsettled


# A slow copy grows; each half of it may stand still for a while.
def test_a_partial_copy_is_told_of_only_when_whole() -> None:
    settling = Settling(parses)
    settling.look(0.0, {"a.json": HALF})
    assert settling.look(0.2, {"a.json": HALF}) == []
    assert settling.look(0.25, {"a.json": GOOD}) == []
    assert settling.look(0.31, {"a.json": GOOD}) == [FileSettled("a.json", GOOD)]


def test_a_broken_file_is_told_of_after_it_stayed_broken() -> None:
    settling = Settling(parses)
    settling.look(0.0, {"a.json": HALF})
    assert settling.look(0.29, {"a.json": HALF}) == []
    assert settling.look(0.31, {"a.json": HALF}) == [FileSettled("a.json", HALF)]


def test_the_same_content_dropped_again_is_nothing_new() -> None:
    settling = Settling(parses)
    settling.look(0.0, {"a.json": GOOD})
    settling.look(0.1, {"a.json": GOOD})
    settling.look(0.2, {})
    settling.look(0.25, {"a.json": HALF})
    assert settling.look(0.3, {"a.json": GOOD}) == []
    assert settling.look(0.9, {"a.json": GOOD}) == []


def test_a_file_is_gone_only_when_it_stays_away() -> None:
    settling = Settling(parses)
    settling.look(0.0, {"a.json": GOOD})
    settling.look(0.1, {"a.json": GOOD})
    assert settling.look(0.2, {}) == []
    assert settling.look(0.6, {}) == [FileGone("a.json")]
    assert settling.look(1.0, {}) == []
    settling.look(2.0, {"a.json": OTHER})
    assert settling.look(2.1, {"a.json": OTHER}) == [FileSettled("a.json", OTHER)]


def test_reader_takes_links_and_refuses_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(GOOD.data)
    (tmp_path / "link.json").symlink_to("target")
    (tmp_path / "nothing.json").symlink_to("missing/\n\udc80")
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "here.json").symlink_to("there.json")
    (tmp_path / "there.json").symlink_to("here.json")
    (tmp_path / ".hidden.json").write_bytes(GOOD.data)
    (tmp_path / "a.refused.txt").write_bytes(b"x")

    found = FolderReader(tmp_path).read(again=False)

    assert found is not None
    links = {"link.json", "nothing.json", "here.json", "there.json"}
    assert set(found) == links | {"folder.json", "pipe.json"}
    assert found["link.json"] == GOOD
    assert "regular file" in found["pipe.json"].problem
    assert "symbolic links" in found["here.json"].problem
    assert found["nothing.json"].problem == r"it is a link to `missing/\n\udc80`, where nothing is"


# Else a module would be refused that is only being taken out.
def test_a_link_taken_out_between_two_calls_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link.json").symlink_to("missing")
    look = Path.stat

    def taken_out(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if follow_symlinks:
            (tmp_path / "link.json").unlink(missing_ok=path != tmp_path / "link.json")
        return look(path, follow_symlinks=follow_symlinks)

    reader = FolderReader(tmp_path)
    monkeypatch.setattr(reader, "_found", lambda: (1, 1))
    monkeypatch.setattr(Path, "stat", taken_out)
    assert reader.read(again=False) == {}


def test_a_lost_folder_is_not_a_folder_of_lost_files(tmp_path: Path) -> None:
    assert FolderReader(tmp_path / "unmounted").read(again=False) is None


@asynccontextmanager
async def watched(folder: Path) -> AsyncIterator["asyncio.Queue[FolderChange]"]:
    queue: asyncio.Queue[FolderChange] = asyncio.Queue()

    async def take(changes: Sequence[FolderChange]) -> None:
        for change in changes:
            queue.put_nowait(change)

    watcher = FolderWatcher(folder, parses, SystemClock())
    await take(await watcher.first())
    task = asyncio.create_task(watcher.run(take))
    try:
        yield queue
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_real_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(GOOD.data)
    async with watched(tmp_path) as queue, asyncio.timeout(60):
        assert await queue.get() == FileSettled("a.json", GOOD)

        (tmp_path / "b.json").write_bytes(OTHER.data)
        assert await queue.get() == FileSettled("b.json", OTHER)

        (tmp_path / "new").write_bytes(OTHER.data)
        (tmp_path / "new").rename(tmp_path / "a.json")
        assert await queue.get() == FileSettled("a.json", OTHER)

        (tmp_path / "b.json").unlink()
        assert await queue.get() == FileGone("b.json")


# S24: a disk that goes away between two calls of one look takes nothing out.
def test_s24_a_folder_exchanged_while_it_is_read_is_away_and_so_is_the_empty_one_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "constraints.d"
    folder.mkdir()
    (folder / "a.json").write_bytes(b"{}")
    reader = FolderReader(folder)
    assert (reader.read(again=False) or {}).keys() == {"a.json"}
    listed = Path.iterdir

    def exchanged(path: Path) -> Iterator[Path]:
        monkeypatch.undo()
        folder.rename(tmp_path / "away")
        folder.mkdir()
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", exchanged)
    assert reader.read(again=False) is None
    assert reader.read(again=False) is None


# S24: a folder with nothing but a file that cannot be read is not an empty folder either.
def test_s24_an_empty_folder_in_the_place_of_one_that_held_no_readable_file_is_away(tmp_path: Path) -> None:
    folder = tmp_path / "constraints.d"
    folder.mkdir()
    (folder / "a.json").symlink_to("a.json")
    reader = FolderReader(folder)
    assert (reader.read(again=False) or {}).keys() == {"a.json"}

    folder.rename(tmp_path / "away")
    folder.mkdir()

    assert reader.read(again=False) is None


# An error of a network mount passes; the stamps of the file do not tell.
def test_a_file_that_could_not_be_read_is_read_again_with_the_same_stamps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_text("{}")
    reader = FolderReader(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(watcher, "read_file", lambda _path: watcher.unreadable("Input/output error"))
        found = reader.read(again=False)
        assert found is not None
        assert found["a.json"].problem == "Input/output error"
    found = reader.read(again=False)
    assert found is not None
    assert found["a.json"].data == b"{}"


# FAT, and some network file systems, tell times in whole or two seconds.
def test_s24_on_coarse_stamps_a_second_change_within_their_grain_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "_stamps", lambda _found: (1, 2, 3))
    clock = FakeClock()
    reader = FolderReader(tmp_path, clock.monotonic)

    def read_after(seconds: float, text: str) -> str:
        (tmp_path / "a.json").write_text(text)
        clock.advance(seconds)
        found = reader.read(again=False)
        assert found is not None
        return found["a.json"].digest

    one, two, three = (content(b'{"id": %d}' % number).digest for number in (1, 2, 3))
    assert read_after(0.0, '{"id": 1}') == one
    assert read_after(watcher.GRAIN_S - 0.1, '{"id": 2}') == two
    assert read_after(watcher.GRAIN_S, '{"id": 3}') == three
    assert read_after(0.1, '{"id": 4}') == three  # by then another change has another stamp


# S24: whoever may write into another's file could approve as a second person what they wrote there.
@pytest.mark.parametrize(
    ("mode", "group", "known"),
    [
        (0o644, "plant", True),
        (0o600, "plant", True),
        (0o664, "anna", True),
        (0o664, "plant", False),
        (0o664, "", False),
        (0o646, "anna", False),
    ],
)
def test_s24_whose_change_a_file_is_nobody_knows_where_others_may_write_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, group: str, *, known: bool
) -> None:
    def found(gid: int) -> SimpleNamespace:
        if not group:
            raise KeyError(gid)
        return SimpleNamespace(gr_name=group, gr_mem=["otto"] if group == "plant" else [])

    monkeypatch.setattr(grp, "getgrgid", found)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="anna"))
    file = tmp_path / "tank.json"
    file.write_text("{}")
    file.chmod(mode)
    read = FolderReader(tmp_path).read(again=False)
    assert read is not None
    assert read["tank.json"].owners == (frozenset({os.getuid()}) if known else frozenset())


# As a disk of another system brings them: passed over in silence, its rules would be nowhere.
@pytest.mark.parametrize("name", ["TANK.JSON", "tank.Json", "TANK.O3C"])
def test_a_module_whose_suffix_is_in_great_letters_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    read = FolderReader(tmp_path).read(again=False)
    assert read is not None
    assert "in small letters; rename it" in read[name].problem
    assert not is_module_name(name)


def test_two_names_that_look_alike_are_two_files(tmp_path: Path) -> None:
    names = ("k\u00e4se.json", "ka\u0308se.json", "Tank.json", "tank.json")
    for name in names:
        (tmp_path / name).write_text("{}")
    read = FolderReader(tmp_path).read(again=False)
    assert read is not None
    assert sorted(read) == sorted(names)
    assert not any(found.problem for found in read.values())


# A folder of logs copied there by mistake would else fill the memory, and the next start's too.
def test_of_many_great_files_some_are_held_at_a_time_and_all_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "ROOM_BYTES", 1_000)
    for number in range(10):
        (tmp_path / f"m{number}.json").write_text(json.dumps({"id": number, "more": "x" * 350}))
    clock, settling = FakeClock(), Settling(parses)
    reader = FolderReader(tmp_path, clock.monotonic)
    told: list[str] = []
    for look in range(12):
        found = reader.read(again=settling.unsettled or not look, told=settling.told)
        assert found is not None
        assert len(found) == 10
        assert sum(len(content.data) for content in found.values()) <= 1_000
        changes = settling.look(clock.monotonic(), found)
        assert all(len(change.content.data) > 350 for change in changes if isinstance(change, FileSettled))
        told += [change.name for change in changes]
        clock.advance(0.06)
    assert sorted(told) == sorted({f"m{number}.json" for number in range(10)})
    assert not any(read.content.data for read in reader._known.values())


def test_a_file_that_is_read_again_after_it_was_told_keeps_no_bytes_and_is_told_of_when_it_changes(
    tmp_path: Path,
) -> None:
    clock, settling = FakeClock(), Settling(parses)
    reader = FolderReader(tmp_path, clock.monotonic)

    def look() -> list[FolderChange]:
        clock.advance(1.0)
        found = reader.read(again=settling.unsettled, told=settling.told)
        assert found is not None
        return settling.look(clock.monotonic(), found)

    file = tmp_path / "m.json"
    file.write_text("[1]")
    assert [*look(), *look()] == [FileSettled("m.json", content(b"[1]"))]
    assert [change for _ in range(6) for change in look()] == []
    file.write_text("[2]")
    assert [*look(), *look()] == [FileSettled("m.json", content(b"[2]"))]
