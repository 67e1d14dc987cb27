"""The five minutes of README.md, line after line against the running demo."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.house import POINT, ROOT, House
from tests.integration.page_typing import checkout, followed, stands, typed

pytestmark = pytest.mark.integration

_TOUR = re.compile(r"^```\n(export O3_SOCKET=.*?)^```$", re.MULTILINE | re.DOTALL)


def lines() -> list[str]:
    """The commands, without the two lines that only name things shorter."""
    found = _TOUR.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    return [line for line in found[1].splitlines() if not line.startswith(("export ", "alias "))]


@pytest.mark.timeout(900)
async def test_the_readmes_tour_goes_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "house").mkdir()
    async with House(tmp_path / "house") as house:
        await house.arm()
        folder = checkout(tmp_path / "checkout", house)
        (folder / "docs").symlink_to(ROOT / "docs")
        said = {line: await one(line, folder, house) for line in lines()}

    shown = "\n".join(said.values())
    assert len(said) == 11
    assert re.search(r"lower-level-limit +active +1 ", shown), shown
    assert re.search(r"lower-level-limit +unloaded", shown), shown
    assert re.search(r"permitted +margin [0-9.]+ \S+ to ", shown), shown
    assert "broken.json:2:1: expected `,` or `}`, found `end of file`" in shown
    assert "writes are stopped" in shown
    assert "writes may happen again" in shown


async def one(line: str, folder: Path, house: House) -> str:
    """One line, once what it is about is there; a command that never ends is ended as a person would."""
    command = re.sub(r"^o3 ", "o3ctl ", re.sub(r"\s+#.*$", "", line))
    if "--follow" in command:
        return await followed(command, folder, b"permitted ")
    if "DECISION" in command:
        decided = next(d for d in reversed(house.picture.decisions.values()) if d.point == POINT)
        command = command.replace("DECISION", decided.id)
    if "runtime list" in command:
        await house.until(lambda p: stands(p, "lower-level-limit", "active"), 10, "the tighter limit")
    if "approve" in command:
        await house.until(lambda p: stands(p, "lower-level-limit", "pending"), 10, "a change waits")
    if command.startswith("cat "):
        report = house.watched / "broken.refused.txt"
        await house.until(lambda p: stands(p, "broken", "refused") and report.exists(), 10, "the refusal")
    return await typed(command, folder)
