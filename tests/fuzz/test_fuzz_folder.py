"""Whatever happens to the watched folder: what has settled is told, all of it, and no more."""

from __future__ import annotations

import json
import os
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest

from gateway.core.clock import FakeClock
from gateway.solver.in_force.watcher import (
    GIVE_UP_S,
    SETTLE_S,
    FileGone,
    FileSettled,
    FolderChange,
    FolderWatcher,
    is_module_name,
)
from tests.fuzz.mutator_folder import CORPUS, KEPT, Folder, script

_ODD = "not a file"


def parses(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


def listed(folder: Path) -> dict[str, str]:
    """Digests of modules in a folder, by a reader of its own; no plain file, or a link to none, is `_ODD`."""
    found: dict[str, str] = {}
    for name in os.listdir(folder):  # noqa: PTH208  # not the watcher's own way
        path = folder / name
        if name.endswith(".json") and not name.isprintable():
            found[name.replace("\n", "\\n")] = _ODD  # told under a harmless name
        elif is_module_name(name):
            found[name] = sha256(path.read_bytes()).hexdigest() if path.is_file() else _ODD
    return found


class Play:
    """A script played to a watcher, with everything it says judged at once."""

    def __init__(self, root: Path) -> None:
        self.folder, self.clock = Folder(root), FakeClock()
        self.there: list[bool] = []
        self.watcher = FolderWatcher(self.folder.path, parses, self.clock, self.there.append)
        self.looks: list[tuple[float, dict[str, str]]] = []
        self.told: dict[str, str] = {}
        self.said: dict[str, str] = {}  # in the watcher's own words
        self.counts: Counter[str] = Counter()

    async def look(self) -> None:
        if not self.folder.away:
            self.looks.append((self.clock.monotonic(), listed(self.folder.path)))
        for change in await self.watcher._look():
            if is_module_name(change.name):
                self._judge(change)

    def _judge(self, change: FolderChange) -> None:
        # an empty folder in the place of ours tells at most of what had been taken out of ours before
        assert not self.folder.away or (isinstance(change, FileGone) and change.name not in self.looks[-1][1])
        match change:
            case FileGone(name):
                assert name in self.told
                assert self._lasted(name, None) >= GIVE_UP_S - 1e-9
                del self.told[name], self.said[name]
            case FileSettled(name, content):
                digest = _ODD if content.problem else content.digest
                assert self.said.get(name) != content.digest
                self.said[name] = content.digest
                whole = not content.problem and parses(content.data)
                assert self._lasted(name, digest) >= (SETTLE_S if whole else GIVE_UP_S) - 1e-9
                self.told[name] = digest
                self.counts["whole" if whole else "broken"] += 1
        self.counts[type(change).__name__] += 1

    def _lasted(self, name: str, digest: str | None) -> float:
        """Seconds over which every look found this of a file."""
        since = self.clock.monotonic()
        for at, found in reversed(self.looks):
            if found.get(name) != digest:
                break
            since = at
        return self.clock.monotonic() - since

    async def play(self, lines: list[str]) -> None:
        await self.look()
        for line in lines:
            if line.startswith("wait "):
                self.clock.advance(int(line.removeprefix("wait ")) / 1000)
                await self.look()
            else:
                self.folder.act(line)
        await self._quietly()
        if self.folder.away:
            assert not self.there or self.there[-1] is False or not self.told
            self.folder.act("back")
            await self._quietly()
        assert self.told == listed(self.folder.path)  # nothing is lost, nothing is told that is not there

    async def _quietly(self) -> None:
        for _ in range(12):
            self.clock.advance(0.06)
            await self.look()


def test_the_scripts_repeat_themselves_and_the_corpus_is_there() -> None:
    assert [script(seed) for seed in range(20)] == [script(seed) for seed in range(20)]
    assert len(list(CORPUS.glob("script-*.txt"))) >= KEPT


async def test_whatever_happens_to_a_folder_only_what_has_settled_is_told_and_all_of_it(
    tmp_path: Path,
) -> None:
    counts: Counter[str] = Counter()
    scripts = [path.read_text(encoding="utf-8").splitlines() for path in sorted(CORPUS.iterdir())]
    scripts += [script(seed) for seed in range(1_000, 1_060)]
    for number, lines in enumerate(scripts):
        root = tmp_path / str(number)
        root.mkdir()
        play = Play(root)
        await play.play(lines)
        counts += play.counts
    assert counts["whole"] > 100
    assert counts["broken"] > 50
    assert counts["FileGone"] > 20


@pytest.mark.nightly
@pytest.mark.timeout(900)
async def test_two_thousand_more_treatments_of_a_folder(tmp_path: Path) -> None:
    for seed in range(10_000, 12_000):
        root = tmp_path / str(seed)
        root.mkdir()
        await Play(root).play(script(seed))
