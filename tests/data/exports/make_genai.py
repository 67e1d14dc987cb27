"""The same tiny random Llama by onnxruntime-genai's builder: `python make_genai.py OUT`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from seeded import llama, save


def main(out: Path) -> None:
    """Write `genai_llama/model.onnx` and `model.onnx.data` under `out`."""
    with tempfile.TemporaryDirectory() as scratch:
        source, exported = save(llama(), Path(scratch, "source")), Path(scratch, "exported")
        builder = (sys.executable, "-m", "onnxruntime_genai.models.builder")
        options = ("-i", source, "-o", exported, "-p", "fp32", "-e", "cpu", "-c", Path(scratch, "cache"))
        subprocess.run((*builder, *map(str, options)), check=True)  # noqa: S603  our own words
        folder = out / "genai_llama"
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("model.onnx", "model.onnx.data"):
            shutil.copyfile(exported / name, folder / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
