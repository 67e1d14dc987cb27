"""The watched folder: tells of files once they have settled, and of files that are gone."""

from __future__ import annotations

import asyncio
import contextlib
import grp
import hashlib
import os
import pwd
import stat
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog
import watchfiles

from gateway.core.clock import Clock

log = structlog.get_logger().bind(component="watcher")

SUFFIX = ".json"
SUFFIXES = (SUFFIX, ".o3c")  # source, compiled
SETTLE_S = 0.05  # the same content on two looks this far apart is a whole copy, if it parses
GIVE_UP_S = 0.3  # what still does not parse, or is still missing, after this long is meant that way
GRAIN_S = 2.5  # the coarsest times of file systems are two seconds: so long stamps alone prove nothing
RESCAN_S = 0.25  # sees what the kernel does not tell: network mounts, targets of links
LIMIT_BYTES = 4 * 1024 * 1024
ROOM_BYTES = 64 * 1024 * 1024  # for the contents of one look: of a thousand great files, some at a time
_NOTHING: Mapping[str, str] = {}
_NAME_BYTES = 200  # room for the report's suffix beside it


@dataclass(frozen=True, slots=True)
class Content:
    """What a file holds; `problem` says why it could not be read, else empty.

    `owners`: the Unix users who own the file, and the link to it where it is one; none where others may
    write into it, too: then nobody knows who did. `kept` False: its bytes were left out, to be read again.
    """

    data: bytes
    digest: str
    problem: str = ""
    owners: frozenset[int] = field(default=frozenset(), compare=False)
    kept: bool = field(default=True, compare=False)

    def bare(self) -> Content:
        """The same without its bytes."""
        return replace(self, data=b"", kept=False)


@dataclass(frozen=True, slots=True)
class FileSettled:
    """A file is whole, or broken for good."""

    name: str
    content: Content


@dataclass(frozen=True, slots=True)
class FileGone:
    """A file was taken out."""

    name: str


FolderChange = FileSettled | FileGone


@dataclass(slots=True)
class _Look:
    digest: str | None  # None: missing
    since: float


