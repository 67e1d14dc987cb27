"""S26: a binding sheet is drafted from the configuration, filled in by a person, and voided by a change."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.config.binding import (
    SEEN,
    Sheet,
    bound_tags,
    changes,
    drafted,
    read_sheet,
    sheet_text,
    signed_by,
    unsigned_problems,
)
from gateway.config.load import load
from gateway.config.model import GatewayConfig
from gateway.core.errors import ConfigError

DEMO = Path(__file__).resolve().parents[2] / "packaging" / "demo"
POINT = "buffer-tank"
FILE = Path("binding.csv")


def demo(folder: Path, *edits: tuple[str, str]) -> GatewayConfig:
    for name in ("gateway.toml", "tk1.csv"):
        text = (DEMO / name).read_text()
        for old, new in edits:
            text = text.replace(old, new, 1)
        (folder / name).write_text(text)
    shutil.copy(DEMO / "binding.csv", folder)
    return load(folder / "gateway.toml")


def sheet() -> Sheet:
    return read_sheet((DEMO / "binding.csv").read_text(), FILE)


def edited(tag: str, **seen: str) -> Sheet:
    lines = tuple(
        replace(line, seen={**line.seen, **seen}) if line.tag == tag else line for line in sheet().lines
    )
    return Sheet(lines)


def test_s26_every_input_output_read_back_and_vouching_word_has_a_line(tmp_path: Path) -> None:
    found = {item.tag: item.facts["role"] for item in bound_tags(demo(tmp_path), POINT)}
    assert found == {
        "TK1.LT101": "input",
        "TK1.FT101": "input",
        "TK1.TT101": "input",
        "TK1.P101.SP": "output",
        "TK1.H101.CMD": "output",
        "TK1.M101.STAGE": "output",
        "TK1.P101.PV": "read_back",
        "TK1.H101.PV": "read_back",
        "TK1.M101.PV": "read_back",
        "TK1.STATUS": "status",
        "TK1.FLAGS": "flag",
        "TK1.LIVE": "liveness",
    }


def test_s26_the_demos_sheet_is_complete_and_fits_its_configuration(tmp_path: Path) -> None:
    assert unsigned_problems(sheet(), bound_tags(demo(tmp_path), POINT), FILE) == ()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("input,8,int16", "input,18,int16", "`TK1.FT101`: address is 8 in the sheet and 18 in"),
        ("m,0.001,0,", "m,0.01,0,", "`TK1.LT101`: scale is 0.001 in the sheet and 0.01 in"),
        ("m,0.001,0,", "cm,0.001,0,", "`TK1.LT101`: unit is m in the sheet and cm in"),
        ("degC,0.01,0,0,100", "degC,0.01,0,0,120", "`TK1.TT101`: eu_high is 100 in the sheet and 120 in"),
        ("7,int16", "7,uint16", "`TK1.LT101`: type is int16 in the sheet and uint16 in"),
        ("TK1.FLAGS,1", "TK1.FLAGS,2", "`TK1.FT101`: bits is forced=TK1.FLAGS.1 in the sheet and forced=TK1"),
        ("unit_id = 1", "unit_id = 3", "`TK1.LT101`: unit_id is 1 in the sheet and 3 in"),
        ('"127.0.0.1:15020"', '"127.0.0.1:15021"', "`TK1.LT101`: endpoint is 127.0.0.1:15020 in the sheet"),
        ('byte_order = "ABCD"', 'byte_order = "CDAB"', "`TK1.LT101`: byte_order is ABCD in the sheet"),
        ("remote_bit = 0", "remote_bit = 5", "`TK1.STATUS`: bits is remote=0 in_control=1 in the sheet"),
        ('"TK1.P101.SP" = "TK1.P101.PV"', '"TK1.P101.SP" = "TK1.M101.PV"', "`TK1.P101.PV` is no tag of"),
    ],
)
def test_s26_a_changed_binding_voids_the_sheet_and_names_line_and_fact(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert changes(sheet(), bound_tags(demo(tmp_path), POINT)) == ()
    found = changes(sheet(), bound_tags(demo(tmp_path, (old, new)), POINT))
    assert any(said in sentence for sentence in found), found
    assert all("line " in sentence for sentence in found)


def test_s26_words_and_poll_groups_are_no_binding(tmp_path: Path) -> None:
    config = demo(tmp_path, ("fast,,,Inflow", "fast,,,Inflow of the tank"), ('"100 ms"', '"200 ms"'))
    assert changes(sheet(), bound_tags(config, POINT)) == ()


@pytest.mark.parametrize(
    ("tag", "seen", "said"),
    [
        ("TK1.LT101", {"indicator": ""}, "fill in indicator"),
        ("TK1.LT101", {"checked_at": "yesterday"}, "is not a time; write 2026-03-01"),
        ("TK1.LT101", {"value": "20"}, "raw 2000 is 2 by scale and offset, not 20"),
        ("TK1.LT101", {"indicator": "1.7"}, "the local indicator shows 1.7 and the gateway 2 m"),
        ("TK1.LT101", {"indicator": "2 m"}, "is not a number: write what it shows, without its unit"),
        ("TK1.H101.CMD", {"indicator": "on"}, "the local indicator shows on and the gateway 0"),
        ("TK1.M101.PV", {"indicator": "2"}, "more than 0 apart: the tag may be bound to another place"),
        ("TK1.FT101", {"raw": "?"}, "raw and value must be numbers"),
    ],
)
def test_s26_what_does_not_add_up_cannot_be_signed(
    tmp_path: Path, tag: str, seen: dict[str, str], said: str
) -> None:
    found = unsigned_problems(edited(tag, **seen), bound_tags(demo(tmp_path), POINT), FILE)
    assert len(found) == 1
    assert f"`{tag}`: " in found[0]
    assert said in found[0]


def test_an_indicator_may_differ_by_what_two_instruments_do(tmp_path: Path) -> None:
    assert (
        unsigned_problems(edited("TK1.LT101", indicator="2.1"), bound_tags(demo(tmp_path), POINT), FILE) == ()
    )


def test_a_draft_is_a_sheet_that_still_needs_a_person(tmp_path: Path) -> None:
    bound = bound_tags(demo(tmp_path), POINT)
    draft = drafted(bound, {"TK1.LT101": ("2000", "2")})
    assert read_sheet(sheet_text(draft), FILE).digest == draft.digest
    assert changes(draft, bound) == ()
    found = unsigned_problems(draft, bound, FILE)
    assert len(found) == len(bound)
    assert "line 2: `TK1.LT101`: fill in indicator, checked_by, checked_at" in found[0]
    assert f"fill in {', '.join(SEEN)}" in found[1]


def test_the_digest_is_of_the_content_and_not_of_its_spelling(tmp_path: Path) -> None:
    text = (DEMO / "binding.csv").read_text()
    respelled = text.replace(",0.1,0,%", ",0.10,0.0,%").replace("# Demo", "# demo")
    assert respelled != text
    assert read_sheet(respelled, FILE).digest == sheet().digest
    assert edited("TK1.LT101", indicator="2.01").digest != sheet().digest
    assert signed_by(sheet(), "anna").digest == sheet().digest
    assert signed_by(edited("TK1.LT101", checked_by=""), "demo").digest == sheet().digest
    del tmp_path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tag,adress\nA,1\n", "binding.csv:2:3: unknown column `adress`; did you mean `address`?"),
        ("tag,unit\n,m\n", "binding.csv:2:1: the line names no tag"),
        ("tag,unit\nA,m\nA,m\n", "binding.csv:3:1: `A` has a line already"),
        ("", "binding.csv:1:1: the table is empty"),
        ('tag\n"A\n', "binding.csv:2:1: a quoted cell is not closed"),
    ],
)
def test_a_table_that_is_no_sheet_is_refused_by_line_and_column(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_sheet(text, FILE)
    assert said in str(caught.value)
