"""`o3ctl backtest`: what a module would newly have refused or permitted of an audit log's decisions."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli.main import app
from gateway.core.decision import Counterexample, Refused, Rejected, Repaired, Undetermined, Violated
from gateway.core.errors import StorageError
from gateway.storage import chain
from gateway.storage.recorded import RecordedDecisions, Wanted
from tests.unit.backtest_log import START_NS, record, write_log
from tests.unit.solver_demo import BUFFER_TANK, LOWER_LEVEL, Situation, proposal

EVER = "5200w"
BROKEN = Counterexample(
    module="buffer-tank", constraint="pump-ramp", margin=Fraction(-5), assignment={}, text=""
)


def run(*arguments: str | Path) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["backtest", *map(str, arguments)])
    return found.exit_code, found.output


def judged(folder: Path, module: Path, *more: str | Path) -> dict[str, Any]:
    status, said = run(module, "--since", EVER, "--state-dir", folder, "--json", *more)
    assert status == 0, said
    found: dict[str, Any] = json.loads(said)
    return found


def changed(folder: Path, *texts: tuple[str, str]) -> Path:
    """The demo's module with other words, as a file."""
    text = BUFFER_TANK.read_text()
    for old, new in texts:
        assert old in text, old
        text = text.replace(old, new)
    path = folder / "buffer-tank.json"
    path.write_text(text)
    return path


TIGHTER = (
    ("abs(rate(pump)) <= 10", "abs(rate(pump)) <= 4"),
    ('"pump": "50.1"', '"pump": "44.1"'),
    ('"pump": "50", "heater"', '"pump": "44", "heater"'),
    ('{"pump": "35",', '{"pump": "38",'),
    ('{"pump": "20",', '{"pump": "12",'),
)
LOOSER = (("abs(rate(pump)) <= 10", "abs(rate(pump)) <= 20"), ('"pump": "50.1"', '"pump": "60.1"'))


def steady(count: int) -> list[Any]:
    return [record(n, Situation(level=2.0, pump="40"), proposal("45")) for n in range(count)]


def refused(number: int, module: str) -> Any:  # noqa: ANN401  a record
    """A decision refused for the ramp of some module."""
    found = record(number, Situation(pump="40"), proposal("55"), Refused(BROKEN))
    finding = Violated(module, "pump-ramp", "standard", Fraction(-5), {})
    assert found.examined is not None
    result = replace(found.examined.result, findings=(finding,))
    return replace(found, findings=(finding,), examined=replace(found.examined, result=result))


def test_a_tighter_module_newly_refuses_with_the_constraint_an_example_and_its_values(tmp_path: Path) -> None:
    write_log(tmp_path / "audit.sqlite", steady(5))
    found = judged(tmp_path, changed(tmp_path, *TIGHTER))
    assert found["kinds"]["newly_refused"] == 5
    row = found["constraints"][0]
    assert (row["id"], row["newly_refused"], row["least_margin"]) == ("pump-ramp", 5, -1.0)
    example = row["examples"][0]
    assert example["decision"] == "d-0"
    assert example["at_ns"] == START_NS
    assert (example["margin"], example["judged"]) == ("-1", "let out")
    assert example["values"]["TK1.P101.SP"] == "45"
    assert example["values"]["TK1.LT101"].startswith("2")
    status, said = run(
        tmp_path / "buffer-tank.json", "--since", EVER, "--state-dir", tmp_path, "--plot", "terminal"
    )
    assert status == 0
    assert "pump-ramp misses its limit by 1" in said
    assert "without Z3" in said
    assert "margins of pump-ramp" in said


def test_the_module_in_force_newly_refuses_and_permits_nothing(tmp_path: Path) -> None:
    write_log(tmp_path / "audit.sqlite", [*steady(3), refused(3, "buffer-tank")])
    kinds = judged(tmp_path, BUFFER_TANK)["kinds"]
    assert (kinds["newly_refused"], kinds["newly_permitted"], kinds["not_shown"]) == (0, 0, 0)
    assert (kinds["still_permitted"], kinds["still_refused"]) == (3, 1)


def test_a_looser_module_newly_permits_only_what_no_other_module_refused(tmp_path: Path) -> None:
    write_log(tmp_path / "audit.sqlite", [refused(0, "buffer-tank"), refused(1, "another")])
    found = judged(tmp_path, changed(tmp_path, *LOOSER))
    assert found["kinds"]["newly_permitted"] == 1
    assert found["kinds"]["still_refused"] == 1
    assert [e["decision"] for e in found["newly_permitted"]] == ["d-0"]


def test_of_a_repaired_decision_both_what_was_let_out_and_what_was_proposed_are_judged(
    tmp_path: Path,
) -> None:
    let_out = proposal("50").values
    write_log(
        tmp_path / "audit.sqlite",
        [record(0, Situation(pump="40"), proposal("55"), Repaired(let_out, BROKEN))],
    )
    kinds = judged(tmp_path, BUFFER_TANK)["kinds"]
    assert (kinds["still_permitted"], kinds["still_refused"]) == (1, 1)


