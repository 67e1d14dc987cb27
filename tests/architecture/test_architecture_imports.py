"""The direction of imports and the homes of libraries are contracts in pyproject.toml; here they are run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    code = "import sys; sys.path.insert(0, ''); from importlinter.cli import lint_imports_command as c; c()"
    return subprocess.run(  # noqa: S603  # our own interpreter
        [sys.executable, "-c", code, "--no-cache"],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=360,
        check=False,
    )


def test_every_import_contract_is_kept() -> None:
    done = lint_imports(ROOT)

    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broken" in done.stdout


# A contract that cannot be broken is worth nothing: one forbidden line a rule, in a copy of the tree.
@pytest.mark.parametrize(
    ("file", "line", "broken"),
    [
        ("solver/intruder.py", "import asyncua", "asyncua lives in protocols.opcua BROKEN"),
        ("cli/told/intruder.py", "import gateway.cli.live", "the rooms of cli import one way BROKEN"),
        ("web/intruder.py", "import sqlite3", "sqlite3 lives in storage BROKEN"),
        ("recheck/intruder.py", "import gateway.solver", "imports go one way BROKEN"),
        ("core/intruder.py", "import gateway.config", "imports go one way BROKEN"),
        ("core/intruder.py", "import msgspec", "core is the standard library only BROKEN"),
        ("supervision/intruder.py", "import gateway.config", "supervision knows only core BROKEN"),
        ("pipeline/intruder.py", "import gateway.supervision", "imports go one way BROKEN"),
        ("pipeline/intruder.py", "def f(): import socket", "the pipeline does no I/O BROKEN"),
        ("storage/intruder.py", "import gateway.link.messages", "know the internal port BROKEN"),
        ("protocols/mqtt/intruder.py", "import gateway.protocols.opcua", "never import each other BROKEN"),
        (
            "daemon/intruder.py",
            "import gateway.plantsim",
            "never imports the demo plant, the training or the tools for models BROKEN",
        ),
        (
            "inference/intruder.py",
            "import torch",
            "torch and onnx live in inference.training, onnx in inference.quantize, too BROKEN",
        ),
        ("newcomer.py", "", "newcomer"),
    ],
)
def test_a_contract_breaks_when_its_rule_is_broken(tmp_path: Path, file: str, line: str, broken: str) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.onnx", "*.json")
    shutil.copytree(ROOT / "gateway", tmp_path / "gateway", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "gateway" / file).write_text(f"{line}\n")

    done = lint_imports(tmp_path)

    assert done.returncode == 1, done.stdout + done.stderr
    assert broken in done.stdout + done.stderr
