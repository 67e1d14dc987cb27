from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli.main import app
from gateway.core.errors import ConstraintError
from gateway.solver.errors import ModuleRefusedError
from gateway.solver.modules.compile import compile_module
from gateway.solver.tables.hand import ByHandError
from gateway.solver.tables.matrix import export_matrix, import_matrix
from gateway.solver.tables.merge import merged, module_of
from gateway.solver.tables.windows import export_windows, import_windows
from tests.unit.solver_demo import BUFFER_TANK, TAGS

MATRIX = (
    "row,cause,kind,message,pump == 0,not heater,mixer >= 1\n"
    "LAHH101,level >= 3.5,,too full,,X,\n"
    "LALL101,level <= 0.1,standard,too low,X,X,\n"
    "TAH101,temp >= 70,informational,,,,x\n"
)
WINDOWS = (
    "row;variable;alarm_low;low;high;alarm_high;gap;kind\n"
    "W1;level;0.1;0.15;3.7;3.8;;\n"
    "W2;temp;;;72;75;2;informational\n"
    "W3;pump;;;100;;;\n"
)


def tank() -> dict[str, object]:
    return module_of(BUFFER_TANK.read_bytes())


def problems(call: object, *arguments: object) -> list[ConstraintError]:
    assert callable(call)
    with pytest.raises(ModuleRefusedError) as told:
        call(*arguments)
    return list(told.value.problems)


def test_each_mark_of_a_matrix_is_a_rule_with_its_row() -> None:
    rules = import_matrix(MATRIX.encode(), "ce.csv")
    assert [rule["id"] for rule in rules] == ["LAHH101-2", "LALL101-1", "LALL101-2", "TAH101-3"]
    assert rules[1] == {
        "id": "LALL101-1",
        "kind": "standard",
        "when": "level <= 0.1",
        "require": "pump == 0",
        "row": "LALL101",
        "message": "too low",
    }


def test_a_matrix_comes_back_from_the_module_with_the_same_rows_marks_and_ids() -> None:
    rules = import_matrix(MATRIX.encode(), "ce.csv")
    module = merged(tank(), rules, "")
    again = import_matrix(export_matrix(module["constraints"]).encode(), "out.csv")
    assert {(r["row"], r["when"], r["require"], r["kind"]) for r in again} == {
        (r["row"], r["when"], r["require"], r["kind"]) for r in rules
    }


def test_a_module_with_a_matrix_compiles_and_a_second_import_replaces_the_first_in_its_place() -> None:
    once = merged(tank(), import_matrix(MATRIX.encode(), "ce.csv"), "ce-")
    compiled = compile_module(json.dumps(once).encode(), "m.json", TAGS)
    assert "ce-LALL101-1" in compiled.constraints
    fewer = "\n".join(MATRIX.splitlines()[:2])
    twice = merged(once, import_matrix(fewer.encode(), "ce.csv"), "ce-")
    ids = [rule["id"] for rule in twice["constraints"]]
    assert [i for i in ids if i.startswith("ce-")] == ["ce-LAHH101-2"]
    assert ids[:-1] == [rule["id"] for rule in tank()["constraints"]]  # type: ignore[attr-defined]
    assert twice["revision"] == int(str(tank()["revision"])) + 2


@pytest.mark.parametrize(
    ("text", "line", "cell", "said"),
    [
        ("row,cuase,a\n", 1, 1, "no column `cause`; did you mean `cuase`"),
        ("row,cause\nR1,x\n", 1, 1, "no effect: add a column whose header is a condition"),
        ("row,cause,p\nR1,l > 1,yes\n", 2, 3, "`yes` in row `R1`: mark an effect with `X`"),
        ("row,cause,p\nR1,l > 1,\n", 2, 1, "row `R1` has no effect"),
        ("row,cause,p\nR1,,X\n", 2, 2, "row `R1` has no cause"),
        ("row,cause,p\nR1,l > 1,X\nR1,l > 2,X\n", 3, 1, "row `R1` is already in line 2"),
        ("row,cause,p\n1,l > 1,X\n", 2, 1, "`1` cannot name a row"),
        ("row,cause,kind,p\nR1,l > 1,urgent,X\n", 2, 3, "`urgent` is no kind"),
        ("row,cause,p\nR1,l > 1,X,X\n", 2, 1, "the line has 4 cells and the header 3"),
    ],
)
def test_what_is_wrong_with_a_matrix_is_told_by_line_and_cell(
    text: str, line: int, cell: int, said: str
) -> None:
    found = problems(import_matrix, text.encode(), "ce.csv")
    assert (found[0].line, found[0].column) == (line, cell)
    assert said in found[0].problem


