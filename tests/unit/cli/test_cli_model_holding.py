"""`o3ctl model hold-out`, and what `quantize` and `gate` make of other tools' decoders with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli.main import app
from gateway.inference.bundle.files import BundleError
from gateway.inference.bundle.gate_record import read_gate_record
from gateway.inference.bundle.manifest import load_bundle
from tests.unit.backtest_log import record, write_log
from tests.unit.inference_exports import (
    DECODERS,
    EXPORTS,
    GENAI_LLAMA,
    OPTIMUM_GPT2,
    OPTIMUM_LLAMA,
    REGRESSOR,
)
from tests.unit.solver_demo import Situation, proposal

CYCLES = EXPORTS / "cycles.csv"
SHORT = ("--seeds", "1", "--cycles", "10")
each_decoder = pytest.mark.parametrize("directory", DECODERS, ids=lambda directory: directory.name)


def run(*arguments: str) -> tuple[int, str, str]:
    ran = CliRunner().invoke(app, ["model", *arguments])
    return ran.exit_code, ran.stdout, ran.stderr


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[Path], Path]:
    return lambda directory: Path(shutil.copytree(directory, tmp_path / directory.name))


@each_decoder
def test_the_committed_cycles_are_those_of_the_table(directory: Path, copied: Callable[[Path], Path]) -> None:
    folder = copied(directory)
    (folder / "gate.json").unlink()
    told = json.loads((folder / "bundle.json").read_text())
    del told["files"]["gate.json"]
    (folder / "bundle.json").write_text(json.dumps(told))

    status, out, _ = run("hold-out", str(folder), "--csv", str(CYCLES), "--json")

    assert status == 0
    assert json.loads(out)["cycles"] == 76
    assert json.loads(out)["digest"] == load_bundle(folder).digest
    assert (folder / "gate.json").read_bytes() == (directory / "gate.json").read_bytes()
    first, second = read_gate_record(load_bundle(folder))
    assert len(first) == len(second) == 38
    lines = [line.split(",") for line in CYCLES.read_text().splitlines()]
    assert [float(text) for text in first[0][0]] == [float(text) for text in lines[1][1:4]]
    assert [float(text) for text in first[0][1]] == [
        float(text) for text, name in zip(lines[2], lines[0], strict=True) if name in outputs_of(folder)
    ]


def outputs_of(folder: Path) -> list[str]:
    return [spec.tag for spec in load_bundle(folder).manifest.outputs]


@each_decoder
def test_an_export_is_its_own_twin(directory: Path) -> None:
    status, out, _ = run("gate", str(directory), *SHORT, "--json")

    told = json.loads(out)
    assert status == 0
    assert told["figures"]["relative_l2"] == 0
    assert told["figures"]["objective_over_twin"] == 1


@pytest.mark.parametrize(
    ("directory", "recipe"), [*((one, "fp16") for one in DECODERS), (OPTIMUM_GPT2, "int8")]
)
def test_an_export_is_quantized_and_gated_like_a_model_of_ours(
    directory: Path, recipe: str, tmp_path: Path
) -> None:
    output = str(tmp_path / "m")
    status, out, err = run("quantize", str(directory), "-o", output, "-r", recipe, *SHORT, "--json")

    assert status == 0, err
    assert 0 < json.loads(out)["figures"]["relative_l2"] < 0.02
    again, told, _ = run("gate", output, *SHORT, "--json")
    assert again == 0
    assert json.loads(told)["figures"]["relative_l2"] == json.loads(out)["figures"]["relative_l2"]


@pytest.mark.parametrize("directory", [OPTIMUM_LLAMA, GENAI_LLAMA], ids=lambda directory: directory.name)
def test_random_weights_lose_more_than_8_bits_may_and_are_refused_with_the_figure(
    directory: Path, tmp_path: Path
) -> None:
    status, _, err = run("quantize", str(directory), "-o", str(tmp_path / "m"), "-r", "int8", *SHORT)

    assert status == 1
    assert "relative_l2 is 0.02" in err
    assert "over 0.02" in err
    assert not (tmp_path / "m").exists()


def test_the_newest_cycles_are_kept_and_the_digest_changes(copied: Callable[[Path], Path]) -> None:
    folder = copied(OPTIMUM_LLAMA)
    whole = read_gate_record(load_bundle(folder))

    status, out, _ = run("hold-out", str(folder), "--csv", str(CYCLES), "--most", "40")

    assert status == 0
    assert "40 cycles in 2 runs" in out
    assert read_gate_record(load_bundle(folder)) == [whole[0][-2:], whole[1]]
    assert load_bundle(folder).digest != load_bundle(OPTIMUM_LLAMA).digest


@pytest.mark.parametrize(
    ("arguments", "table", "says"),
    [
        (("--csv", "T"), "time,TK1.LT101\n0,1\n1,2\n", "there is no column `TK1.FT101`"),
        (("--csv", "T"), "", "the table is empty"),
        (("--csv", "T", "--point", "tank"), "", "name one source"),
        ((), "", "name one source"),
        (("--point", "tank", "--state-dir", "nowhere"), "", "nowhere"),
    ],
)
def test_what_gives_no_cycles_is_refused_and_the_bundle_stays(
    arguments: tuple[str, ...], table: str, says: str, copied: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder = copied(OPTIMUM_LLAMA)
    (tmp_path / "T").write_text(table)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    status, _, err = run("hold-out", str(folder), *(str(tmp_path / a) if a == "T" else a for a in arguments))

    assert status != 0
    assert says in " ".join(err.split())
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_cycles_that_no_tag_shares_are_none(copied: Callable[[Path], Path], tmp_path: Path) -> None:
    head, *rows = CYCLES.read_text().splitlines()
    lone = [rows[at] if at % 4 == 0 else rows[at].split(",")[0] + "," * head.count(",") for at in range(60)]
    (tmp_path / "t.csv").write_text("\n".join([head, *lone]))

    status, _, err = run("hold-out", str(copied(OPTIMUM_LLAMA)), "--csv", str(tmp_path / "t.csv"))

    assert status == 1
    assert "recorded every 4 s" in err


def test_a_stateless_model_is_told_why_it_has_none_of_this() -> None:
    for verb in (("hold-out", str(REGRESSOR), "--csv", str(CYCLES)), ("gate", str(REGRESSOR))):
        status, _, err = run(*verb)

        assert status == 1
        assert "it is a stateless model, and these tools are for decoders" in err
        assert "make a stateless model smaller where it is exported" in err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'[[[["1"],["1","0"]]]]', "a cycle of 1 and 2 values, the bundle 3 inputs"),
        (b'[[[["1","2","x"],["1","0","1"]]]]', "`x` is no decimal"),
        (b"[]", "has no cycles"),
        (b"{}", "is no record of held-out cycles"),
    ],
)
def test_a_record_that_is_none_of_this_bundle_is_refused(
    content: bytes, says: str, copied: Callable[[Path], Path]
) -> None:
    folder = copied(OPTIMUM_LLAMA)
    (folder / "gate.json").write_bytes(content)
    bundle = load_bundle(OPTIMUM_LLAMA)

    with pytest.raises(BundleError, match=says):
        read_gate_record(type(bundle)(folder, bundle.manifest, bundle.digest))


def test_what_the_gateways_own_decisions_saw_becomes_cycles(
    copied: Callable[[Path], Path], tmp_path: Path
) -> None:
    pumps = [round(20 + 0.5 * at, 1) for at in range(30)]
    situations = [Situation(level=2.0 + 0.01 * at, pump=str(pump)) for at, pump in enumerate(pumps)]
    made = [
        record(number, situation, proposal(situation.pump)) for number, situation in enumerate(situations)
    ]
    log = write_log(tmp_path / "audit.sqlite", made)
    folder = copied(OPTIMUM_LLAMA)

    status, out, err = run(
        "hold-out", str(folder), "--point", "tank", "--state-dir", str(log), "--since", "9999d"
    )

    assert status == 0, err
    assert "29 cycles in 1 run held out" in out
    (cycles,) = read_gate_record(load_bundle(folder))
    assert [float(measured[0]) for measured, _ in cycles] == pytest.approx(
        [2.0 + 0.01 * at for at in range(len(cycles))], abs=0.002
    )
    assert [float(acted[0]) for _, acted in cycles] == pumps[1:]
