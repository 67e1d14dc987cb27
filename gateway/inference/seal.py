"""Finish a bundle of one's own: its files' digests into `bundle.json`, then all that a gateway asks of it.

`o3ctl model seal BUNDLE` prints what the model showed, or the sentence that refuses it; so does
`python -m gateway.inference.seal BUNDLE` where only this package is.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
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
from gateway.inference.kv.ort_session import Provider
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A sealed bundle, and what its model showed when it answered all over its ranges."""

    bundle: AnyBundle
    runs_on: str
    decision_ms: float  # median, warm
    slow_ms: float
    at_once: int  # requests in a forward

    def plain(self) -> dict[str, Any]:
        """For programs."""
        manifest = self.bundle.manifest
        return {
            "bundle": str(self.bundle.directory),
            "id": manifest.id,
            "revision": manifest.revision,
            "digest": self.bundle.digest,
            "facts": self.bundle.facts,
            "inputs": [spec.tag for spec in manifest.inputs],
            "outputs": [spec.tag for spec in manifest.outputs],
            "runs_on": self.runs_on,
            "decision_ms": self.decision_ms,
            "slow_ms": self.slow_ms,
            "at_once": self.at_once,
        }

    def lines(self) -> list[str]:
        """For people."""
        manifest = self.bundle.manifest
        told = {
            "bundle": f"{manifest.id}/{manifest.revision}, sealed as {self.bundle.digest[:12]}…",
            **self.bundle.facts,
            "inputs": ", ".join(spec.tag for spec in manifest.inputs),
            "outputs": ", ".join(spec.tag for spec in manifest.outputs),
            "runs on": self.runs_on,
            "a decision": f"{self.decision_ms:.2f} ms (slow ones {self.slow_ms:.2f} ms)",
            "at once": f"{self.at_once} requests in a forward",
        }
        return [f"{name:13} {text}" for name, text in told.items()]


def sealed_and_shown(directory: Path, provider: Provider = "cpu") -> Shown:
    """Seal a bundle and let its model answer; raises `InferenceError`, sealed or not."""
    bundle = seal(directory)
    engine, shown = start_engine(bundle, tuple(ranges_of(bundle).values()), Size(provider))
    return Shown(
        bundle=bundle,
        runs_on=engine.truth.actual,
        decision_ms=shown.decision_ms,
        slow_ms=shown.slow_ms,
        at_once=engine.widest,
    )


def main(arguments: list[str] | None = None) -> int:
    """Seal a bundle and let its model show itself."""
    parser = argparse.ArgumentParser(prog="gateway.inference.seal", description=seal.__doc__)
    parser.add_argument("bundle", type=Path)
    options = parser.parse_args(arguments)
    try:
        shown = sealed_and_shown(options.bundle)
    except InferenceError as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    sys.stdout.writelines(f"{line}\n" for line in shown.lines())
    return 0


if __name__ == "__main__":
    sys.exit(main())
