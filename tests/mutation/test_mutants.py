"""Mistakes where a proof, a write (S17), what modules assume together (S3), the monitor (S16), still outputs
(S12) or arming again (S23) would suffer are noticed by the tests.

A few in every run, all by night.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.mutator import mutants
from tests.mutation.spared import SPARED

ROOT = Path(__file__).parents[2]
UNIT, PROPERTY, INTEGRATION = (
    "tests/unit/test_solver_",
    "tests/property/test_solver_",
    "tests/integration/test_solver_",
)
REARMING = "tests/unit/test_daemon_rearming.py"
CARRIED = "tests/unit/test_carrying_over_a_change.py"


def pipeline(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/unit/test_pipeline_{name}.py" for name in names)


def solver(*names: str) -> tuple[str, ...]:
    return tuple(f"{UNIT}{name}.py" for name in names)


TESTS = {
    "solver/language/parse": (f"{UNIT}parsing.py", f"{UNIT}language.py", f"{UNIT}typing.py"),
    "solver/checking/condense": solver("plan", "course", "rules", "states", "shelf", "check"),
    "solver/checking/terms": (
        f"{UNIT}terms.py",
        f"{UNIT}language.py",
        f"{PROPERTY}hull.py",
        f"{UNIT}plan.py",
        f"{INTEGRATION}pool_bounds.py",
    ),
    "solver/checking/restrain": solver("restrain", "repair"),
    "solver/checking/motion": solver("motion", "readings_apart"),
    "solver/checking/together": solver("together"),
    "solver/monitor/envelope": solver("between"),
    "solver/monitor/readings": solver("moments"),
    "solver/monitor/residuals": solver("monitor", "residuals"),
    "solver/rules/joining": solver("joining"),
    "solver/rules/around": solver("around"),
    "solver/rules/standing": (CARRIED,),
    "pipeline/gate": pipeline("gate"),
    "pipeline/proved": pipeline("proved"),
    "pipeline/writer": (
        *pipeline("writer", "decide", "lane", "shortlist", "overrides", "restraint"),
        "tests/unit/test_daemon_readback.py",
    ),
    "pipeline/decide": (
        *pipeline(
            "decide",
            "fallback",
            "timings",
            "lane",
            "shortlist",
            "guided",
            "overrides",
            "restraint",
            "confidence",
        ),
        *pipeline("rearm", "in_sight", "writer"),
        CARRIED,
        "tests/unit/test_daemon_asks.py",
    ),
    "pipeline/rules": (*pipeline("rules", "decide", "overrides", "rearm"), CARRIED),
    "pipeline/working": (*pipeline("decide", "lane"), "tests/unit/test_daemon_asks.py"),
    "pipeline/repairs": pipeline("repairs", "restraint", "shortlist"),
    "pipeline/rearm": (*pipeline("rearm"), REARMING),
    "daemon/rearming": (REARMING, "tests/unit/test_daemon_takeover.py"),
    "daemon/modes": (
        *(f"tests/unit/test_daemon_{n}.py" for n in ("arming", "resuming")),
        REARMING,
        "tests/unit/test_daemon_modes.py",
    ),
}
# One of each kind that a proof, or a start (S23), would suffer from most.
TELLING = {
    "solver/language/parse": ('if word == "or" else self._negated()', 'if self._is("implies")'),
    "solver/checking/condense": ("return not old and time >= delay", "if segment.mixed"),
    "solver/checking/terms": ("Z3_mk_lt if strict", "if low == high"),
    "pipeline/rearm": ("limit is not None and",),
    "daemon/rearming": ("if now - since <", "if not working.remote", "if tag in point.settings.inputs"),
}


def tried(file: str, tests: tuple[str, ...], *only: str) -> dict[str, Any]:
    """What `python -m tests.mutation` says."""
    named = ["--quick"] if only else []
    named += [part for words in only for part in ("--only", words)]
    command = [sys.executable, "-m", "tests.mutation", f"gateway/{file}.py", *tests, *named]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603  # ours
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_mutator_makes_every_kind_of_mistake_and_each_is_another_program() -> None:
    source = (
        'def f(a: "int", b=-1):\n'
        '    """A sentence."""\n'
        '    log.info("said", number=1)\n'
        "    if a < b and not b:\n"
        "        raise ValueError(a + 1)\n"
        "    told = f'`{a}` {a:g} is here'\n"
        '    return a * 2 if a in (True, "x") else g("two words")\n'
    )
    found = list(mutants(source))

    assert Counter(m.change for m in found) == Counter(
        [
            "USub -> UAdd", "1 -> 2", "condition turned round", "And -> Or", "Lt -> LtE", "not left out",
            "branches swapped", "In -> NotIn", "Mult -> Add", "2 -> 3", "True -> False", "'x' -> 'x~'",
        ]
    )  # fmt: skip
    assert len({compile(m.tree, "f", "exec").co_consts for m in found}) == len(found)
    assert [m.name for m in found] == [m.name for m in mutants(source)]


@pytest.mark.integration  # only for its length
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("file", TELLING)
def test_the_mistakes_that_would_do_the_most_harm_are_noticed(file: str) -> None:
    found = tried(file, TESTS[file], *TELLING[file])

    assert found["mutants"] >= len(TELLING[file])
    assert found["survivors"] == []


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("file", TESTS)
def test_every_mistake_is_noticed_but_those_that_change_nothing(file: str) -> None:
    found = tried(file, TESTS[file])

    assert found["mutants"] > 2
    assert set(found["survivors"]) <= set(SPARED.get(file, ()))
