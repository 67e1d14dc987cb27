"""`o3ctl identify` on what the real decision path recorded: its own readings, its own history of outputs."""

from __future__ import annotations

import contextlib
import json
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli.main import app
from gateway.core.decision import DecisionRecord
from gateway.plantsim.tank import Measurement, Outputs
from gateway.solver.checking.terms import Budget
from gateway.solver.modules.compile import compile_module
from gateway.solver.rules.ruleset import RuleSet
from gateway.solver.workers.check import Checks
from gateway.storage.chain import append_rows, open_for_appending, row
from gateway.storage.codec import record_to_plain
from tests.bench.simulator import DEMO, POINT, demo, simulate

_MODULE = Path(__file__).parents[2] / "constraints" / "buffer-tank.json"
_STEPS = 1_000


class _Wandering:
    """A pump that is moved every quarter of a minute, whatever it does to the level."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)  # noqa: S311  # reproducible, not a secret
        self._step, self._aim, self._heater, self._mixer = 0, 40.0, False, 1

    def act(self, measurement: Measurement, before: Outputs) -> Outputs:
        if self._step % 15 == 0:
            wanted = 2.222 * measurement.inflow_m3h + 60.0 * (measurement.level_m - 2.0)
            self._aim = min(100.0, max(0.0, wanted + self._dice.uniform(-40.0, 40.0)))
        if self._step % 70 == 0:
            self._heater, self._mixer = self._dice.random() < 0.5, self._dice.choice([1, 2, 3])
        self._step += 1
        pump = min(max(self._aim, before.pump_pct - 9.9), before.pump_pct + 9.9)
        return Outputs(round(pump, 1), self._heater, self._mixer)


@pytest.mark.integration
async def test_decisions_of_the_real_path_show_what_the_pump_and_the_inflow_do(tmp_path: Path) -> None:
    _, definitions = demo()
    rules = RuleSet.of([compile_module(_MODULE.read_bytes(), _MODULE.name, definitions)], 1)
    records: list[DecisionRecord] = []
    patient = Checks(rules, Budget(timeout_ms=10_000))
    await simulate(_Wandering(4), seed=3, steps=_STEPS, check=patient, records=records)
    behind = time.time_ns() - records[-1].received_utc_ns
    stamped = [replace(r, received_utc_ns=r.received_utc_ns + behind) for r in records]
    with contextlib.closing(open_for_appending(tmp_path / "audit.sqlite", 1_000)) as log:
        append_rows(log, [row("decision", record_to_plain(r), decision=r.id, point=r.point) for r in stamped])

    result = CliRunner().invoke(
        app,
        [
            *(
                "identify",
                "--point",
                POINT,
                "--since",
                "1d",
                "--config",
                str(DEMO),
                "--state-dir",
                str(tmp_path),
            ),
            *("--like", str(_MODULE), "--target", "TK1.LT101", "--json"),
        ],
    )

    said = json.loads(result.stdout)
    assert said["ok"], said
    (level,) = said["evidence"]["dynamics"]
    effects = {e["of"]: float(e["value"]) for e in level["effects"]}
    assert effects["inflow"] == pytest.approx(1 / 7200, rel=0.08)
    assert effects["pump"] == pytest.approx(-0.0000625, rel=0.08)
    assert float(level["band"]["low"]) < -0.0005 < 0.0005 < float(level["band"]["high"])
    assert float(level["band"]["high"]) < 0.0015
    # A write reaches the plant between two decisions: its change has a time of its own.
    pump = next(t for t in said["evidence"]["tags"] if t["name"] == "pump")
    assert pump["samples"] > _STEPS + 100
