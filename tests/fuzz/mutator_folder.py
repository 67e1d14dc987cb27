"""Seeded treatments of a watched folder, as scripts that can be read, kept and played again.

One act a line: `write a.json 7` (a whole file, number 7), `half a.json 7` (of it), `rename`, `link`,
`delete`, `dir`, `pipe`, `touch`, `away` (the folder is moved), `empty` (another, empty one is in its place),
`back`, and `wait 60` (milliseconds).

`python -m tests.fuzz.mutator_folder` writes the corpus that the tests read.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus" / "folder"
KEPT = 40
NAMES = ("a.json", "b.json", "c.o3c", ".hidden.json", "d.txt", "line\\nbreak.json", "é.json", "~e.json")
_ACTS = (
    *("write",) * 6, *("half",) * 4, *("rename",) * 3, *("link",) * 2, *("delete",) * 3,
    "dir", "pipe", "touch", "away", "empty", "back", "back",
)  # fmt: skip
_WAITS = (0, 0, 10, 30, 60, 60, 150, 320, 400)


def script(seed: int) -> list[str]:
    """The acts of one seed."""
    rng = random.Random(seed)  # noqa: S311  # repeatable, not secret
    lines: list[str] = []
    for number in range(rng.randint(5, 40)):
        act, one, other = rng.choice(_ACTS), rng.choice(NAMES), rng.choice(NAMES)
        match act:
            case "write" | "half":
                lines.append(f"{act} {one} {number}")
            case "rename" | "link":
                lines.append(f"{act} {one} {other}")
            case "away" | "empty" | "back":
                lines.append(act)
            case _:
                lines.append(f"{act} {one}")
        lines.append(f"wait {rng.choice(_WAITS)}")
    return lines


class Folder:
    """A folder that a script happens to; while it is away the acts happen where it went."""

    def __init__(self, root: Path) -> None:
        self.path, self._elsewhere = root / "constraints.d", root / "elsewhere"
        self.path.mkdir()

    def act(self, line: str) -> None:
        """Do one act. What the system refuses, such as to write over a folder, does not happen."""
        act, *words = line.split(" ")
        with contextlib.suppress(OSError):
            self._act(act, words)

    @property
    def away(self) -> bool:
        """Whether the folder is somewhere else."""
        return self._elsewhere.exists()

    def _act(self, act: str, words: list[str]) -> None:
        folder = self._elsewhere if self.away else self.path
        match act, [_name(word) for word in words]:
            case (("write" | "half"), [name, number]):
                # every number has a length of its own: the stamps of a file are no finer than milliseconds
                data = b'{"id": "' + b"x" * int(number) + b'"}'
                _write(folder / name, data if act == "write" else data[:-2])
            case "rename", [name, other]:
                (folder / name).rename(folder / other)
            case "link", [name, other]:
                fresh = folder / "new-link"
                fresh.unlink(missing_ok=True)
                fresh.symlink_to(other)
                fresh.rename(folder / name)
            case _, [name]:
                _ALONE[act](folder / name)
            case _:
                self._move(act)

    def _move(self, act: str) -> None:
        if act == "back" and self.away:
            if self.path.exists():
                self.path.rmdir()
            self._elsewhere.rename(self.path)
        elif act != "back" and not self.away:
            self.path.rename(self._elsewhere)
            if act == "empty":
                self.path.mkdir()


def _write(path: Path, data: bytes) -> None:
    file = os.open(
        path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK
    )  # a pipe would keep us waiting
    try:
        os.write(file, data)
    finally:
        os.close(file)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink()


_ALONE: dict[str, Callable[[Path], object]] = {
    "delete": _delete,
    "dir": Path.mkdir,
    "pipe": os.mkfifo,
    "touch": Path.touch,
}


def _name(word: str) -> str:
    return word.replace("\\n", "\n")


def main() -> None:
    """Write the corpus."""
    CORPUS.mkdir(parents=True, exist_ok=True)
    for seed in range(KEPT):
        (CORPUS / f"script-{seed:02}.txt").write_text("\n".join(script(seed)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
