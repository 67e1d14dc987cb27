"""Shows whether the quantized graph is still the model that was trained.

`python -m gateway.inference.accuracy_gate BUNDLE`. Both graphs read the held-out cycles of `gate.json`;
the rows of logits that decide outputs are compared.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gateway.inference.bundle.files import MODEL_FILE, BundleError
from gateway.inference.bundle.gate_record import Run, read_gate_record
from gateway.inference.bundle.manifest import REFERENCE_FILE, Bundle, Manifest, load_bundle
from gateway.inference.bundle.tokenizer import Token, Tokenizer
from gateway.inference.kv.block_pool import BlockPool, Sequence
from gateway.inference.kv.ort_session import PagedSession

Rows = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How far the quantized graph is from the float32 one."""

    relative_l2: float
    row_p99: float  # of one row, 99th percentile
    top1_delta: float  # share of rows whose likeliest value differs: bins are ordered, so no bar
    expected_action_error_of_span: float  # the worst output's 99th percentile
    choice_disagreement: float  # share of rows where an output chosen by likelihood differs

    def failures(self, gates: dict[str, float]) -> list[str]:
        """One sentence for every bar missed."""
        figures = {name: getattr(self, name) for name in Accuracy.__dataclass_fields__}
        return [
            f"{name} is {figures[name]:.4g}, over {limit:g}"
            for name, limit in gates.items()
            if name in figures and not figures[name] <= limit
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """Of one model from another, over the logits that decide outputs."""

    relative_l2: float
    row_p99: float  # of one row, 99th percentile
    expected_action_error_of_span: float  # the worst output's 99th percentile
    other_choices: tuple[float, ...]  # share of rows whose likeliest value differs, by output

    @property
    def top1_delta(self) -> float:
        """Share of rows whose likeliest value differs, of all outputs."""
        return float(np.mean(self.other_choices))


def measure(bundle: Bundle) -> Accuracy:
    """The figures of a bundle that ships its float32 twin and held-out cycles."""
    if REFERENCE_FILE not in bundle.manifest.files:
        raise BundleError(bundle.directory, f"no {REFERENCE_FILE}: export it again with its float32 twin")
    record = read_gate_record(bundle)
    quantized, reference = (
        _rows(bundle, bundle.directory / name, record) for name in (MODEL_FILE, REFERENCE_FILE)
    )
    found = differences(bundle.manifest, quantized, reference)
    chosen = [
        share
        for spec, share in zip(bundle.manifest.outputs, found.other_choices, strict=True)
        if spec.decoding != "expectation"
    ]
    return Accuracy(
        relative_l2=found.relative_l2,
        row_p99=found.row_p99,
        top1_delta=found.top1_delta,
        expected_action_error_of_span=found.expected_action_error_of_span,
        choice_disagreement=max(chosen, default=0.0),
    )


def differences(manifest: Manifest, ours: Rows, theirs: Rows) -> Differences:
    """How far one model's logits that decide outputs are from another's, `[cycles, outputs, vocabulary]`."""
    difference, size = np.linalg.norm(ours - theirs, axis=-1), np.linalg.norm(theirs, axis=-1)
    errors, others = [0.0], []
    for at, spec in enumerate(manifest.outputs):
        part = slice(spec.first_token, spec.first_token + len(spec.knots))
        knots = np.array([float(Fraction(knot)) for knot in spec.knots])
        mine, other = ours[:, at, part], theirs[:, at, part]
        others.append(float((mine.argmax(-1) != other.argmax(-1)).mean()))
        if spec.decoding == "expectation":
            off = np.abs((_softmax(mine) - _softmax(other)) @ knots) / (knots[-1] - knots[0])
            errors.append(float(np.percentile(off, 99)))
    return Differences(
        relative_l2=float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)),
        row_p99=float(np.percentile(difference / size, 99)),
        expected_action_error_of_span=max(errors),
        other_choices=tuple(others),
    )


def _rows(bundle: Bundle, graph: Path, record: list[Run]) -> Rows:
    """Logits that decide outputs, `[cycles, outputs, vocabulary]`, every run read in one piece."""
    manifest = bundle.manifest
    tokenizer = Tokenizer(manifest)
    inputs, outputs = len(manifest.inputs), len(manifest.outputs)
    opening = len(tokenizer.opening)
    longest = max(len(run) for run in record) * (inputs + outputs) + opening
    pages = -(-longest // manifest.block) + 1
    session = PagedSession(graph, manifest.architecture, pages=pages, block=manifest.block, provider="cpu")
    rows = []
    for run in record:
        tokens: list[Token] = list(tokenizer.opening)
        for measured, in_force in run:
            tokens += tokenizer.observe(tuple(float(text) for text in measured))
            tokens += tokenizer.in_force(tuple(float(text) for text in in_force))
        pool, sequence = BlockPool(pages - 1, manifest.block), Sequence()
        logits = session.run(sequence, tokens, pool.append(sequence, len(tokens)))
        first = opening - 1 + inputs  # position of what decides the first output
        deciding = first + (inputs + outputs) * np.arange(len(run))[:, None] + np.arange(outputs)
        rows.append(logits[deciding].astype(np.float64))
    return np.concatenate(rows)


def _softmax(rows: Rows) -> Rows:
    weights = np.exp(rows - rows.max(axis=-1, keepdims=True))
    share: Rows = weights / weights.sum(axis=-1, keepdims=True)
    return share


def main(arguments: list[str] | None = None) -> int:
    """Print the figures; 1 when a bar is missed."""
    parser = argparse.ArgumentParser(prog="gateway.inference.accuracy_gate")
    parser.add_argument("bundle", type=Path)
    options = parser.parse_args(arguments)
    bundle = load_bundle(options.bundle)
    accuracy = measure(bundle)
    failures = accuracy.failures(bundle.manifest.gates)
    lines = [f"{name} {getattr(accuracy, name):.5f}" for name in Accuracy.__dataclass_fields__]
    sys.stdout.write("\n".join([*lines, *failures, "refused" if failures else "accepted"]) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
