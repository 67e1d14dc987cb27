"""Decoders that other tools exported propose in a running gateway, and the checker answers each proposal."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.house import DEADLINE_MS, House, tell
from tests.unit.inference_exports import EXPORTS, GENAI_LLAMA, OPTIMUM_GPT2, OPTIMUM_LLAMA

pytestmark = pytest.mark.integration

_DECISIONS = 12
_EXAMINED = {"permitted", "repaired", "refused"}


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("directory", "backend"),
    [(OPTIMUM_LLAMA, "concat_past"), (OPTIMUM_GPT2, "concat_past"), (GENAI_LLAMA, "dense_gqa")],
    ids=lambda value: value.name if isinstance(value, Path) else value,
)
async def test_an_exported_decoder_decides_in_shadow_and_each_of_its_proposals_is_judged(
    tmp_path: Path, directory: Path, backend: str
) -> None:
    """Weights are random, so verdicts may be any; what is examined must be what this model proposed."""
    digest = hashlib.sha256((directory / "bundle.json").read_bytes()).hexdigest()
    async with House(tmp_path, model=directory.name, bundles=EXPORTS) as house:
        await house.until(
            lambda p: sum(view.model_digest == digest for view in p.decisions.values()) >= _DECISIONS,
            90,
            f"{_DECISIONS} decisions of {directory.name}",
        )
        views = [view for view in house.picture.decisions.values() if view.model_digest == digest]
        told = house.picture.gateway
        mode = house.picture.mode
    verdicts = Counter(view.outcome for view in views)
    tell(f"{directory.name}: {dict(verdicts)} within {DEADLINE_MS} ms")

    assert told is not None
    assert told.inference["backend"] == backend
    assert mode == "shadow"
    judged = [view for view in views if view.outcome in _EXAMINED]
    assert len(judged) >= _DECISIONS - 2, [view.reason for view in views]  # a machine's pauses
    assert all(view.rule_set_digest and view.certificate_digest for view in judged)
    for view in judged:
        assert set(view.proposal) == {"TK1.P101.SP", "TK1.H101.CMD", "TK1.M101.STAGE"}
        assert not view.write_outcome
        if view.outcome == "refused":
            assert view.violated
            assert view.counterexample
        elif view.outcome == "permitted":
            assert view.setpoints == view.proposal
