"""Behaviour cloning: cross entropy on two-hot targets, and the squared error of the decoded expectation."""

from __future__ import annotations

import math
import time

import numpy as np
import structlog
import torch
from torch import Tensor
from torch.nn import functional

from gateway.inference.bundle.manifest import Manifest
from gateway.inference.bundle.tokenizer import Tokenizer
from gateway.inference.training.dataset import Encoded
from gateway.inference.training.model import Decoder
from gateway.inference.training.recipes import Crop

log = structlog.get_logger().bind(component="training")

_FROM_BEGIN = 0.35  # share of crops
_CHOICE_WEIGHT = 3.0
_EXPECTATION_WEIGHT = 30.0
_REPORT_STEPS = 200


class Trainer:
    """One model and its optimiser; deterministic for a seed, one thread."""

    def __init__(self, model: Decoder, manifest: Manifest, seed: int) -> None:
        self._model = model
        self._tokenizer = Tokenizer(manifest)
        self._rng = np.random.default_rng(seed)
        self._hop = manifest.window.mode == "hop"
        held = manifest.window.length // (2 if self._hop else 1)  # after a hop half of the window is there
        self._band_cycles = held // (len(manifest.inputs) + len(manifest.outputs)) + 1
        decayed = [p for p in model.parameters() if p.ndim > 1]
        plain = [p for p in model.parameters() if p.ndim <= 1]
        groups = [{"params": decayed, "weight_decay": 0.02}, {"params": plain, "weight_decay": 0.0}]
        self._optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.98))

    def run(self, data: Encoded, steps: int, rates: tuple[float, float], crop: Crop) -> None:
        """`steps` of warm-up and cosine decay from the first to the second of `rates`."""
        peak, floor = rates
        began, losses = time.monotonic(), []
        warm = max(1, steps // 20)
        for step in range(steps):
            share = (step - warm) / max(1, steps - warm)
            rate = peak * (step + 1) / warm if step < warm else floor + (peak - floor) * _cosine(share)
            for group in self._optimizer.param_groups:
                group["lr"] = rate
            loss = self._loss(*self._batch(data, crop))
            self._optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
            self._optimizer.step()
            losses.append(float(loss.detach()))
            if (step + 1) % _REPORT_STEPS == 0:
                mean = float(np.mean(losses[-_REPORT_STEPS:]))
                log.info(
                    "steps_done", step=step + 1, loss=round(mean, 4), seconds=round(time.monotonic() - began)
                )

    def _batch(self, data: Encoded, crop: Crop) -> tuple[Tensor, ...]:
        """Crops from the begin of a run, behind the begin token, or from its middle.

        From the middle, behind any token; where the model is to hop, behind a begin token and a whole cycle.
        """
        inputs, outputs = len(self._tokenizer.inputs), len(self._tokenizer.outputs)
        cycle = inputs + outputs
        runs, cycles = data.target_tokens.shape[:2]
        rows = self._rng.integers(0, runs, crop.batch)
        at_begin = self._rng.random(1 if self._hop else crop.batch) < _FROM_BEGIN
        at_begin = np.broadcast_to(at_begin, (crop.batch,))
        starts = np.where(at_begin, 1, self._rng.integers(2, cycles - crop.cycles, crop.batch))
        lead = 1 + (cycle if self._hop and not at_begin[0] else outputs)
        spans = starts[:, None] * cycle - lead + np.arange(crop.cycles * cycle + lead)
        tokens = data.tokens[rows[:, None], spans]
        fractions = data.fractions[rows[:, None], spans]
        begins = at_begin | self._hop
        tokens[begins, 0], fractions[begins, 0] = self._tokenizer.begin.id, 0.0
        at = starts[:, None] + np.arange(crop.cycles)
        known = (
            at_begin[:, None] | (np.arange(crop.cycles) >= self._band_cycles) | data.free[rows[:, None], at]
        )
        targets = (data.target_tokens, data.target_fractions, data.target_values, data.weights)
        return tuple(
            torch.from_numpy(np.ascontiguousarray(value))
            for value in (tokens, fractions, *(target[rows[:, None], at] for target in targets), known)
        )

    def _loss(
        self,
        tokens: Tensor,
        fractions: Tensor,
        wanted: Tensor,
        share: Tensor,
        values: Tensor,
        weights: Tensor,
        known: Tensor,
    ) -> Tensor:
        """`known` `[B, cycles]`: the crop holds all that decided; elsewhere only the pump counts."""
        inputs, outputs = len(self._tokenizer.inputs), len(self._tokenizer.outputs)
        logits = self._model(tokens, fractions)
        lead = tokens.shape[1] - wanted.shape[1] * (inputs + outputs)
        first = lead + inputs - 1  # the last measurement of the first cycle that is answered
        places = first + (inputs + outputs) * torch.arange(wanted.shape[1])
        total = torch.zeros(())
        for at, codec in enumerate(self._tokenizer.outputs):
            chance = functional.log_softmax(logits[:, places + at], dim=-1)
            lower = wanted[:, :, at, None]
            part = share[:, :, at]
            low = chance.gather(-1, lower)[..., 0]
            high = chance.gather(-1, (lower + 1).clamp(max=logits.shape[-1] - 1))[..., 0]
            miss = -((1 - part) * low + part * high)
            if self._tokenizer.output_specs[at].decoding == "expectation":
                own = torch.softmax(
                    logits[:, places + at][..., codec.tokens.start : codec.tokens.stop], dim=-1
                )
                knots = torch.tensor(codec.knots, dtype=torch.float32)
                error = ((own @ knots) - values[:, :, at]) / (codec.knots[-1] - codec.knots[0])
                total = total + miss.mean() + _EXPECTATION_WEIGHT * error.abs().mean()
            else:
                total = total + _CHOICE_WEIGHT * (miss * known * weights[:, :, at]).sum() / known.sum().clamp(
                    min=1
                )
        return total


def _cosine(share: float) -> float:
    return 0.5 * (1.0 + math.cos(math.pi * share))
