"""How far a bundle is from its float32 twin: logits, expected actions, choices, and the plant it runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from gateway.inference.accuracy_gate import Rows, differences
from gateway.inference.bundle.gate_record import Run, read_gate_record
from gateway.inference.bundle.manifest import Bundle
from gateway.inference.bundle.tokenizer import Token, Tokenizer
from gateway.inference.bundle.twin import twin_of
from gateway.inference.kv.backend import KvBackend
from gateway.inference.kv.ort_session import Provider
from gateway.inference.quantize.recipes import RECIPES
from gateway.inference.serving.backends import make_backend
from gateway.inference.training.paired import Length, cycles_of, objective, plant_of

Progress = Callable[[str, float], None]  # a stage's name, and how much of it is done, from 0 to 1

_NAMES = ("relative_l2", "row_p99", "top1_delta", "expected_action_error_of_span", "objective_over_twin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Against the float32 twin. The last three are None where no simulator has the bundle's tags."""

    relative_l2: float  # of all rows of logits that decide outputs
    row_p99: float
    top1_delta: float  # share of rows whose likeliest value differs: ordered bins make it a poor bar
    expected_action_error_of_span: float  # the worst output's 99th percentile
    objective: float | None
    twin_objective: float | None
    objective_over_twin: float | None

    def accuracy(self) -> dict[str, float]:
        """For the bundle's description."""
        return {name: round(value, 6) for name in _NAMES[:4] if (value := getattr(self, name)) is not None}

    def closed_loop(self) -> dict[str, float]:
        """For the bundle's description; empty where it was not run."""
        names = ("objective", "twin_objective", "objective_over_twin")
        return {name: round(value, 6) for name in names if (value := getattr(self, name)) is not None}

    def failures(self, gates: dict[str, float], *, needs_loop: bool) -> list[str]:
        """A sentence for every bar that is missed; a figure that is no number misses its bar."""
        missed = []
        for name, limit in gates.items():
            value = getattr(self, name, None) if name in _NAMES else None
            if value is None:
                if name == "objective_over_twin" and needs_loop:
                    missed.append(
                        "objective_over_twin is not known, no simulator has these tags: "
                        "4-bit matrices are not accepted without a closed loop, use int8"
                    )
            elif not value <= limit:
                missed.append(f"{name} is {value:.4g}, over {limit:g}")
        return missed


def bars(bundle: Bundle) -> tuple[dict[str, float], bool]:
    """The bars of how a bundle is kept, and whether a closed loop is among them that may not lack."""
    made, kept = bundle.manifest.made, bundle.manifest.quantization
    fitting = (one for one in RECIPES.values() if (one.kind, one.bits) == (kept.kind, kept.bits))
    recipe = RECIPES[made.recipe] if made is not None and made.recipe in RECIPES else next(fitting)
    return recipe.gates(kept.kv), recipe.needs_loop


def measure(
    bundle: Bundle, length: Length, provider: Provider = "cpu", progress: Progress = lambda _, __: None
) -> Figures:
    """All figures; raises `BundleError` where the bundle lacks its twin or its held-out cycles."""
    read_gate_record(bundle)
    bundle = _on_trial(bundle)
    with twin_of(bundle) as twin:
        progress("logits", 0.0)
        theirs = deciding_rows(twin, "cpu")
        progress("logits", 0.5)
        ours = deciding_rows(bundle, provider)
        progress("logits", 1.0)
        found = _of_rows(bundle, ours, theirs)
        loop = _loop(bundle, twin, length, provider, progress)
    return Figures(
        **found,
        objective=loop and loop[0],
        twin_objective=loop and loop[1],
        objective_over_twin=loop and _ratio(*loop),
    )


def _on_trial(bundle: Bundle) -> Bundle:
    """The bundle as if it had passed: measuring is what shows whether it does."""
    made = bundle.manifest.made
    if made is None or made.gated:
        return bundle
    manifest = msgspec.structs.replace(
        bundle.manifest, made=msgspec.structs.replace(made, gated="being measured")
    )
    return replace(bundle, manifest=manifest)


def _ratio(ours: float, theirs: float) -> float:
    return ours / theirs if theirs > 0 else float("inf")


def _loop(
    bundle: Bundle, twin: Bundle, length: Length, provider: Provider, progress: Progress
) -> tuple[float, float] | None:
    kind = plant_of(bundle)
    if kind is None:
        return None
    total, done = 2 * length.seeds * cycles_of(kind, length), 0

    def advance(cycles: int) -> None:
        nonlocal done
        done += cycles
        progress("closed loop", done / total)

    ours = objective(bundle, kind, length, provider, advance)
    return ours, objective(twin, kind, length, "cpu", advance)


def deciding_rows(bundle: Bundle, provider: Provider) -> Rows:
    """Logits that decide outputs, `[cycles, outputs, vocabulary]`, read cycle by cycle as an engine does."""
    record = read_gate_record(bundle)
    backend = _backend(bundle, provider, max(map(len, record)))
    rows = list(itertools.chain.from_iterable(_run(bundle, backend, run) for run in record))
    return np.array(rows, dtype=np.float64)


def _backend(bundle: Bundle, provider: Provider, cycles: int) -> KvBackend:
    """The model with room for one run."""
    window = bundle.manifest.window
    longest = cycles * bundle.tokens_per_cycle + 1 if window.mode == "swa" else window.length
    return make_backend(bundle, provider=provider, pages=-(-longest // bundle.manifest.block) + 3)


def _run(bundle: Bundle, backend: KvBackend, run: Run) -> list[list[NDArray[np.float32]]]:
    tokenizer, window, each = Tokenizer(bundle.manifest), bundle.manifest.window, bundle.tokens_per_cycle
    cache, rows, before = backend.open(), [], list[list[Token]]()
    new: list[Token] = list(tokenizer.opening)
    for measured, in_force in run:
        acted = tokenizer.in_force(tuple(map(float, in_force)))
        seen = tokenizer.observe(tuple(map(float, measured)))
        if window.mode == "hop" and backend.span(cache).end + len(new) + each > window.length:
            backend.close(cache)
            cache = backend.open()
            new = [*tokenizer.opening, *itertools.chain.from_iterable(before[-bundle.hop_cycles :])]
        row = [backend.forward([(cache, [*new, *seen])])[0]]
        row += [backend.forward([(cache, [token])])[0] for token in acted[:-1]]
        rows.append(row)
        before.append([*seen, *acted])
        new = [acted[-1]]
    backend.close(cache)
    return rows


def _of_rows(bundle: Bundle, ours: Rows, theirs: Rows) -> dict[str, float]:
    found = differences(bundle.manifest, ours, theirs)
    return {
        "relative_l2": found.relative_l2,
        "row_p99": found.row_p99,
        "top1_delta": found.top1_delta,
        "expected_action_error_of_span": found.expected_action_error_of_span,
    }