def test_bytes_that_are_no_text_are_a_sentence() -> None:
    assert "UTF-8" in problems(import_matrix, b"row,cause,p\nR1,\xff,X\n", "ce.csv")[0].problem


def test_windows_are_limits_inside_their_alarms() -> None:
    rules = import_windows(WINDOWS.encode(), "w.csv", tank())
    assert [(r["id"], r["require"], r.get("always")) for r in rules] == [
        ("W1-low", "level >= 0.15", True),
        ("W1-high", "level <= 3.7", True),
        ("W2-high", "temp <= 72", True),
        ("W3-high", "pump <= 100", None),
    ]
    compile_module(json.dumps(merged(tank(), rules, "w-")).encode(), "m.json", TAGS)
    exported = export_windows(merged(tank(), rules, "")["constraints"])
    assert "W1,level,,0.15,3.7,," in exported


@pytest.mark.parametrize(
    ("line", "cell", "said"),
    [
        ("W1,level,,,3.6,3.5,,", 5, "the high limit 3.6 is outside the alarm at 3.5"),
        ("W1,level,0.4,0.35,,,,", 4, "the low limit 0.35 is outside the alarm at 0.4"),
        ("W1,level,,,3.495,3.5,,", 5, "is 0.005 from the alarm at 3.5; at least 0.01 are needed"),
        ("W1,level,,,3.4,3.5,0.2,", 5, "at least 0.2 are needed"),
        ("W1,lvel,,,3.4,3.5,,", 2, "`lvel` is not a variable of the module; did you mean `level`"),
        ("W1,level,,,,,,", 1, "neither a `low` nor a `high` limit"),
        ("W1,level,,3,2,,,", 4, "the low limit 3 is above the high limit 2"),
        ('W1,level,,,"3,4",,,', 5, "`3,4` is not a decimal number"),
    ],
)
def test_a_limit_outside_its_alarm_or_too_near_is_refused(line: str, cell: int, said: str) -> None:
    text = f"row,variable,alarm_low,low,high,alarm_high,gap,kind\n{line}\n"
    found = problems(import_windows, text.encode(), "w.csv", tank())
    assert (found[0].line, found[0].column) == (2, cell)
    assert said in found[0].problem


@pytest.mark.parametrize(
    ("line", "cell", "said"),
    [
        ("W1,level,,,3.4,3.4,-1,", 7, "a gap of -1 would be none"),
        ("W1,odd,,,3,,,", 2, "`odd` is not a variable of the module"),
        ("W1,vague,,,3,,,", 2, "the `error` of `vague` in the module: `0.3 m` is not a decimal number"),
    ],
)
def test_a_window_over_what_the_module_says_wrong_is_a_sentence(line: str, cell: int, said: str) -> None:
    module = tank()
    assert isinstance(module["variables"], dict)
    module["variables"] |= {"odd": 5, "vague": {"tag": "TK1.LT101", "error": "0.3 m"}}
    text = f"row,variable,alarm_low,low,high,alarm_high,gap,kind\n{line}\n"
    found = problems(import_windows, text.encode(), "w.csv", module)
    assert (found[0].line, found[0].column) == (2, cell)
    assert said in found[0].problem


# The rows after it would be the text of one cell, and their rules nowhere.
@pytest.mark.parametrize("cell", ['"too full', '"too" full'])
def test_a_quote_that_is_not_closed_takes_no_row_with_it_in_silence(cell: str) -> None:
    text = f"row,cause,pump == 0,message\nR1,level > 3,X,{cell}\nR2,level > 4,X,\nR3,level > 5,X,\n"
    assert "cannot be read" in problems(import_matrix, text.encode(), "ce.csv")[0].problem


