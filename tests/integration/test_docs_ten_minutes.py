"""`docs/ten-minutes.md` as a newcomer types it, block after block, against the running demo."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.integration.house import ROOT, House, tell
from tests.integration.page_typing import checkout, stands, typed

pytestmark = pytest.mark.integration

PAGE = ROOT / "docs" / "ten-minutes.md"
_BLOCK = re.compile(r"^```(sh|json)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """What is typed (`sh`) and what is pasted before the last brace of ce.json (`json`), in order."""
    return [(kind, text) for kind, text in _BLOCK.findall(PAGE.read_text(encoding="utf-8"))]


def pasted(text: str, file: Path) -> None:
    """The lines put before the last brace, with a comma after what is above."""
    body = file.read_text().rstrip()
    assert body.endswith("}")
    file.write_text(f"{body[:-1].rstrip()},\n{text}}}\n")


@pytest.mark.timeout(900)
async def test_the_page_brings_a_matrix_into_force_and_out_again_in_ten_minutes(tmp_path: Path) -> None:
    (tmp_path / "house").mkdir()
    async with House(tmp_path / "house") as house:
        await house.arm()
        folder = checkout(tmp_path / "checkout", house)
        started = time.monotonic()
        said: list[str] = []
        for kind, text in blocks():
            if kind == "json":
                pasted(text, folder / "ce.json")
                continue
            said.append(await typed(text, folder))
            if "runtime load" in text and "unload" not in text:
                await refused_what_the_matrix_forbids(house)
        tell(f"the page's commands: {time.monotonic() - started:.1f} s")
        whole = "\n".join(said)
        assert re.search(r"safe set +proved", whole), whole
        assert "nothing to mend" in whole
        assert re.search(r"ce +active +1 ", whole), whole
        assert re.search(r"ce +pending +2 .*which may weaken the rules", whole), whole
        await house.until(lambda p: stands(p, "ce", "unloaded"), 10, "`ce` taken out")
        assert house.picture.mode == "armed"
        assert house.violations() == []


async def refused_what_the_matrix_forbids(house: House) -> None:
    """The demo is at 40 degC: a person who asks for the heater is told the row of the table."""
    await house.until(lambda p: stands(p, "ce", "active"), 10, "`ce` in force")
    pump = house.picture.tags["TK1.P101.SP"].value
    wanted = {"TK1.P101.SP": pump, "TK1.H101.CMD": 1, "TK1.M101.STAGE": 1}
    view = await house.decided({"proposal": wanted})
    assert view["outcome"] in {"refused", "repaired"}, view
    assert "ce/TAH101-1" in view["violated"]
    assert "warm enough: heater off" in view["counterexample"]