def test_what_cannot_be_judged_is_counted_with_its_reason_and_never_as_permitted(tmp_path: Path) -> None:
    bare = replace(record(2, Situation(), proposal()), examined=None)
    outside = record(5, Situation(level=4.995), proposal())
    records = [
        record(0, Situation(), proposal(), Undetermined("late")),
        replace(bare, outcome=Rejected("full"), proposal=None),
        replace(bare, id=bare.id.__class__("d-3")),
        record(4, Situation(), proposal(), what_if=True),
        outside,
    ]
    write_log(tmp_path / "audit.sqlite", records)
    found = judged(tmp_path, BUFFER_TANK)
    assert found["decisions"] == 5
    assert found["judged"] == 0
    assert not any(found["kinds"].values())
    assert set(found["cannot"].values()) == {1}
    said = " / ".join(found["cannot"])
    for words in ("undetermined", "rejected", "what was examined", "what-if", "inside its range"):
        assert words in said


def test_a_record_that_cannot_be_read_is_counted_and_the_rest_is_judged(tmp_path: Path) -> None:
    log = write_log(tmp_path / "audit.sqlite", steady(2))
    rows = [chain.row("decision", {"id": "d-9", "point": 3}, decision="d-9", point="tank")]
    with contextlib.closing(chain.open_for_appending(log, 250)) as connection:
        assert not any(chain.append_rows(connection, rows))
    found = judged(tmp_path, BUFFER_TANK)
    assert found["cannot"] == {"its record cannot be read": 1}
    assert found["kinds"]["still_permitted"] == 2


def test_a_module_that_reads_a_tag_the_records_lack_judges_none_of_them(tmp_path: Path) -> None:
    write_log(tmp_path / "audit.sqlite", steady(2))
    found = judged(tmp_path, changed(tmp_path, ("TK1.TT101", "TK1.TT999")))
    assert found["cannot"] == {"`TK1.TT999` has no value": 2}
    assert found["judged"] == 0


def test_since_point_and_against_choose_what_is_judged(tmp_path: Path) -> None:
    other = [record(n, Situation(), proposal("45"), point="other") for n in range(3, 5)]
    write_log(tmp_path / "audit.sqlite", [*steady(3), *other])
    assert judged(tmp_path, BUFFER_TANK, "--point", "other")["decisions"] == 2
    assert judged(tmp_path, LOWER_LEVEL, "--against", BUFFER_TANK)["against"] == ["buffer-tank"]
    log = RecordedDecisions(tmp_path / "audit.sqlite")
    first, last = log.since(START_NS + 2 * 1_000_000_000)
    batch = log.batch(first, last, None, Wanted(measured=(), actions=(), carried=()))
    assert batch.ids == ["d-2", "d-3", "d-4"]
    log.close()


# Judged with only some of the rules, a proposal may be called permitted that the others refuse.
def test_against_a_folder_with_a_link_to_nowhere_judges_nothing_and_says_why(tmp_path: Path) -> None:
    write_log(tmp_path / "audit.sqlite", steady(3))
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "tank.json").symlink_to(BUFFER_TANK)
    assert judged(tmp_path, LOWER_LEVEL, "--against", rules)["against"] == ["buffer-tank"]
    (rules / "gone.json").symlink_to(tmp_path / "nowhere.json")

    status, said = run(LOWER_LEVEL, "--since", EVER, "--state-dir", tmp_path, "--against", rules)

    assert status == 1
    assert said.splitlines() == [
        f"{rules}/gone.json: it is a link to `{tmp_path}/nowhere.json`, where nothing is",
        "nothing is judged with only some of the rules: mend these or take them out",
    ]


def test_several_processes_count_as_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(tmp_path / "audit.sqlite", steady(12))
    alone = judged(tmp_path, changed(tmp_path, *TIGHTER), "--jobs", "1")
    monkeypatch.setattr("gateway.cli.backtest.backtesting._ROWS", 5)
    together = judged(tmp_path, tmp_path / "buffer-tank.json", "--jobs", "2")
    for report in (alone, together):
        del report["took_s"], report["since_ns"]
    assert together == alone


def test_a_png_is_drawn_and_wrong_words_are_usage_errors(tmp_path: Path) -> None:
    write_log(tmp_path / "audit.sqlite", steady(4))
    picture = tmp_path / "plot.png"
    status, _ = run(changed(tmp_path, *TIGHTER), "--since", EVER, "--state-dir", tmp_path, "--plot", picture)
    assert status == 0
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert run(BUFFER_TANK, "--since", "a month")[0] == 2
    assert run(BUFFER_TANK, "--plot", "x.svg")[0] == 2


def test_a_log_that_is_not_there_or_a_module_with_a_fault_ends_in_a_sentence(tmp_path: Path) -> None:
    status, said = run(BUFFER_TANK, "--state-dir", tmp_path / "audit.sqlite")
    assert status == 1
    assert "there is no audit log" in said
    write_log(tmp_path / "audit.sqlite", steady(1))
    broken = tmp_path / "broken.json"
    broken.write_text(BUFFER_TANK.read_text().replace('level <= 3.6"', 'levle <= 3.6"'))
    status, said = run(broken, "--since", EVER, "--state-dir", tmp_path)
    assert status == 1
    assert "levle" in said
    with pytest.raises(StorageError, match="no audit log"):
        RecordedDecisions(tmp_path / "none.sqlite")


# A mistyped name must not look like a module that changes nothing.
def test_a_back_test_of_no_decision_fails_and_says_where_it_looked(tmp_path: Path) -> None:
    write_log(tmp_path / "audit.sqlite", steady(3))
    for more, of in (("--point", "nosuch"), " of decision point `nosuch`"), (("--since", "1s"), ""):
        status, said = run(BUFFER_TANK, "--since", EVER, "--state-dir", tmp_path, *more)
        assert status == 1
        assert f"holds no decision{of} of the last" in said
        assert "newly refused" not in said