# Spreadsheets write what was ever formatted, put tabulators between cells, and quote what holds a separator.
@pytest.mark.parametrize(
    "text",
    [
        "row,cause,pump == 0,,,\nR1,level > 3,X,,,\n,,,,,\nR2,level > 4,X, ,\n",
        "row,cause,pump == 0\nR1,level > 3,X,,\nR2,level > 4,X,  ,,\n",
        'row,cause,"pump == 0"\nR1,level > 3,X\nR2,level > 4,X\n',
        "row;cause;pump == 0\r\nR1;level > 3;X\r\nR2;level > 4;X\r\n",
        "row\tcause\tpump == 0\r\nR1\tlevel > 3\tX\r\nR2\tlevel > 4\tX\r\n",
        "row,cause,pump == 0,message\rR1,level > 3,X,too full; stop\rR2,level > 4,X,\r",
        'row,cause,pump == 0,"message"\nR1,level > 3,X,"a; b\nc; d"\nR2,level > 4,X,\n',
    ],
)
def test_a_table_as_spreadsheets_write_it_is_read(text: str) -> None:
    rules = import_matrix(text.encode("utf-8-sig"), "ce.csv")
    assert [(r["row"], r["when"], r["require"]) for r in rules] == [
        ("R1", "level > 3", "pump == 0"),
        ("R2", "level > 4", "pump == 0"),
    ]


def test_an_import_says_which_rows_of_a_table_it_took_out(tmp_path: Path) -> None:
    matrix, windows, module = tmp_path / "ce.csv", tmp_path / "w.csv", tmp_path / "tank.json"
    matrix.write_text(MATRIX)
    windows.write_text(WINDOWS)
    run = CliRunner()

    def brought(kind: str, table: Path, into: Path, *more: str) -> str:
        words = ["import", kind, "--file", str(table), "--into", str(into), "--output", str(module), *more]
        done = run.invoke(app, words)
        assert done.exit_code == 0, done.output
        return done.output

    assert "taken out" not in brought("matrix", matrix, BUFFER_TANK)
    assert "`LAHH101`, `LALL101`, `TAH101`" in brought("windows", windows, module)
    assert '"gone": [\n    "W1"' in brought("matrix", matrix, module, "--json")
    assert "taken out" not in brought("windows", windows, module, "--prefix", "w-")


def test_the_verbs_write_a_module_that_validates_and_give_the_table_back(tmp_path: Path) -> None:
    table, module = tmp_path / "ce.csv", tmp_path / "tank.json"
    table.write_text(MATRIX)
    run = CliRunner()
    done = run.invoke(
        app,
        ["import", "matrix", "-f", str(table), "--into", str(BUFFER_TANK), "-o", str(module)],
    )
    assert done.exit_code == 0, done.output
    assert "4 rules from ce.csv" in done.output
    assert run.invoke(app, ["schema", "validate", "--file", str(module)]).exit_code == 0
    back = run.invoke(app, ["export", "matrix", "--file", str(module)])
    assert "LALL101,level <= 0.1,standard,too low,X,X," in back.output

    table.write_text("row,cause,p\nR1,,X\n")
    refused = run.invoke(app, ["import", "matrix", "-f", str(table), "--into", str(BUFFER_TANK), "--json"])
    assert refused.exit_code == 1
    assert json.loads(refused.output)["problems"][0]["problem"] == "row `R1` has no cause"

    nowhere = tmp_path / "none" / "x.json"
    refused = run.invoke(
        app,
        ["import", "windows", "-f", str(_windows(tmp_path)), "--into", str(BUFFER_TANK), "-o", str(nowhere)],
    )
    assert refused.exit_code == 1
    assert "cannot be written: No such file or directory" in refused.output


def _windows(folder: Path) -> Path:
    (folder / "w.csv").write_text(WINDOWS)
    return folder / "w.csv"


