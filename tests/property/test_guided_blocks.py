"""Seeded rule sets of every kind: blocks that a model decodes along guidance, and every block judged."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest

from gateway.core.guidance import NOTHING
from gateway.inference.bundle.manifest import OutputSpec
from gateway.inference.bundle.tokenizer import TagCodec
from gateway.inference.decoding.decode import OutputMask, OutputRange
from gateway.inference.decoding.guided import Awaited
from tests.property.test_solver_permitted_next import any_rule
from tests.unit.solver_next import ORDER, TAGS, Enumerated, Here, rules

BLOCKS = 25


def _masks() -> list[OutputMask]:
    """Bins that meet only some of the counts, as a model's do."""
    found = []
    for tag in ORDER:
        definition = TAGS[tag]
        low, high = definition.raw_range or (0, 0)
        knots = [definition.engineering(raw) for raw in sorted({low, high, *range(low, high, 3)})]
        spec = OutputSpec(
            tag=tag,
            unit=definition.unit,
            knots=tuple(str(knot) for knot in knots),
            first_token=0,
            trained=(str(knots[0]), str(knots[-1])),
            decoding="expectation",
        )
        limits = OutputRange(definition.scale, definition.offset, low, high)
        found.append(OutputMask(TagCodec(spec), limits, "expectation"))
    return found


@pytest.mark.parametrize("seed", range(8))
def test_a_block_decoded_along_exact_guidance_is_permitted(seed: int) -> None:
    chance = random.Random(100 + seed)  # noqa: S311  repeatable on purpose
    found = Enumerated(
        rules(*(any_rule(chance) for _ in range(chance.randrange(2, 5)))),
        Here(l=chance.choice([1.9, 2.0, 2.1]), n=chance.randrange(1, 8)),
    )
    guidance = found.outlook().guidance()
    packed, masks = msgspec.json.encode(guidance), _masks()
    dice = np.random.default_rng(seed)
    for _ in range(BLOCKS):
        awaited = Awaited(0.0)
        awaited.take(packed, "")
        block: list[int] = []
        for mask in masks:
            logits = dice.normal(0.0, 4.0, 16).astype(np.float32)
            block.append(mask.decode(logits, awaited.counts(block, mask.limits, len(ORDER), None)).raw)
        if awaited.guidance is None:
            assert awaited.because == NOTHING
            assert not guidance.exact or not found.permitted
        elif guidance.exact:
            assert dict(zip(ORDER, block, strict=True)) in found.permitted, block