@dataclass(slots=True)
class Settling:
    """Decides when a file may be told of. Pure: time and contents are given."""

    parses: Callable[[bytes], bool]
    _looks: dict[str, _Look] = field(default_factory=dict)
    _told: dict[str, str] = field(default_factory=dict)

    def look(self, now: float, found: Mapping[str, Content]) -> list[FolderChange]:
        """Changes that are certain now; each is told once."""
        changes: list[FolderChange] = []
        for name in sorted(found.keys() | self._looks.keys()):
            content = found.get(name)
            digest = content.digest if content is not None else None
            seen = self._looks.get(name)
            if seen is None or seen.digest != digest:
                seen = self._looks[name] = _Look(digest, now)
            change = self._certain(name, content, now - seen.since)
            if change is not None:
                changes.append(change)
        return changes

    @property
    def told(self) -> Mapping[str, str]:
        """By name, the digest of what was told last."""
        return self._told

    @property
    def unsettled(self) -> bool:
        """True while some file has changed and is not told of yet."""
        return any(look.digest != self._told.get(name) for name, look in self._looks.items())

    def _certain(self, name: str, content: Content | None, unchanged_s: float) -> FolderChange | None:
        if content is None:
            if unchanged_s < GIVE_UP_S:
                return None
            del self._looks[name]
            return FileGone(name) if self._told.pop(name, None) is not None else None
        if self._told.get(name) == content.digest or unchanged_s < SETTLE_S or not content.kept:
            return None
        whole = not content.problem and self.parses(content.data)
        if not whole and unchanged_s < GIVE_UP_S:
            return None
        self._told[name] = content.digest
        return FileSettled(name, content)


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read of a file under stamps first seen at `since`; `trusted`: the same ones mean the same."""

    stamps: tuple[int, ...]
    content: Content
    since: float
    trusted: bool


class FolderReader:
    """Reads the module files of one folder; reads a file again only when its stamps moved."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._now = folder, now
        self._known: dict[str, _Read] = {}
        self._identity: tuple[int, int] | None = None  # of the folder when it last was what we watch
        self._empty = True  # it was then
        self._room = ROOM_BYTES

    def read(self, *, again: bool, told: Mapping[str, str] = _NOTHING) -> dict[str, Content] | None:
        """Every module file by name; None when the folder itself is away. `again` trusts no stamp.

        The bytes of those whose digest is `told` are left out, and so are those there is no room for now.

        Another folder without a module in its place (the mount point of an unmounted disk) is away too, and
        so is one that was exchanged while it was read: what was found of it belongs to neither.
        """
        try:
            identity = self._found()
            names = [p.name for p in self._folder.iterdir() if _may_hold_a_module(p.name)]
        except OSError:
            return None
        if not names and not self._empty and identity != self._identity:
            return None
        found: dict[str, Content] = {}
        self._room = ROOM_BYTES
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # taken out between the two calls
                if is_module_name(name):
                    found[name] = self._file(name, told.get(name), again=again)
                else:
                    found[_shown(name)] = unreadable(_why_no_name(name))
        try:
            if self._found() != identity:
                return None
        except OSError:
            return None
        self._identity, self._empty = identity, not found
        self._known = {name: known for name, known in self._known.items() if name in found}
        return found

    def _found(self) -> tuple[int, int]:
        """Which folder is there now."""
        stamps = self._folder.stat()
        return stamps.st_dev, stamps.st_ino

    def _file(self, name: str, told: str | None, *, again: bool) -> Content:
        path = self._folder / name
        try:
            link = path.lstat()
            try:
                stamps = path.stat()
            except FileNotFoundError:  # raised once more where the link itself is gone by now
                return unreadable(f"it is a link to `{_harmless(str(path.readlink()))}`, where nothing is")
        except FileNotFoundError:
            raise
        except OSError as exc:  # a loop of links, a folder nobody may look into
            return unreadable(exc.strerror or str(exc))
        key, known, now = _stamps(stamps), self._known.get(name), self._now()
        since = known.since if known is not None and known.stamps == key else now
        if known is not None and known.trusted and known.stamps == key and not again:
            return known.content
        owners = frozenset[int]() if _others_write(stamps) else frozenset({link.st_uid, stamps.st_uid})
        content = replace(read_file(path), owners=owners)
        trusted = not content.problem and now - since > GRAIN_S
        self._known[name] = _Read(key, content.bare(), since, trusted=trusted)
        if content.problem:
            return content
        if content.digest == told or (len(content.data) > self._room and self._room < ROOM_BYTES):
            return content.bare()
        self._room -= len(content.data)
        return content


