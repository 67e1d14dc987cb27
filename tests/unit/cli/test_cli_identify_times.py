"""Times of a recording that run to and fro: two hours under the same times are no one plant."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import typer

from gateway.cli.identify import recorded
from gateway.core.tag import TagId
from gateway.solver.identify.identify import Identified, Wish, identified
from gateway.solver.identify.series import Channel, Recording
from gateway.storage.moments import Moment, Reading

LEVEL, PUMP = TagId("TK.LT"), TagId("TK.P")
CHANNELS = (
    Channel(name="level", tag=LEVEL, sort="real", unit="m", action=False, error=Fraction("0.001")),
    Channel(name="pump", tag=PUMP, sort="real", unit="%", action=True),
)


def plant(steps: int) -> list[tuple[float, float]]:
    """Level and pump of a tank, step by step."""
    dice = np.random.default_rng(7)
    level = 2.0
    found: list[tuple[float, float]] = []
    for k in range(steps):
        pump = float(dice.uniform(0, 100)) if k % 20 == 0 else found[-1][1]
        found.append((level, pump))
        level = 0.99 * level + 0.001 * pump - 0.03 + float(dice.uniform(-0.0005, 0.0005))
    return found


def moments(back_s: float) -> Iterator[Moment]:
    """Decisions of 2 000 s, newest first; the clock was set back so far at the middle."""
    rows = [(k - (back_s if k >= 1_000 else 0.0), *row) for k, row in enumerate(plant(2_000))]
    for k in reversed(range(1, len(rows))):
        at, level, pump = rows[k]
        before = rows[k - 1][2]
        entries = ((pump, at),) if before == pump else ((pump, at), (before, at - 1.0))
        yield Moment(
            at=at, readings={LEVEL: Reading(at=at, value=level, good=True)}, in_force={PUMP: entries}
        )


def fitted(recording: Recording) -> Identified:
    found = identified(recording, Wish(step_s=1.0))
    assert isinstance(found, Identified), found
    return found


@pytest.mark.parametrize("back_s", [0.0, 300.0])
def test_decisions_made_before_the_clock_was_set_back_are_not_mixed_with_later_ones(
    back_s: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recorded, "moments", lambda *_: moments(back_s))
    (target,) = fitted(recorded.of_decisions(tmp_path / "audit", "tank", 0, CHANNELS)).targets
    assert target.fit.effect("pump") == pytest.approx(0.001, rel=0.01)
    assert -0.001 < target.band.low < target.band.high < 0.001
    said = capsys.readouterr().err
    assert (said == "") if not back_s else said.startswith("the clock was set back once: what was recorded")


def table(times: list[float], path: Path) -> Path:
    rows = [f"{at},{level},{pump}" for at, (level, pump) in zip(times, plant(len(times)), strict=True)]
    path.write_text("\n".join(["time,TK.LT,TK.P", *rows]))
    return path


def test_a_table_is_read_in_either_order_of_its_times(tmp_path: Path) -> None:
    times = [float(k) for k in range(50)]
    for name, order in (("rising.csv", times), ("falling.csv", times[::-1]), ("still.csv", [3.0, 3.0, 4.0])):
        found = recorded.of_table(table(order, tmp_path / name), None, CHANNELS)
        assert list(found.samples["level"].at) == sorted(set(order))


@pytest.mark.parametrize(
    ("times", "line", "way"),
    [([0, 1, 2, 1.5, 2.5], 5, "back to `1.5`"), ([9, 8, 8, 8.5], 5, "on to `8.5`")],
)
def test_a_table_whose_times_run_to_and_fro_is_refused_with_the_line(
    times: list[float], line: int, way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit):
        recorded.of_table(table(times, tmp_path / "t.csv"), None, CHANNELS)
    assert f"t.csv:{line}:1: the time goes {way}" in capsys.readouterr().err
