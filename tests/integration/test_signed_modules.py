"""The armed demo takes signed modules only, and a signature stands for the second person (S24)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gateway.solver.bytecode.accept import compiled_file
from gateway.solver.bytecode.signing import generate
from gateway.solver.modules.assumed_tags import assumed_tags
from tests.integration.house import ROOT, House, tell

pytestmark = pytest.mark.integration

EXAMPLE_LIMIT = ROOT / "docs" / "examples" / "lower-level-limit.json"
LIMIT = "lower-level-limit"


class Signed(House):
    """The demo with `signed_only`; its modules are signed before it starts."""

    def _prepare(self) -> None:
        super()._prepare()
        _, public = generate(self.folder / "plant.key")
        generate(self.folder / "other.key")
        for source in self.watched.glob("*.json"):
            (self.watched / f"{source.stem}.o3c").write_bytes(self.signed(source.read_text()))
            source.unlink()
        config = self.folder / "gateway.toml"
        text = config.read_text().replace('weakening = "allow"', 'weakening = "confirm"')
        config.write_text(text + f'signed_only = true\ntrusted_keys = ["{public}"]\n')

    def signed(self, text: str, key: str = "plant.key") -> bytes:
        data = text.encode()
        return compiled_file(data, "m.json", assumed_tags(data), self.folder / key)[0]

    def drop(self, name: str, data: bytes) -> None:
        hidden = self.watched / f".{name}"
        hidden.write_bytes(data)
        hidden.rename(self.watched / name)


@pytest.mark.timeout(900)
async def test_s24_signed_modules_change_the_rules_of_an_armed_point(tmp_path: Path) -> None:
    first = EXAMPLE_LIMIT.read_text()
    wider = first.replace('"revision": 1', '"revision": 2').replace('"level <= 3.2"', '"level <= 3.205"')
    async with Signed(tmp_path) as house:
        await house.arm()
        refused = await house.ask("runtime.load", {"name": "limit.json", "data": first.encode()})
        assert "this gateway takes signed modules only" in refused.error
        house.drop("limit.o3c", house.signed(first, "other.key"))
        report = house.watched / "limit.o3c.refused.txt"
        await house.until(lambda _: report.exists(), 10, "a report of the untrusted key")
        assert "not among the `trusted_keys`" in report.read_text()

        house.drop("limit.o3c", house.signed(first))
        await house.until(lambda p: LIMIT in p.modules and p.modules[LIMIT].state == "active", 10, "in force")
        started = time.monotonic()
        house.drop("limit.o3c", house.signed(wider))
        await house.until(lambda p: p.modules[LIMIT].revision == 2, 90, "the signed weakening, proved")
        tell(f"signed weakening proved and in force after {time.monotonic() - started:.1f} s, nobody asked")
        assert house.picture.mode == "armed"
        at = time.monotonic()
        await house.until(lambda p: p.wrote(at), 10, "a write under it")
