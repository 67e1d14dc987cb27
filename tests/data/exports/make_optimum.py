"""A tiny random Llama and a tiny random GPT-2 by Hugging Face Optimum: `python make_optimum.py OUT`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from optimum.exporters.onnx import main_export
from seeded import gpt2, llama, save


def main(out: Path) -> None:
    """Write `optimum_llama/model.onnx` and `optimum_gpt2/model.onnx` under `out`."""
    for name, model in (("llama", llama()), ("gpt2", gpt2())):
        with tempfile.TemporaryDirectory() as scratch:
            source, exported = save(model, Path(scratch, "source")), Path(scratch, "exported")
            main_export(
                str(source),
                exported,
                task="text-generation-with-past",
                local_files_only=True,
                do_validation=False,
            )
            folder = out / f"optimum_{name}"
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(exported / "model.onnx", folder / "model.onnx")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
