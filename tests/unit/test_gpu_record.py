"""What `make gpu` writes down, as far as it needs no device: the query's line, names of figures, the page."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.device import device_of, versions
from tests.gpu.measuring import BATCHES, speed
from tests.gpu.table import main, page
from tests.unit.quantize_demo import made

RECORD = {
    "device": "NVIDIA X, 4096 MiB",
    "driver": "550.1",
    "provider": "CUDAExecutionProvider",
    "versions": {"onnxruntime": "1.2", "python": "3.11"},
    "tests": 12,
    "failed": 1,
    "figures": {
        "int8, decode, 1 rows: p50 ms": 0.51234,
        "int8: pool bytes": 1234567.0,
        "fp16: pool bytes": 7,
    },
}


def test_the_devices_line_is_read_name_driver_total_and_used() -> None:
    found = device_of("NVIDIA L4, 24 GB, 550.54.15, 23034, 512\nNVIDIA other, 1, 2, 3\n")

    assert (found.name, found.driver) == ("NVIDIA L4, 24 GB", "550.54.15")
    assert (found.total_mib, found.used_mib) == (23034, 512)


@pytest.mark.parametrize("told", ["", "no devices were found", "NVIDIA X, 550, [N/A], 3"])
def test_a_line_that_tells_no_memory_is_no_device(told: str) -> None:
    with pytest.raises(ValueError, match=r"unpack|invalid literal"):
        device_of(told)


def test_the_page_names_device_driver_versions_failures_and_has_a_cell_for_every_figure() -> None:
    lines = page(RECORD).splitlines()

    for fact in ("| device | NVIDIA X, 4096 MiB |", "| driver | 550.1 |", "| onnxruntime | 1.2 |"):
        assert fact in lines
    assert "| tests | 12, of which 1 failed |" in lines
    assert "| | p50 ms | pool bytes |" in lines
    assert "| int8, decode, 1 rows | 0.5123 |  |" in lines
    assert "| int8 |  | 1 234 567 |" in lines
    assert "| fp16 |  | 7 |" in lines


@pytest.mark.parametrize("missing", sorted(RECORD))
def test_a_record_that_lacks_something_makes_no_page(missing: str, tmp_path: Path) -> None:
    record, target = tmp_path / "record.json", tmp_path / "gpu.md"
    target.write_text("as it was")
    record.write_text(json.dumps({name: value for name, value in RECORD.items() if name != missing}))

    with pytest.raises(KeyError, match=missing):
        main(record, target)
    assert target.read_text() == "as it was"


def test_without_a_record_the_page_stays_and_the_command_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "gpu.md"
    target.write_text("not yet run")

    assert main(tmp_path / "record.json", target) == 1
    assert target.read_text() == "not yet run"
    assert "nothing was measured" in capsys.readouterr().err


def test_speed_is_told_for_each_batch_and_kind_of_forward_and_so_is_memory() -> None:
    bundle = made("int8w").bundle
    found = speed("int8w", bundle, "cpu", rounds=3)

    for rows in BATCHES:
        for kind in ("decode", "prefill"):
            assert found[f"int8w, {kind}, {rows} rows: tokens/s"] > 0
    assert found["int8w: graph bytes"] == bundle.model_path.stat().st_size
    assert found["int8w: pool bytes"] > 0
    assert "| int8w |" in page(RECORD | {"figures": found})


def test_versions_name_the_runtime() -> None:
    assert versions()["onnxruntime"]


@pytest.mark.parametrize("recipe", ["int8", "int8w", "int8a8", "int4", "mixed", "fp16", "bf16", "fp32"])
def test_the_suite_for_a_device_has_a_test_of_every_recipe(recipe: str) -> None:
    assert f"[{recipe}]" in collected()


def test_the_suite_has_prefixes_speed_and_memory() -> None:
    for part in ("a_prefix_that_stands_is_adopted", "speed_and_memory_are_put_on_record"):
        assert part in collected()


@functools.cache
def collected() -> str:
    done = subprocess.run(
        (sys.executable, "-m", "pytest", "tests/gpu", "--collect-only", "-q", "-p", "no:cacheprovider"),
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=True,
        timeout=360,
    )
    return done.stdout
