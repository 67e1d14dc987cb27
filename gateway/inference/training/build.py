"""Builds a bundle: `python -m gateway.inference.training.build buffer-tank DIRECTORY` (torch needed)."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
import structlog
import torch

from gateway.inference.bundle.manifest import REFERENCE_FILE, Manifest, Training
from gateway.inference.bundle.tokenizer import Token
from gateway.inference.kv.block_pool import BlockPool, Sequence
from gateway.inference.kv.ort_session import PagedSession
from gateway.inference.serving.engine import Engine
from gateway.inference.training import vocabulary
from gateway.inference.training.clone import Clone, engine_of
from gateway.inference.training.dataset import Encoded, Runs, encode, record
from gateway.inference.training.export import RECIPE, draft, recipe_digest, write_gate_record, write_model
from gateway.inference.training.model import Decoder, load_weights, start_smooth, weights_of
from gateway.inference.training.plant import Controller
from gateway.inference.training.recipes import RECIPES
from gateway.inference.training.train import Trainer

_ACTED_RUNS = 32  # of a round, and as many undisturbed
_EXPORT_TOLERANCE = 1e-4

log = structlog.get_logger().bind(component="training")


def main(arguments: list[str] | None = None) -> int:
    """Train, export; figures are added by `evaluate`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=sorted(RECIPES))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--step-share", type=float, default=1.0, help="of the recipe's steps, for a trial")
    options = parser.parse_args(arguments)
    build(options.name, options.directory, options.step_share)
    return 0


def build(name: str, directory: Path, step_share: float = 1.0) -> Manifest:
    """A bundle without accuracy figures in `directory`."""
    recipe, began = RECIPES[name], time.monotonic()
    kind, expert = recipe.plant, recipe.expert
    torch.set_num_threads(1)
    torch.manual_seed(recipe.seed)
    rng = np.random.default_rng(recipe.seed)
    seed, clean = recipe.seed, recipe.runs // 2
    runs = record(kind, expert, range(seed, seed + recipe.runs), recipe.cycles, noise=True)
    runs = runs.joined(
        record(kind, expert, range(seed + 10_000, seed + 10_000 + clean), recipe.cycles, noise=False)
    )
    manifest = draft(name, recipe, _seen(runs), _training(name, 0.0))
    model = Decoder(vocabulary.shape(recipe, manifest.architecture.vocabulary), vocabulary.ROTARY_BASE)
    start_smooth(model, manifest)
    if recipe.first:
        load_weights(model, directory.parent / recipe.first / REFERENCE_FILE)
    trainer = Trainer(model, manifest, recipe.seed)
    short, long, again = (
        max(2, int(steps * step_share))
        for steps in (recipe.short_steps, recipe.long_steps, recipe.round_steps)
    )
    data = encode(runs, manifest)
    if recipe.short_steps:
        trainer.run(data, short, (3e-3, 1e-3), recipe.short)
    trainer.run(data, long, (1.5e-3, 3e-4 if recipe.rounds else 3e-5), recipe.long)
    for number in range(recipe.rounds):
        write_model(directory, manifest, weights_of(model))
        engine = engine_of(directory)

        def clone(engine: Engine = engine) -> Controller:
            return Clone(engine, kind)

        for noise in (True, False):
            seed += 20_000
            met = range(seed, seed + _ACTED_RUNS)
            runs = runs.joined(record(kind, expert, met, recipe.cycles, clone, noise=noise))
        log.info("round_recorded", round=number + 1, runs=len(runs.measured))
        rates = (8e-4, 1e-5 if number + 1 == recipe.rounds else 3e-4)
        trainer.run(encode(_weighted(runs, rng), manifest), again, rates, recipe.long)
    held_out = record(kind, expert, range(5), 90, noise=True)  # seeds no training run has
    manifest = msgspec.structs.replace(manifest, training=_training(name, time.monotonic() - began))
    write_gate_record(directory, held_out)
    manifest = write_model(directory, manifest, weights_of(model))
    log.info("exported", difference=export_difference(model, directory, encode(held_out, manifest)))
    return manifest


def export_difference(model: Decoder, directory: Path, data: Encoded) -> float:
    """Relative difference of torch and the exported float32 graph on one run; raises when they disagree."""
    tokens, fractions = data.tokens[:1], data.fractions[:1]
    with torch.no_grad():
        trained = model(torch.from_numpy(tokens), torch.from_numpy(fractions))[0].numpy()
    count, pages = tokens.shape[1], tokens.shape[1] // vocabulary.BLOCK + 2
    session = PagedSession(
        directory / REFERENCE_FILE,
        vocabulary.architecture(model.shape),
        pages=pages,
        block=vocabulary.BLOCK,
        provider="cpu",
    )
    pool, sequence = BlockPool(pages - 1, vocabulary.BLOCK), Sequence()
    pairs = [Token(int(token), float(part)) for token, part in zip(tokens[0], fractions[0], strict=True)]
    exported = session.run(sequence, pairs, pool.append(sequence, count))
    difference = float(np.linalg.norm(exported - trained) / np.linalg.norm(trained))
    if not difference <= _EXPORT_TOLERANCE:
        message = f"the exported graph differs from the trained model by {difference:.2g}"
        raise RuntimeError(message)
    return difference


def _weighted(runs: Runs, rng: np.random.Generator) -> Runs:
    """The newest runs count four times: they are what the clone itself meets."""
    newest = np.arange(max(0, len(runs.measured) - 2 * _ACTED_RUNS), len(runs.measured))
    order = rng.permutation(np.concatenate([np.arange(len(runs.measured)), np.repeat(newest, 3)]))
    return Runs(runs.measured[order], runs.in_force[order], runs.wanted[order], runs.free[order])


def _seen(runs: Runs) -> tuple[tuple[str, str], ...]:
    flat = runs.measured[:, 1:].reshape(-1, runs.measured.shape[2])
    return tuple((f"{low:g}", f"{high:g}") for low, high in zip(flat.min(0), flat.max(0), strict=True))


def _training(name: str, seconds: float) -> Training:
    recipe = RECIPES[name]
    return Training(
        recipe=RECIPE,
        recipe_digest=recipe_digest(name),
        expert=recipe.expert,
        seeds=str(recipe.seed),
        seconds=round(seconds, 1),
    )


if __name__ == "__main__":
    sys.exit(main())
