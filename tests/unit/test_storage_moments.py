from __future__ import annotations

import time
from pathlib import Path

import pytest

from gateway.core.decision import PointId
from gateway.core.errors import StorageError
from gateway.core.tag import TagId
from gateway.storage.chain import append_rows, open_for_appending, row
from gateway.storage.codec import record_to_plain
from gateway.storage.moments import moments
from tests.unit.identify_plants import tank
from tests.unit.identify_records import POINT, WRITE_DELAY_S, audited
from tests.unit.test_storage_codec import a_record

_NOW = 1_800_000_000_000_000_000
_PUMP = TagId("TK1.P101.SP")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("state") / "audit.sqlite"
    audited(path, tank(1_000, 4), _NOW)
    return path


def test_readings_come_back_newest_first_at_the_time_their_source_confirmed_them(log: Path) -> None:
    found = list(moments(log, POINT, 0))

    assert len(found) == 1_000
    newest, level = found[0], tank(1_000, 4).recording.samples["level"].value
    assert newest.at == pytest.approx(_NOW / 1e9)
    assert newest.readings[TagId("TK1.LT101")].value == level[-1]
    assert newest.readings[TagId("TK1.LT101")].at == pytest.approx(newest.at - 0.02)
    assert found[-1].readings[TagId("TK1.LT101")].value == level[0]


def test_a_value_in_force_comes_with_when_the_one_before_it_ceased(log: Path) -> None:
    pump = tank(1_000, 4).recording.samples["pump"].value
    moved = next(k for k in range(999, 2, -1) if pump[k - 1] != pump[k - 2])
    moment = list(moments(log, POINT, 0))[999 - moved]

    (now, still), (before, ceased) = moment.in_force[_PUMP]
    assert (now, before) == (pump[moved - 1], pump[moved - 2])
    assert still == moment.at
    assert ceased == pytest.approx(moment.at - 1.0 + WRITE_DELAY_S)


def test_older_decisions_and_other_points_are_left_out(log: Path) -> None:
    assert len(list(moments(log, POINT, _NOW - 99_000_000_000))) == 100
    assert list(moments(log, PointId("another"), 0)) == []


def test_a_decision_on_inputs_of_the_asker_is_no_record_of_the_plant(tmp_path: Path) -> None:
    path = tmp_path / "audit.sqlite"
    connection = open_for_appending(path, 1_000)
    record = a_record(what_if=True, received_utc_ns=time.time_ns())
    append_rows(
        connection, [row("decision", record_to_plain(record), decision=record.id, point=record.point)]
    )
    connection.close()

    assert list(moments(path, record.point, 0)) == []


def test_no_file_and_a_file_that_is_none_are_said(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="there is no audit log"):
        list(moments(tmp_path / "audit.sqlite", POINT, 0))
    (tmp_path / "audit.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(StorageError, match="cannot be read"):
        list(moments(tmp_path / "audit.sqlite", POINT, 0))
