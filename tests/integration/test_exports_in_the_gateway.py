"""Decoders that other tools exported propose in a running gateway, and the checker answers each proposal."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import pytest

from gateway.link.messages import DecisionView
from tests.integration.house import DEADLINE_MS, House, tell
from tests.integration.picture import Picture
from tests.unit.inference_exports import EXPORTS, GENAI_LLAMA, OPTIMUM_GPT2, OPTIMUM_LLAMA

pytestmark = pytest.mark.integration

_DECISIONS = 12
_EXAMINED = {"permitted", "repaired", "refused"}


@pytest.mark.timeout(600)
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
            lambda p: len(_judged(p, digest)) >= _DECISIONS, 90, f"{_DECISIONS} verdicts on {directory.name}"
        )
        judged = _judged(house.picture, digest)
        verdicts = Counter(view.outcome for view in house.picture.decisions.values())
        told = house.picture.gateway
        mode = house.picture.mode
    tell(f"{directory.name}: {dict(verdicts)} within {DEADLINE_MS} ms")

    assert told is not None
    assert told.inference["backend"] == backend
    assert mode == "shadow"
    assert all(view.rule_set_digest and view.certificate_digest for view in judged)
    for view in judged:
        assert set(view.proposal) == {"TK1.P101.SP", "TK1.H101.CMD", "TK1.M101.STAGE"}
        assert not view.write_outcome
        if view.outcome == "refused":
            assert view.violated
            assert view.counterexample
        elif view.outcome == "permitted":
            assert view.setpoints == view.proposal


def _judged(picture: Picture, digest: str) -> list[DecisionView]:
    """Decisions on what that model proposed; a busy machine is late with some."""
    return [v for v in picture.decisions.values() if v.model_digest == digest and v.outcome in _EXAMINED]
