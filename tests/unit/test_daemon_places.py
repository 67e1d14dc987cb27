"""A model that does not run where it should is an alarm that a person sees, at a start and later."""

from __future__ import annotations

from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from gateway.daemon.places import Places
from gateway.inference.client.place import CPU, CUDA, Place


class Rig:
    """One model whose place moves."""

    def __init__(self, place: Place | None) -> None:
        self.place = place
        self.alarms: list[dict[str, Any]] = []
        self.places = Places({"tank": lambda: self.place}, cast("Any", self._raise))

    def _raise(self, source: str, **facts: Any) -> None:  # noqa: ANN401  # an alarm's facts
        self.alarms.append({"source": source, **facts})

    def moves(self, place: Place | None) -> None:
        self.place = place
        self.places.tell()


@pytest.mark.parametrize(
    "place",
    [
        Place("cpu", CPU, CPU),
        Place("auto", CPU, CPU),
        Place("auto", CUDA, CUDA),
        Place("cuda:1", CUDA, CUDA),
        None,  # no worker yet
    ],
)
def test_who_runs_where_asked_is_no_alarm(place: Place | None) -> None:
    rig = Rig(place)
    with capture_logs() as logs:
        rig.places.tell()

    assert (rig.alarms, rig.places.health(), logs) == ([], [], [])


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (Place("cuda:0", CUDA, CPU), f"`cuda:0` was asked for and the model runs on {CPU}"),
        (Place("cuda:0", CPU, CPU), f"`cuda:0` was asked for and the model runs on {CPU}"),
        (Place("auto", CUDA, CPU), f"a CUDA device is there, and the model runs on {CPU}"),
    ],
)
def test_a_fall_back_is_an_alarm_a_part_that_is_not_well_and_one_warning(place: Place, said: str) -> None:
    rig = Rig(place)
    with capture_logs() as logs:
        rig.places.tell()
        rig.places.tell()
        rig.moves(None)  # its worker is being replaced
        rig.moves(place)

    (alarm,) = rig.alarms
    assert (alarm["source"], alarm["active"], alarm["acknowledged"]) == ("provider:tank", True, False)
    assert alarm["cause"] == said
    assert "o3ctl model load" in alarm["action"]
    (part,) = rig.places.health()
    assert (part.part, part.ok, part.text) == ("provider of tank", False, said)
    (warning,) = logs
    assert (warning["event"], warning["log_level"], warning["problem"]) == (
        "model_fell_back",
        "warning",
        said,
    )


def test_a_device_that_went_away_at_run_time_is_missed_under_auto_and_the_alarm_ends_when_it_is_back() -> (
    None
):
    rig = Rig(Place("auto", CUDA, CUDA))
    rig.places.tell()
    assert rig.alarms == []

    rig.moves(Place("auto", CPU, CPU))
    rig.moves(Place("auto", CUDA, CUDA))

    gone, back = rig.alarms
    assert gone["cause"] == f"it ran on {CUDA}, and runs on {CPU} now"
    assert (back["active"], back["acknowledged"]) == (False, False)
    assert back["cause"].startswith("over: it ran on")
    assert rig.places.health() == []
