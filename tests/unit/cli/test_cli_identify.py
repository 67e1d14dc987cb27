from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gateway.cli.main import app
from tests.unit.identify_plants import Plant, tank
from tests.unit.identify_records import OUTPUTS, TAGS, audited

REPOSITORY = Path(__file__).resolve().parents[3]
DEMO = REPOSITORY / "packaging" / "demo" / "gateway.toml"
LIKE = REPOSITORY / "constraints" / "buffer-tank.json"
_COLUMNS = {**TAGS, **OUTPUTS}


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["identify", *map(str, arguments)])


def _table(
    path: Path, plant: Plant, *, separator: str = ",", stamp: Callable[[int], str] | None = None
) -> Path:
    samples = plant.recording.samples
    lines = [separator.join(["when", *_COLUMNS.values()])]
    for k in range(len(samples["level"].at)):
        at = str(1_800_000_000 + k) if stamp is None else stamp(k)
        lines.append(separator.join([at, *(f"{samples[name].value[k]:.6g}" for name in _COLUMNS)]))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _table(tmp_path_factory.mktemp("tables") / "tank.csv", tank(seed=2))


def test_recorded_decisions_become_a_draft_with_the_tank_s_own_numbers(tmp_path: Path) -> None:
    audited(tmp_path / "audit.sqlite", tank(3_000, 5), time.time_ns(), missing=range(1_000, 1_050))
    draft = tmp_path / "tank.json"

    result = _run(
        *("--point", "buffer-tank", "--since", "1d", "--config", DEMO, "--state-dir", tmp_path),
        *("--like", LIKE, "--leave-out", "TK1.M101.STAGE", "--output", draft),
    )

    assert result.exit_code == 0, result.output
    evidence = json.loads((tmp_path / "tank.evidence.json").read_text())
    level = next(d for d in evidence["dynamics"] if d["variable"] == "level")
    told = {e["of"]: float(e["value"]) for e in level["effects"]}
    assert set(told) == {"inflow", "pump"}
    assert told["inflow"] == pytest.approx(1 / 7200, rel=0.05)
    assert told["pump"] == pytest.approx(-0.0000625, rel=0.05)
    assert evidence["usable_steps"] < 2_951
    assert "1 gaps" in (tmp_path / "tank.evidence.txt").read_text()


def test_a_time_before_which_nothing_counts_is_kept(tmp_path: Path) -> None:
    audited(tmp_path / "audit.sqlite", tank(1_000, 4), time.time_ns() - 3_600_000_000_000)
    asked = ("--point", "buffer-tank", "--config", DEMO, "--state-dir", tmp_path, "--since")

    assert "holds no decision of point `buffer-tank` since then" in _run(*asked, "10min").output
    assert "action `mixer" not in _run(*asked, "2h", "--leave-out", "TK1.M101.STAGE").output


def test_no_gateway_takes_a_draft_and_the_one_problem_is_the_line_to_fill_in(
    tmp_path: Path, table: Path
) -> None:
    draft = tmp_path / "draft.json"
    result = _run("--csv", table, "--like", LIKE, "--output", draft)
    judged = CliRunner().invoke(app, ["schema", "validate", "--file", str(draft), "--json"])

    assert "is a draft and not in force: no gateway takes it while its rule `fill-in` stands" in result.output
    assert judged.exit_code == 1
    (problem,) = json.loads(judged.stdout)["problems"]
    assert "`fill_in_what_must_hold` is not a variable of this module" in problem["problem"]


