"""ONNX Runtime's builds report their use to their maker unless they are told not to; ours are told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CODE = """
import sys
from pathlib import Path
from gateway.inference.decision_model import DecisionModel
model = DecisionModel.from_bundle(Path(sys.argv[1]), device="cpu")
print(model.generate([0, 20, 50], max_new_tokens=2))
"""
BUNDLE = Path(__file__).resolve().parents[1] / "data" / "exports" / "optimum_llama"


def test_a_model_that_runs_leaves_no_id_and_no_records_in_the_home_folder(tmp_path: Path) -> None:
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("XDG_", "ORT_"))}
    environ = {**kept, "HOME": str(tmp_path), "ORT_DISABLE_TELEMETRY": "0"}
    done = subprocess.run(  # noqa: S603  # our own interpreter
        [sys.executable, "-c", CODE, str(BUNDLE)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=360,
        check=True,
    )
    assert done.stdout.startswith("[")
    assert list(tmp_path.rglob("*")) == []