class FolderWatcher:
    """Watches one folder. Files that vanish with the whole folder are not told as gone."""

    def __init__(
        self,
        folder: Path,
        parses: Callable[[bytes], bool],
        clock: Clock,
        on_folder: Callable[[bool], None] = lambda _there: None,
    ) -> None:
        """`on_folder` is told when the folder is away (False) and when it is back."""
        self._folder = folder
        self._reader = FolderReader(folder, clock.monotonic)
        self._settling = Settling(parses)
        self._clock = clock
        self._stirred = asyncio.Event()
        self._folder_lost = False
        self._on_folder = on_folder

    async def first(self, patience_s: float = 1.0) -> list[FolderChange]:
        """What the folder holds at the start, settled or not after `patience_s` left for later."""
        end = self._clock.monotonic() + patience_s
        changes = await self._look()
        while self._settling.unsettled and self._clock.monotonic() < end:
            await asyncio.sleep(SETTLE_S)
            changes += await self._look()
        return changes

    async def run(self, on_changes: Callable[[Sequence[FolderChange]], Awaitable[None]]) -> None:
        """Call `on_changes` with each batch of certain changes, one call at a time, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen(), name="constraints-listen")
            while True:
                changes = await self._look()
                if changes:
                    await on_changes(changes)
                    continue
                await self._rest()

    async def _rest(self) -> None:
        """Until the kernel tells of a change or the next look is due."""
        self._stirred.clear()
        wait_s = SETTLE_S if self._settling.unsettled else RESCAN_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._stirred.wait()
        if self._settling.unsettled:  # a stir while files settle must not turn into a busy loop
            await asyncio.sleep(SETTLE_S / 5)

    async def _look(self) -> list[FolderChange]:
        again = self._settling.unsettled
        found = await asyncio.to_thread(self._reader.read, again=again, told=dict(self._settling.told))
        if (found is None) != self._folder_lost:
            self._folder_lost = found is None
            log.warning("constraints_folder_lost" if self._folder_lost else "constraints_folder_found")
            self._on_folder(not self._folder_lost)
        if found is None:
            return []
        return await asyncio.to_thread(self._settling.look, self._clock.monotonic(), found)  # it parses

    async def _listen(self) -> None:
        """Wake the looks when the kernel tells of a change; where it cannot, the rescan is enough."""
        while True:
            try:
                async for _ in watchfiles.awatch(
                    self._folder, watch_filter=None, debounce=50, step=10, recursive=False
                ):
                    self._stirred.set()
            except OSError as exc:
                log.debug("constraints_listen_failed", reason=str(exc))
            await asyncio.sleep(1.0)


def is_module_name(name: str) -> bool:
    """True for names a module file may have; hidden and temporary ones, and odd characters, it may not."""
    if not _may_hold_a_module(name) or not name.endswith(SUFFIXES):
        return False
    return name.isprintable() and len(name.encode()) <= _NAME_BYTES


def is_gone(path: Path) -> bool:
    """Whether nothing bears a name any more: a link to nothing is there, and what nobody may see."""
    return _surely_not(path.lstat)


def leads_nowhere(path: Path) -> bool:
    """Whether a name is gone, or a link to where nothing is; not where nobody may look."""
    return _surely_not(path.stat)


def _surely_not(look: Callable[[], os.stat_result]) -> bool:
    try:
        look()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _may_hold_a_module(name: str) -> bool:
    """Also one in great letters, as from a disk of another system: to pass over it would say nothing."""
    return name.lower().endswith(SUFFIXES) and not name.startswith((".", "~", "#"))


def _why_no_name(name: str) -> str:
    if not name.endswith(SUFFIXES):
        return "a module's name ends in `.json` or `.o3c`, in small letters; rename it"
    return "its name is too long or not printable; rename it"


def _shown(name: str) -> str:
    """An odd name as people and programs can see it: no control character, no broken text, not too long."""
    text = _harmless(name).replace("/", "_")
    if len(text.encode()) > _NAME_BYTES:
        mark = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:12]
        text = text.encode()[:100].decode(errors="ignore") + f"~{mark}{SUFFIX}"
    return text


def _harmless(text: str) -> str:
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text
    )


def _stamps(found: os.stat_result) -> tuple[int, ...]:
    return found.st_ino, found.st_dev, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _others_write(found: os.stat_result) -> bool:
    """Whether another account than the owner may write into a file; a group of the owner's own is none."""
    if found.st_mode & stat.S_IWOTH:
        return True
    if not found.st_mode & stat.S_IWGRP:
        return False
    try:
        group, owner = grp.getgrgid(found.st_gid), pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        return True
    return group.gr_name != owner or not set(group.gr_mem) <= {owner}


def read_file(path: Path) -> Content:
    """A regular file of bearable size, read without ever waiting; raises only `FileNotFoundError`."""
    try:
        before = path.stat()
        if not stat.S_ISREG(before.st_mode):  # to open a device may do something
            return unreadable("it is not a regular file")
        if before.st_size > LIMIT_BYTES:
            return unreadable(f"it has {before.st_size} bytes; a module has at most {LIMIT_BYTES}")
        with open(path, "rb", opener=_not_waiting) as file:  # Path.open() takes no opener
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # it was swapped meanwhile
                return unreadable("it is not a regular file")
            data = file.read(LIMIT_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as exc:
        return unreadable(exc.strerror or str(exc))
    if len(data) > LIMIT_BYTES:
        return unreadable(f"a module has at most {LIMIT_BYTES} bytes")
    return Content(data, hashlib.sha256(data).hexdigest())


def unreadable(problem: str) -> Content:
    """A file that cannot be read, and why."""
    return Content(b"", f"unreadable: {problem}", problem)


def _not_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