def test_a_draft_whose_rules_a_person_put_in_validates_and_is_analyzed(tmp_path: Path, table: Path) -> None:
    path = tmp_path / "draft.json"
    _run("--csv", table, "--like", LIKE, "--output", path)
    module = json.loads(path.read_text())
    module["constraints"] = [
        {"id": "no-overflow", "kind": "critical", "require": "level <= 3.6", "always": True},
    ]
    at_rest = dict.fromkeys(("level", "inflow", "temp", "pump"), "20") | {"heater": False}
    module["cases"] = [
        {"given": at_rest | {"level": level}, "expect": expect}
        for level, expect in (("3.7", {"violated": ["no-overflow"]}), ("3.6", "permitted"))
    ]
    module["backup"] = [{"pump": "ramp(100, 10)"}, {"heater": False}]
    path.write_text(json.dumps(module))

    judged = CliRunner().invoke(app, ["schema", "validate", "--file", str(path)])
    analyzed = CliRunner().invoke(app, ["analyze", str(path), "--json", "--budget", "20"])

    assert judged.exit_code == 0, judged.output
    report = json.loads(analyzed.stdout)
    assert any("level" in json.dumps(f) for f in report["findings"])


def test_numbers_are_exact_decimal_texts_and_declarations_come_from_the_module_that_is_alike(
    table: Path,
) -> None:
    said = json.loads(_run("--csv", table, "--like", LIKE, "--json").stdout)

    assert said["ok"]
    assert said["files"] == []
    level = said["draft"]["variables"]["level"]
    assert level["error"] == "0.01"
    assert level["range"] == ["-0.1", "5"]
    assert said["draft"]["variables"]["pump"]["role"] == "action"
    assert said["draft"]["variables"]["inflow"]["max_rate"].endswith(" m3/h/s")
    ends = said["draft"]["dynamics"]["disturbance"]["level_unexplained"]
    assert all(isinstance(end, str) and "e" not in end for end in ends)
    coverage = said["evidence"]["dynamics"][0]["band"]["coverage"]
    assert [c["steps_ahead"] for c in coverage] == [1, 10, 60]
    assert all(float(c["share"]) > 0.99 for c in coverage)


def test_tags_of_a_table_may_come_from_a_tag_list_and_unstated_errors_are_said_to_be_seen(
    table: Path,
) -> None:
    result = _run(
        "--csv", table, "--tags", DEMO.with_name("tk1.csv"), "--step", "1s", "--target", "TK1.LT101"
    )

    assert result.exit_code == 0, result.output
    assert "lt101(next) = lt101 + " in result.output
    assert "(seen)" in result.output
    stated = _run(
        *("--csv", table, "--tags", DEMO.with_name("tk1.csv"), "--step", "1s", "--json"),
        *("--target", "TK1.LT101", "--error", "TK1.LT101=0.02"),
    )
    assert json.loads(stated.stdout)["draft"]["variables"]["lt101"]["error"] == "0.02"


def test_iso_times_semicolons_and_qualities_are_read(tmp_path: Path) -> None:
    path = _table(
        tmp_path / "2026 März.csv",
        tank(seed=2),
        separator=";",
        stamp=lambda k: f"2026-05-04T{7 + k // 3600:02}:{k // 60 % 60:02}:{k % 60:02}+00:00",
    )
    lines = path.read_text().splitlines()
    lines[0] += ";TK1.LT101.quality"
    lines[1:] = [
        line + (";BadSensorFailure" if 100 <= k < 120 else ";Good") for k, line in enumerate(lines[1:])
    ]
    path.write_text("\n".join(lines))

    result = _run("--csv", path, "--like", LIKE, "--target", "TK1.LT101")

    assert result.exit_code == 0, result.output
    assert '"id": "m-2026-M-rz"' in result.output
    assert "`level`: 20 samples not Good, 0 no numbers and 1 gaps were left out" in result.output


