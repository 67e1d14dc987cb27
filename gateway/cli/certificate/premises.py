"""The premises of a claim, worked out again by the checker that shares no code with the solver (S7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gateway.recheck.check import Question
from gateway.recheck.evidence import recorded_of
from gateway.recheck.recorded import Premises, premises, question
from gateway.solver.certificates.claims import Scene


def premises_of(scene: Scene, texts: Sequence[str]) -> tuple[Premises, Question]:
    """What readings, their quality and ages, and what was carried in allow; and what is asked of it.

    Raises `LanguageError` for a module that cannot be read.
    """
    told = recorded_of(
        scene.claim.examination.request,
        {str(tag): value for tag, value in scene.claim.action.items()},
        as_backup=scene.claim.as_backup,
        kept=scene.facts.now,
    )
    found = premises(texts, told)
    return found, question(told, found)


def premises_problem(found: Premises) -> str:
    """What speaks against the claim before any rule does; empty where nothing does."""
    if found.unusable:
        return f"nothing may be claimed where {found.unusable[0]}"
    if found.contradict:
        return f"reading and prediction of `{found.contradict}` do not meet"
    if found.left_out:
        return f"the claim's state leaves out values that `{found.left_out[0]}` may have"
    return ""


def over_the_claims_state(asked: Question, scene: Scene) -> Question:
    """The same question of all states that the claim is about: more than the facts alone allow."""
    claimed = scene.premises({f"x:{v.tag}" for v in scene.rules.measured})
    state = {symbol[2:]: ends for symbol, ends in claimed.items()}
    return replace(
        asked,
        inputs={tag: ends for tag, ends in state.items() if tag not in asked.unseen},
        unseen={tag: ends for tag, ends in state.items() if tag in asked.unseen},
        hold_s=scene.plan.hold - scene.plan.delay,
        effect_delay_s=scene.plan.delay,
    )
