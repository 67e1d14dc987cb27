from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner, Result

from gateway.cli.main import app
from tests.unit.bytecode_modules import file
from tests.unit.solver_demo import BUFFER_TANK, ROOT

DEMO = ROOT / "packaging" / "demo"


def o3ctl(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def said(result: Result) -> str:
    return result.stdout + result.stderr


def test_schema_print_prints_a_schema_that_the_demos_module_fits() -> None:
    schema = json.loads(o3ctl("schema", "print").stdout)
    Draft202012Validator(schema).validate(json.loads(BUFFER_TANK.read_text()))


def test_schema_validate_tells_all_problems_at_once_with_line_and_column(tmp_path: Path) -> None:
    wrong = tmp_path / "tank.json"
    text = BUFFER_TANK.read_text().replace('"require": "level <= 3.6"', '"require": "levl <= 3.6"')
    wrong.write_text(text.replace('"require": "temp <= 75"', '"require": "temp <= 75 +"'))
    people = o3ctl("schema", "validate", "--file", wrong)
    programs = o3ctl("schema", "validate", "--file", wrong, "--json")
    assert people.exit_code == programs.exit_code == 1
    line = next(n for n, t in enumerate(text.splitlines(), start=1) if "levl" in t)
    assert f"{wrong}:{line}:" in people.stdout
    assert "did you mean `level`?" in people.stdout
    assert "2 problems" in people.stdout
    report = json.loads(programs.stdout)
    assert not report["ok"]
    assert [p["line"] for p in report["problems"]] == [line, line + 4]
    assert all(p["column"] > 1 and p["problem"] for p in report["problems"])


def test_schema_validate_says_whose_tags_it_compared_with(tmp_path: Path) -> None:
    alone = o3ctl("schema", "validate", "-f", BUFFER_TANK)
    assert alone.exit_code == 0, said(alone)
    assert "tags were taken as the module says they are" in alone.stdout
    for option in (("--tags", DEMO / "tk1.csv"), ("--config", DEMO / "gateway.toml")):
        told = o3ctl("schema", "validate", "-f", BUFFER_TANK, *option)
        assert told.exit_code == 0, said(told)
        assert "tags were taken" not in told.stdout
    table = tmp_path / "tags.csv"
    table.write_text((DEMO / "tk1.csv").read_text().replace("TK1.LT101", "TK1.LT102"))
    missing = o3ctl("schema", "validate", "-f", BUFFER_TANK, "--tags", table)
    assert missing.exit_code == 1
    assert ":4:23: unknown tag `TK1.LT101`; did you mean `TK1." in missing.stdout
    both = o3ctl("schema", "validate", "-f", BUFFER_TANK, "--tags", table, "--config", DEMO / "gateway.toml")
    assert both.exit_code == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the table is empty"),
        ("id,table,address,type,poll_group\nA,input,x,uint16,fast\n", "tags.csv:2:9: `address`"),
        ("id,table,address,type,poll_group\n\xff", "not UTF-8"),
    ],
)
def test_a_tag_table_that_cannot_be_used_is_told_with_its_line(
    tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "tags.csv").write_bytes(text.encode("latin-1"))
    found = o3ctl("schema", "validate", "-f", BUFFER_TANK, "--tags", tmp_path / "tags.csv")
    assert found.exit_code == 1
    assert sentence in said(found)


def test_compile_sign_disassemble_and_validate_as_a_person_would(tmp_path: Path) -> None:
    key, out = tmp_path / "plant.key", tmp_path / "tank.o3c"
    made = o3ctl("key", "generate", "--output", key)
    assert made.exit_code == 0, said(made)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    digits = made.stdout.rpartition('["')[2].partition('"')[0]
    assert o3ctl("key", "generate", "--output", key).exit_code == 1

    plain = o3ctl("compile", "--input", BUFFER_TANK, "--output", out)
    assert plain.exit_code == 0, said(plain)
    assert out.read_bytes() == file("buffer-tank")
    signed = o3ctl("compile", "-i", BUFFER_TANK, "-o", out, "--config", DEMO / "gateway.toml", "--sign", key)
    assert f"signed with key {digits}" in signed.stdout

    again = json.loads(o3ctl("compile", "-i", BUFFER_TANK, "-o", out, "--sign", key, "--json").stdout)
    assert again == {"ok": True, "file": str(out), "bytes": out.stat().st_size, "signed_with": digits}
    other = json.loads(o3ctl("key", "generate", "-o", tmp_path / "other.key", "--json").stdout)
    assert other["ok"]
    assert (other["private"], len(other["trusted_key"])) == (str(tmp_path / "other.key"), len(digits))

    listing = o3ctl("disassemble", out)
    assert listing.exit_code == 0
    assert f"signed with key {digits}" in listing.stdout
    assert "rule no-overflow (critical, always)" in listing.stdout
    report = json.loads(o3ctl("disassemble", out, "--json").stdout)
    assert (report["module"], report["signed_by"], report["signature_problem"]) == ("buffer-tank", digits, "")
    assert o3ctl("disassemble", out, "--source").stdout == BUFFER_TANK.read_text()
    assert o3ctl("schema", "validate", "-f", out).exit_code == 0

    broken = bytearray(out.read_bytes())
    broken[-1] ^= 1
    out.write_bytes(broken)
    told = o3ctl("disassemble", out)
    assert told.exit_code == 1
    assert "the signature with key" in told.stderr


def test_what_cannot_be_compiled_signed_or_read_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    out = tmp_path / "tank.o3c"
    wrong = tmp_path / "tank.json"
    wrong.write_text(BUFFER_TANK.read_text().replace("level <= 3.6", "level <= "))
    refused = o3ctl("compile", "-i", wrong, "-o", out)
    assert refused.exit_code == 1
    assert f"{wrong}:" in refused.stderr
    no_key = o3ctl("compile", "-i", BUFFER_TANK, "-o", out, "--sign", tmp_path / "none")
    assert (no_key.exit_code, "cannot be read" in no_key.stderr) == (1, True)
    assert o3ctl("compile", "-i", tmp_path / "none.json", "-o", out).exit_code == 1
    assert o3ctl("compile", "-i", BUFFER_TANK, "-o", tmp_path / "tank.bin").exit_code == 2
    assert not out.exists()
    out.write_bytes(file("buffer-tank")[:-100])
    damaged = o3ctl("disassemble", out)
    assert damaged.exit_code == 1
    assert "at byte 12" in damaged.stderr
    assert "Traceback" not in said(damaged)