def test_a_plot_is_drawn(tmp_path: Path, table: Path) -> None:
    picture = tmp_path / "residuals.png"

    result = _run("--csv", table, "--like", LIKE, "--plot", picture)

    assert result.exit_code == 0, result.output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_draft_never_goes_into_the_watched_folder_nor_over_a_file(tmp_path: Path, table: Path) -> None:
    there = tmp_path / "there.json"
    there.write_text("{}")
    config = tmp_path / "gateway.toml"
    config.write_text(DEMO.read_text())
    for name in ("tk1.csv", "binding.csv"):
        (tmp_path / name).write_text(DEMO.with_name(name).read_text())
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "engineer.hash").write_text("x")
    (tmp_path / "constraints.d").mkdir()

    over = _run("--csv", table, "--like", LIKE, "--output", there)
    watched = _run(
        *(
            "--csv",
            table,
            "--config",
            config,
            "--like",
            LIKE,
            "--output",
            tmp_path / "constraints.d" / "m.json",
        )
    )

    assert over.exit_code == watched.exit_code == 1
    assert "is there already" in over.output
    assert there.read_text() == "{}"
    assert "is the watched folder, and a draft has no business there" in watched.output
    assert list((tmp_path / "constraints.d").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--since", "soon"], "`soon` of --since is no time; write 30d, 12h, 5min or 1s"),
        (["--step", "0s"], "`0s` of --step is no time"),
        (["--error", "level=0.1"], "`level` of --error is none of the tags"),
        (["--error", "TK1.LT101=-1"], "with a value above 0"),
        (["--error", "TK1.LT101=x"], "`x` is not a decimal number"),
        (["--target", "TK1.NONE"], "`TK1.NONE` of --target is none of the tags"),
        (["--leave-out", "TK1.NONE"], "`TK1.NONE` of --leave-out is none of the tags"),
        (["--time", "noon"], "there is no column `noon`"),
        (
            ["--point", "nowhere", "--config", str(DEMO)],
            "unknown decision point `nowhere`; known: `buffer-tank`",
        ),
        (["--like", str(DEMO)], "is no module"),
    ],
)
def test_wrong_wishes_are_told_in_the_asker_s_words(table: Path, arguments: list[str], said: str) -> None:
    like = [] if "--like" in arguments else ["--like", str(LIKE)]
    result = _run("--csv", table, *like, *arguments)

    assert result.exit_code in {1, 2}
    assert said in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", ":1:1: the table is empty"),
        ("when,TK1.LT101\nlater,1\n", ":1:1: there is no column `TK1.FT101`"),
        ("when,a\n1,2\n", "no column of the table is a known tag"),
    ],
)
def test_a_table_that_cannot_be_read_is_said_with_its_place(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(content)

    wanted = ["--point", "buffer-tank", "--config", str(DEMO)] if "FT101" in said else ["--like", str(LIKE)]
    result = _run("--csv", path, *wanted, "--step", "1s")

    assert result.exit_code == 1
    assert said in result.output


def test_a_cell_that_is_no_number_or_no_time_is_named_by_its_line(tmp_path: Path, table: Path) -> None:
    lines = table.read_text().splitlines()
    number, moment = tmp_path / "number.csv", tmp_path / "moment.csv"
    number.write_text("\n".join([*lines[:5], lines[5].replace(",", ",high,", 1).rsplit(",", 1)[0]]))
    moment.write_text("\n".join([*lines[:4], "noon," + lines[4].split(",", 1)[1]]))

    assert f"{number}:6:1: `high` is no number" in _run("--csv", number, "--like", LIKE).output
    assert f"{moment}:5:1: `noon` is no time" in _run("--csv", moment, "--like", LIKE).output


def test_what_cannot_be_identified_is_status_1_with_the_sentences_and_no_file(
    tmp_path: Path, table: Path
) -> None:
    lines = table.read_text().splitlines()
    short = tmp_path / "short.csv"
    short.write_text("\n".join(lines[:200]))
    draft = tmp_path / "draft.json"

    people = _run("--csv", short, "--like", LIKE, "--output", draft)
    programs = _run("--csv", short, "--like", LIKE, "--json")

    assert people.exit_code == programs.exit_code == 1
    assert "too little data: 198 of 199 steps have every tag known; 600 are needed" in people.output
    assert "no draft is written" in people.output
    assert not draft.exists()
    assert json.loads(programs.stdout)["ok"] is False


def test_without_tags_configuration_or_module_a_table_s_tags_are_asked_for(table: Path) -> None:
    result = _run("--csv", table)

    assert result.exit_code == 1
    assert (
        "a table does not say what its tags are; name --config, --tags CSV or --like M.json" in result.output
    )
