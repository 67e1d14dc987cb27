"""What a stateless model is and how long it takes: `inspect` and `bench` where there are no tokens."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import numpy as np

from gateway.core.errors import InferenceError
from gateway.inference.bundle.files import MODEL_FILE
from gateway.inference.bundle.stateless import StatelessBundle, StatelessOutput, class_values
from gateway.inference.kv.ort_session import Provider, open_session
from gateway.inference.quantize.figures import Progress
from gateway.inference.quantize.resident import resident_bytes
from gateway.inference.serving.stateless_model import StatelessModel
from gateway.inference.serving.stateless_selftest import probes

_WARM = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphTensor:
    """An input or output of the graph: its shape, open dimensions by name, and what stands in it."""

    name: str
    role: str  # input or output
    type: str
    shape: tuple[int | str, ...]
    holds: str  # tags in their order; empty where the bundle does not ask for it


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedStateless:
    """A stateless bundle, looked at."""

    bundle: StatelessBundle
    tensors: tuple[GraphTensor, ...]
    model_bytes: int

    def plain(self) -> dict[str, Any]:
        """For programs."""
        manifest: dict[str, Any] = msgspec.to_builtins(self.bundle.manifest)
        kept = ("id", "revision", "description", "cycle_s", "backend", "files", "accuracy")
        return {
            **{name: manifest[name] for name in kept},
            "digest": self.bundle.digest,
            "steps": self.bundle.steps,
            "tags": [
                {"tag": spec.tag, "unit": spec.unit, "trained": spec.trained, "role": role, "answer": says}
                for role, spec, says in self.tags()
            ],
            "tensors": [asdict(tensor) for tensor in self.tensors],
            "model_bytes": self.model_bytes,
        }

    def tags(self) -> list[tuple[str, Any, str]]:
        """Role, specification and what an answer is, of each tag in the bundle's order."""
        manifest = self.bundle.manifest
        inputs = [("input", spec, "") for spec in manifest.inputs]
        return [*inputs, *(("output", spec, _answer(spec)) for spec in manifest.outputs)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRun:
    """Runs of so many requests at once."""

    batch: int
    p50_ms: float
    p99_ms: float
    answers_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchStateless:
    """A stateless bundle's speed and size."""

    provider: str
    timed: tuple[TimedRun, ...]
    model_bytes: int
    resident_bytes: int  # by how much this process grew

    def plain(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def inspect_stateless(bundle: StatelessBundle) -> InspectedStateless:
    """Look at a bundle; raises `InferenceError` where its graph is not what it says."""
    StatelessModel(bundle, "cpu")
    session, _ = open_session(bundle.model_path, "cpu")
    manifest = bundle.manifest
    held = {
        tensor.name: f"{', '.join(tensor.tags)}; {tensor.steps} {_rows(tensor.steps)}, {tensor.layout}"
        for tensor in manifest.tensors
    }
    for spec in manifest.outputs:
        index = "".join(f"[{at}]" for at in spec.index)
        found = f"{spec.tag} at {index}" if index else spec.tag
        held[spec.tensor] = f"{held[spec.tensor]}, {found}" if spec.tensor in held else found
    return InspectedStateless(
        bundle=bundle,
        tensors=tuple(
            GraphTensor(
                name=each.name,
                role=role,
                type=each.type.removeprefix("tensor(").removesuffix(")"),
                shape=tuple("batch" if size is None else size for size in each.shape),
                holds=held.get(each.name, ""),
            )
            for role, some in (("input", session.get_inputs()), ("output", session.get_outputs()))
            for each in some
        ),
        model_bytes=manifest.files[MODEL_FILE].bytes,
    )


def bench_stateless(
    bundle: StatelessBundle,
    provider: Provider = "cpu",
    batches: tuple[int, ...] = (1, 8),
    rounds: int = 200,
    progress: Progress = lambda _, __: None,
) -> BenchStateless:
    """Time runs; of a graph that takes one request at a time, batches of 1 only.

    Raises `InferenceError` where the bundle cannot run, or no batch is left.
    """
    if not batches or min(batches) < 1 or rounds < 1:
        raise InferenceError("a batch has at least one request, and at least one round is timed")
    before = resident_bytes()
    model = StatelessModel(bundle, provider)
    fitting = [batch for batch in batches if model.widest is None or batch <= model.widest]
    if not fitting:
        raise InferenceError(
            f"the graph takes {model.widest} request at a time: export it for any number, or time that"
        )
    rows, timed = probes(bundle), []
    for at, batch in enumerate(fitting):
        took = []
        for count in range(rounds + _WARM):
            requests = [rows[(count + row) % len(rows)] for row in range(batch)]
            began = time.perf_counter()
            model.run(requests)
            took.append(time.perf_counter() - began)
            progress("runs", (at + count / (rounds + _WARM)) / len(fitting))
        p50, p99 = (float(np.percentile(took[_WARM:], share)) * 1e3 for share in (50, 99))
        timed.append(TimedRun(batch=batch, p50_ms=p50, p99_ms=p99, answers_per_s=batch / p50 * 1e3))
    return BenchStateless(
        provider=model.truth.actual,
        timed=tuple(timed),
        model_bytes=bundle.manifest.files[MODEL_FILE].bytes,
        resident_bytes=max(0, resident_bytes() - before),
    )


def _answer(spec: StatelessOutput) -> str:
    classes = class_values(spec)
    if not classes:
        return "a number"
    how = "labels" if spec.labels else "logits" if spec.logits else "probabilities"
    return f"{how} of {len(classes)}, {spec.decoding.replace('_', ' ')}"


def _rows(steps: int) -> str:
    return "row" if steps == 1 else "rows"
