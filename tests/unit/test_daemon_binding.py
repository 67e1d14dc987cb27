"""S26: a signed binding sheet before armed, over restarts, void as soon as anything it says has changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gateway.config.binding import read_sheet, sheet_text
from gateway.config.load import load
from gateway.config.tags import tag_definitions
from gateway.core.clock import FakeClock
from gateway.core.decision import PointId
from gateway.core.quality import StatusCode
from gateway.core.tag import TagId, TagValue
from gateway.core.tagstore import TagStore
from gateway.daemon.binding import Bindings
from gateway.storage.audit import AuditLog
from gateway.storage.state import DurableState

DEMO = Path(__file__).resolve().parents[2] / "packaging" / "demo"
TANK = PointId("buffer-tank")
SHEET = (DEMO / "binding.csv").read_text()


class Gateway:
    """One life of a gateway on a folder of the demo's files."""

    def __init__(self, folder: Path) -> None:
        config, clock = load(folder / "gateway.toml"), FakeClock()
        self.store = TagStore(tag_definitions(config), clock)
        self.audit = AuditLog(config.gateway.state_dir / "audit.sqlite", clock)
        self.state = DurableState(config.gateway.state_dir / "state.json")
        self.bindings = Bindings(config, self.store, self.state, self.audit, clock)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("gateway.toml", "tk1.csv"):
        shutil.copy(DEMO / name, tmp_path)
    return tmp_path


async def signed(folder: Path, sheet: str = SHEET, by: str = "") -> tuple[Gateway, str]:
    gateway = Gateway(folder)
    await gateway.audit.start()
    try:
        why = await gateway.bindings.sign(TANK, sheet, "binding.csv", by, "anna")
        events = [(e.kind, e.who, e.what.get("digest", "")) for e in await gateway.audit.events(5)]
    finally:
        await gateway.audit.aclose()
    if not why:
        assert events == [("binding", "anna", gateway.bindings.digest(TANK))]
    return gateway, why


async def test_s26_without_a_sheet_the_way_to_one_is_told(folder: Path) -> None:
    why = Gateway(folder).bindings.why_not(TANK)
    assert why.startswith("no binding sheet is signed")
    assert "o3ctl binding print buffer-tank > binding.csv" in why
    assert "o3ctl binding sign buffer-tank --file binding.csv" in why


async def test_s26_a_signed_sheet_stands_and_outlives_the_gateway(folder: Path) -> None:
    gateway, why = await signed(folder, by="A. Engineer")
    assert not why
    assert not gateway.bindings.why_not(TANK)
    again = Gateway(folder)
    assert not again.bindings.why_not(TANK)
    told = again.bindings.standing(TANK)
    assert (told["signed_by"], told["user"], told["void"]) == ("A. Engineer", "anna", "")
    assert told["digest"] == read_sheet(SHEET, Path("x")).digest


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "input,8,int16",
            "input,18,int16",
            "`TK1.FT101`: address is 8 in the sheet and 18 in the configuration",
        ),
        ("m,0.001,0,", "m,0.01,0,", "`TK1.LT101`: scale is 0.001 in the sheet and 0.01 in the configuration"),
    ],
)
async def test_s26_a_changed_binding_voids_the_signature_at_the_next_start(
    folder: Path, old: str, new: str, said: str
) -> None:
    await signed(folder)
    table = folder / "tk1.csv"
    table.write_text(table.read_text().replace(old, new))
    gateway = Gateway(folder)
    why = gateway.bindings.why_not(TANK)
    assert said in why
    assert "since anna signed it on" in why
    assert "o3ctl binding print buffer-tank" in why
    assert gateway.bindings.standing(TANK)["void"] == why


async def test_s26_a_sheet_of_another_configuration_cannot_be_signed(folder: Path) -> None:
    gateway, why = await signed(folder, SHEET.replace("input,8,int16", "input,18,int16"))
    assert "cannot be signed" in why
    assert "address is 18 in the sheet and 8 in the configuration" in why
    assert gateway.bindings.why_not(TANK)
    assert gateway.state.point(TANK).binding is None


async def test_s26_a_sheet_touched_after_it_was_signed_does_not_count(folder: Path) -> None:
    await signed(folder)
    kept = folder / "state" / "bindings" / "buffer-tank.csv"
    kept.write_text(kept.read_text().replace("2.0,demo", "2.1,demo"))
    assert "is not the binding sheet that was signed" in Gateway(folder).bindings.why_not(TANK)
    kept.unlink()
    assert "cannot be read" in Gateway(folder).bindings.why_not(TANK)


async def test_a_draft_has_what_the_gateway_reads_and_says_what_is_not_good(folder: Path) -> None:
    gateway = Gateway(folder)
    for tag, value in (("TK1.LT101", 1.987), ("TK1.H101.PV", True)):
        fresh = TagValue(
            value=value, status=StatusCode.Good, source_ts_ns=None, server_ts_ns=0, confirmed_at=0.0
        )
        gateway.store.update(TagId(tag), fresh)
    draft = gateway.bindings.draft(TANK)
    lines = {line.tag: line.seen for line in read_sheet(draft["sheet"], Path("x")).lines}
    assert lines["TK1.LT101"] == {"raw": "1987", "value": "1.987"}
    assert lines["TK1.H101.PV"] == {"raw": "1", "value": "on"}
    assert lines["TK1.FT101"] == {}
    assert set(draft["not_good"]) == set(lines) - {"TK1.LT101", "TK1.H101.PV"}


async def test_nonsense_and_huge_sheets_are_refused_with_a_sentence(folder: Path) -> None:
    for text, said in (
        ("", "the table is empty"),
        ("x" * 300_000, "at most 262144 bytes"),
        ("tag\nA\n", "no line"),
    ):
        _, why = await signed(folder, text)
        assert said in why


def test_a_kept_sheet_is_the_same_sheet() -> None:
    sheet = read_sheet(SHEET, Path("x"))
    assert read_sheet(sheet_text(sheet), Path("y")).digest == sheet.digest