# S3: what a second module leaves out or widens counts for all, so assumptions are taken over as they stand.
def test_a_table_becomes_a_module_of_its_own_with_the_variables_it_names(tmp_path: Path) -> None:
    table, module = tmp_path / "ce.csv", tmp_path / "ce.json"
    table.write_text("row,cause,message,not heater\nTAH1,temp >= 36,warm enough,X\n")
    run = CliRunner()
    command = [
        "import",
        "matrix",
        "-f",
        str(table),
        "--into",
        str(BUFFER_TANK),
        "--as",
        "ce",
        "-o",
        str(module),
    ]
    done = run.invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "module `ce` revision 1; variables of buffer-tank.json: temp, heater" in done.output
    made, lender = module_of(module.read_bytes()), tank()
    assert made["variables"] == {name: lender["variables"][name] for name in ("temp", "heater")}  # type: ignore[index]
    assert made["repair"] == {"heater": True}
    assert compile_module(module.read_bytes(), "ce.json", TAGS).id == "ce"

    table.write_text(
        "row,cause,kind,message,not heater\nTAH1,temp >= 36,,warm,X\nLAL1,level <= 1,critical,low,X\n"
    )
    case = {"given": {"temp": "20", "heater": False}, "expect": "permitted"}
    module.write_text(json.dumps(made | {"cases": [case]}))
    said = run.invoke(app, command).output
    assert "`ce` revision 2" in said
    assert "each critical rule needs a case that violates it: `LAL1-1`" in said
    again = module_of(module.read_bytes())
    assert [rule["row"] for rule in again["constraints"]] == ["TAH1", "LAL1"]
    assert list(again["variables"]) == ["level", "temp", "heater"]
    assert again["cases"] == [case]

    shown = {"given": {"temp": "20", "level": "0.9", "heater": True}, "expect": {"violated": ["LAL1-1"]}}
    module.write_text(json.dumps(again | {"cases": [shown]}))
    assert "needs a case" not in run.invoke(app, command).output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("[]", "an object with variables is expected"),
        ("{}", "an object with variables is expected"),
        ('{"variables": {}, "constraints": ["level <= 3"]}', "its constraints are a list of objects"),
        ('{"variables": {}, "revision": "two"}', "its revision is a whole number"),
        ("", "Expecting value"),
    ],
)
@pytest.mark.parametrize("verb", ["import", "export"])
def test_a_file_that_is_no_module_ends_both_verbs_in_a_sentence(
    verb: str, text: str, said: str, tmp_path: Path
) -> None:
    table, module = tmp_path / "ce.csv", tmp_path / "m.json"
    table.write_text(MATRIX)
    module.write_text(text)
    options = ("-f", str(table), "--into", str(module)) if verb == "import" else ("-f", str(module))
    ran = CliRunner().invoke(app, [verb, "matrix", *options])

    assert ran.exit_code == 1
    assert isinstance(ran.exception, SystemExit)
    assert said in ran.stderr
    assert f"`o3ctl schema validate --file {module}` tells more" in ran.stderr
    assert ran.stdout == ""


# A table is read in place of the module: it must not say something else.
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"when": "level >= 3.6"}, "another `when` than"),
        ({"kind": "informational"}, "another `kind` than"),
        ({"message": "other"}, "another `message` than"),
        ({"monitor": True}, "says `monitor`, which a table cannot"),
    ],
)
def test_a_matrix_that_would_say_otherwise_than_its_rules_is_not_exported(
    change: dict[str, object], said: str
) -> None:
    rules = import_matrix(MATRIX.encode(), "m.csv")
    number = next(i for i, rule in enumerate(rules) if rule["id"] == "LALL101-2")
    with pytest.raises(ByHandError, match=said):
        export_matrix([rule | (change if i == number else {}) for i, rule in enumerate(rules)])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"require": "level <= 3.7 - 0.1"}, "no window of one variable"),
        ({"require": "temp <= 3.7"}, "another `variable` than"),
        ({"kind": "informational"}, "another `kind` than"),
    ],
)
def test_windows_that_would_say_otherwise_than_their_rules_are_not_exported(
    change: dict[str, object], said: str, tmp_path: Path
) -> None:
    module = merged(tank(), import_windows(WINDOWS.encode(), "w.csv", tank()), "")
    for rule in module["constraints"]:
        if rule["id"] == "W1-high":
            rule.update(change)
    file = tmp_path / "tank.json"
    file.write_text(json.dumps(module))
    done = CliRunner().invoke(app, ["export", "windows", "--file", str(file), "--output", f"{file}.csv"])
    assert done.exit_code == 1
    assert said in done.output
    assert not Path(f"{file}.csv").exists()
