"""Finish a bundle of one's own: its files' digests into `bundle.json`, then all that a gateway asks of it.

`python -m gateway.inference.seal BUNDLE` prints what the model showed, or the sentence that refuses it.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from gateway.core.durable import write_durably
from gateway.core.errors import InferenceError
from gateway.inference.bundle.any_bundle import AnyBundle, load_any
from gateway.inference.bundle.files import (
    BUNDLE_FILE,
    MODEL_FILE,
    BundleError,
    measured,
    read_description,
    weights_beside,
)
from gateway.inference.bundle.manifest import GATE_FILE, GOLDEN_FILE, REFERENCE_FILE
from gateway.inference.decision_model import ranges_of
from gateway.inference.serving.serving import Size, start_engine


def seal(directory: Path) -> AnyBundle:
    """Write size and SHA-256 of the bundle's files: the graph, what it keeps beside it, and what was listed.

    Also of a float32 graph, held-out cycles and golden answers, by their names, where they are there.

    Raises `BundleError` where the bundle is not usable then; the description is changed all the same.
    """
    try:
        description: Any = json.loads(read_description(directory))
    except ValueError as exc:
        raise BundleError(directory, f"{BUNDLE_FILE} is not JSON ({exc}): correct it") from exc
    if not isinstance(description, dict) or not isinstance(description.get("files", {}), dict):
        raise BundleError(
            directory, f"{BUNDLE_FILE} is no bundle description: begin with one from the manual"
        )
    beside = (name for name in (REFERENCE_FILE, GATE_FILE, GOLDEN_FILE) if (directory / name).exists())
    listed = dict.fromkeys((*beside, *description.get("files", {})))
    found = {MODEL_FILE: measured(directory, MODEL_FILE)}
    found |= {name: measured(directory, name) for name in (*weights_beside(directory), *listed)}
    description["files"] = msgspec.to_builtins(found)
    body = json.dumps(description, indent=1, ensure_ascii=False) + "\n"
    write_durably(directory / BUNDLE_FILE, body.encode())
    return load_any(directory)


def main(arguments: list[str] | None = None) -> int:
    """Seal a bundle and let its model show itself."""
    parser = argparse.ArgumentParser(prog="gateway.inference.seal", description=seal.__doc__)
    parser.add_argument("bundle", type=Path)
    options = parser.parse_args(arguments)
    try:
        bundle = seal(options.bundle)
        engine, shown = start_engine(bundle, tuple(ranges_of(bundle).values()), Size("cpu"))
    except InferenceError as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    manifest = bundle.manifest
    told = {
        "bundle": f"{manifest.id}/{manifest.revision}, sealed as {bundle.digest[:12]}…",
        **bundle.facts,
        "inputs": ", ".join(spec.tag for spec in manifest.inputs),
        "outputs": ", ".join(spec.tag for spec in manifest.outputs),
        "runs on": engine.truth.actual,
        "a decision": f"{shown.decision_ms:.2f} ms (slow ones {shown.slow_ms:.2f} ms)",
        "at once": f"{engine.widest} requests in a forward",
    }
    sys.stdout.writelines(f"{name:13} {text}\n" for name, text in told.items())
    return 0


if __name__ == "__main__":
    sys.exit(main())
