"""`o3ctl model golden`: another machine is told by its answers, and by what the checker says of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from gateway.cli.main import app
from gateway.cli.model.golden_verdicts import Judge
from gateway.inference.bundle.manifest import GOLDEN_FILE, load_bundle
from gateway.inference.golden import Golden, GoldenCycle, Replay, read_golden
from gateway.inference.seal import seal
from tests.unit.inference_demo import BUNDLES, RECKLESS

ROOT = Path(__file__).parents[3]
TANK = ROOT / "constraints" / "buffer-tank.json"
RULES = {
    "buffer-tank": TANK,
    "buffer-tank-hop": TANK,
    "reckless": TANK,
    "two-heater": ROOT / "constraints" / "tclab-twin.json",
    "four-tank": ROOT / "docs" / "examples" / "quadruple-tank.json",
}


def run(*arguments: str) -> tuple[int, str, str]:
    ran = CliRunner().invoke(app, ["model", "golden", *arguments])
    return ran.exit_code, ran.stdout, " ".join(ran.stderr.split())


@pytest.fixture
def copied(tmp_path: Path) -> Callable[..., Path]:
    def copy(change: Callable[[Golden], Golden] = lambda golden: golden) -> Path:
        """`reckless` with twelve questions and whatever else is changed."""
        folder = Path(shutil.copytree(RECKLESS, tmp_path / "reckless"))
        golden = read_golden(load_bundle(folder))
        short = msgspec.structs.replace(golden, runs=(golden.runs[0][:12],))
        (folder / GOLDEN_FILE).write_bytes(msgspec.json.encode(change(short)))
        seal(folder)
        return folder

    return copy


def each(golden: Golden, change: Callable[[GoldenCycle], GoldenCycle]) -> Golden:
    return msgspec.structs.replace(
        golden, runs=tuple(tuple(change(c) if c.counts else c for c in run) for run in golden.runs)
    )


def test_every_shipped_bundle_is_told_with_its_rules() -> None:
    assert RULES.keys() == {path.parent.name for path in BUNDLES.glob("*/bundle.json")}


@pytest.mark.parametrize("name", sorted(RULES))
def test_this_machine_gives_the_golden_answers_and_the_same_verdicts(name: str) -> None:
    status, out, _ = run(str(BUNDLES / name), "--rules", str(RULES[name]), "--json")
    told = json.loads(out)

    assert status == 0
    assert told["same"]
    assert told["verdicts"] == told["answers"] >= 100
    assert told["other_counts"] == told["other_verdicts"] == 0


def test_what_ignores_every_limit_is_hardly_ever_permitted() -> None:
    golden = read_golden(load_bundle(RECKLESS))
    verdicts = [cycle.verdict for run in golden.runs for cycle in run if cycle.counts]

    assert verdicts.count("permitted") == 0
    assert verdicts.count("refused") > 0.9 * len(verdicts)


def test_another_verdict_is_another_machine(copied: Callable[..., Path]) -> None:
    def permitted(golden: Golden) -> Golden:
        return each(golden, lambda cycle: msgspec.structs.replace(cycle, verdict="permitted", repaired=()))

    status, out, _ = run(str(copied(permitted)), "--rules", str(TANK))

    assert status == 1
    assert "0 with other counts" in out
    assert "verdicts, 0 other" not in out
    assert "not the same machine for this model" in out


def test_verdicts_are_written_sealed_and_found_again(copied: Callable[..., Path]) -> None:
    bare = copied(
        lambda golden: msgspec.structs.replace(
            each(golden, lambda cycle: msgspec.structs.replace(cycle, verdict="", repaired=())), rules=None
        )
    )
    before = load_bundle(bare).digest

    status, out, _ = run(str(bare), "--rules", str(TANK), "--write")

    assert status == 0
    assert "refused" in out
    assert load_bundle(bare).digest != before
    shipped, written = read_golden(load_bundle(RECKLESS)), read_golden(load_bundle(bare))
    assert written.rules == shipped.rules
    assert written.runs[0] == shipped.runs[0][:12]
    assert run(str(bare), "--rules", str(TANK))[0] == 0
    told = json.loads(run(str(bare), "--rules", str(TANK), "--write", "--json")[1])
    assert told["digest"] == load_bundle(bare).digest
    assert sum(told["verdicts"].values()) == sum(bool(cycle.counts) for cycle in written.runs[0])


def test_without_rules_only_answers_are_compared_and_that_is_said(copied: Callable[..., Path]) -> None:
    status, out, _ = run(str(copied()))

    assert status == 0
    assert "verdicts not compared: name the files of `buffer-tank` with --rules" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--write",), "verdicts are given under modules: name them with --rules"),
        (("--rules", str(ROOT / "docs/examples/lower-level-limit.json")), "its verdicts were given under"),
        (("--rules", str(ROOT / "constraints/pump-station.json")), "which the modules ask for"),
        (("--rules", str(ROOT / "docs/examples/gateway.toml")), "gateway.toml:1:1:"),
        (("--rules", "nowhere.json"), "cannot be read"),
    ],
)
def test_rules_that_are_not_the_bundles_are_refused(
    arguments: tuple[str, ...], says: str, copied: Callable[..., Path]
) -> None:
    status, _, err = run(str(copied()), *arguments)

    assert status != 0
    assert says in err


def test_verdicts_of_other_answers_are_not_written(copied: Callable[..., Path]) -> None:
    def off(golden: Golden) -> Golden:
        return each(golden, lambda c: msgspec.structs.replace(c, counts=(c.counts[0] + 1, *c.counts[1:])))

    folder = copied(off)
    before = (folder / GOLDEN_FILE).read_bytes()

    status, _, err = run(str(folder), "--rules", str(TANK), "--write")

    assert status == 1
    assert "this machine gives other answers" in err
    assert (folder / GOLDEN_FILE).read_bytes() == before


def test_a_heater_that_has_just_been_switched_is_judged_as_such() -> None:
    """An answer's past is that of its run: 30 s after it went on the heater may go off, not before."""
    bundle = load_bundle(BUNDLES / "buffer-tank")
    cold = ("2.000", "12.00", "45.00")
    run = tuple(
        GoldenCycle(cold, ("27", "0" if at < 70 else "1", "1"), (270, 0, 1), (27.0, 0.0, 1.0))
        for at in range(120)
    )
    golden = msgspec.structs.replace(read_golden(bundle), runs=(run,))
    judge = Judge.of(bundle, golden, [TANK])

    told = [judge.verdict(Replay(0, at, run[at], (270, 0, 1), (27.0, 0.0, 1.0)))[0] for at in (75, 95, 105)]

    assert told == ["repaired", "repaired", "permitted"]
