"""Runs of a plant under an expert, with disturbed actions so that the clone sees states off its path."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.inference.bundle.manifest import Manifest
from gateway.inference.bundle.tokenizer import TagCodec, Tokenizer
from gateway.inference.training.plant import Controller, PlantKind, Values

Array = NDArray[np.float64]

_CHANGE_WEIGHT = 3.0


@dataclass(frozen=True, slots=True)
class Runs:
    """`[runs, cycles, tags]` each; cycle 0 is not measured: it says what was in force before the first."""

    measured: Array
    in_force: Array
    wanted: Array
    free: Array  # [runs, cycles]: 1 where this cycle decides alone

    def joined(self, other: Runs) -> Runs:
        """Both."""
        return Runs(
            np.concatenate([self.measured, other.measured]),
            np.concatenate([self.in_force, other.in_force]),
            np.concatenate([self.wanted, other.wanted]),
            np.concatenate([self.free, other.free]),
        )


def record(
    kind: PlantKind,
    expert: str,
    seeds: range,
    cycles: int,
    acting: Callable[[], Controller] | None = None,
    *,
    noise: bool,
) -> Runs:
    """Runs acted by the expert, or by another (the clone) while the expert says what it would want.

    With `noise`, starts are anywhere, and in spells something else than was wanted is in force.
    """
    runs = [_run(kind, expert, seed, cycles, acting() if acting else None, noise=noise) for seed in seeds]
    return Runs(*(np.array([run[at] for run in runs]) for at in range(4)))


def _run(
    kind: PlantKind, expert: str, seed: int, cycles: int, acting: Controller | None, *, noise: bool
) -> tuple[list[Values], list[Values], list[Values], list[float]]:
    dice = random.Random(seed)  # noqa: S311 - a reproducible recipe, not a secret
    plant = kind.start(seed, dice, "disturbed" if noise else "plain")
    controller, spell = kind.controllers[expert](), kind.spell(dice)
    measured = [(0.0,) * len(kind.inputs)]
    in_force, wanted, free = [plant.in_force], [plant.in_force], [0.0]
    for _ in range(cycles - 1):
        seen, before = plant.measure(), in_force[-1]
        wish = controller.decide(seen, before)
        acted = acting.decide(seen, before) if acting else wish
        acted = spell.over(acted, before) if noise else acted
        measured.append(seen)
        in_force.append(acted)
        wanted.append(wish)
        free.append(float(controller.free))
        plant.advance(acted)
    return measured, in_force, wanted, free


@dataclass(frozen=True, slots=True)
class Encoded:
    """`tokens` and `fractions` `[runs, cycles * tags]`; targets `[runs, cycles, outputs]`."""

    tokens: NDArray[np.int64]
    fractions: NDArray[np.float32]
    target_tokens: NDArray[np.int64]
    target_fractions: NDArray[np.float32]
    target_values: NDArray[np.float32]
    weights: NDArray[np.float32]  # changes count more: persistence is right 99 times of 100 and useless
    free: NDArray[np.bool_]


def encode(runs: Runs, manifest: Manifest) -> Encoded:
    """Tokens of whole runs, cycle by cycle."""
    tokenizer = Tokenizer(manifest)
    columns = [_encode(codec, runs.measured[:, :, at]) for at, codec in enumerate(tokenizer.inputs)]
    columns += [_encode(codec, runs.in_force[:, :, at]) for at, codec in enumerate(tokenizer.outputs)]
    tokens = np.stack([column[0] for column in columns], axis=2)
    fractions = np.stack([column[1] for column in columns], axis=2)
    targets = [_encode(codec, runs.wanted[:, :, at]) for at, codec in enumerate(tokenizer.outputs)]
    return Encoded(
        tokens.reshape(len(tokens), -1),
        fractions.reshape(len(tokens), -1),
        np.stack([target[0] for target in targets], axis=2),
        np.stack([target[1] for target in targets], axis=2),
        runs.wanted.astype(np.float32),
        _weights(runs),
        runs.free > 0,
    )


def _weights(runs: Runs) -> NDArray[np.float32]:
    before = np.concatenate([runs.in_force[:, :1], runs.in_force[:, :-1]], axis=1)
    weights: NDArray[np.float32] = (1.0 + _CHANGE_WEIGHT * (runs.wanted != before)).astype(np.float32)
    return weights


def _encode(codec: TagCodec, values: Array) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """`TagCodec.encode` over an array."""
    knots = np.array(codec.knots)
    inside = np.clip(values, knots[0], knots[-1])
    at = np.clip(np.searchsorted(knots, inside, side="right") - 1, 0, len(knots) - 1)
    following = np.minimum(at + 1, len(knots) - 1)
    width = np.where(following > at, knots[following] - knots[at], 1.0)
    return at + codec.first_token, ((inside - knots[at]) / width).astype(np.float32)
