"""Guidance from the checker to the engine, on main's side: asked for beside a request, sent on as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from gateway.core.decision import Proposal, RegisterValue
from gateway.core.guidance import Decoding, PackedGuidance, Unguided
from gateway.core.ports import Guide
from gateway.core.tag import TagDefinition, TagId
from gateway.inference import messages
from gateway.inference.messages import Answer, Other

GUIDANCE_SHARE = 0.5  # of the time an answer has: after it, decoding begins without guidance


class Guiding:
    """The guidance of one proposal. Made where the request leaves; whoever made it closes it."""

    def __init__(
        self,
        guide: Guide | None,
        outputs: Sequence[TagDefinition],
        tell: Callable[[int, messages.Guide], None],
    ) -> None:
        """`tell` sends a message about the request of that number, which has left before."""
        self._tell = tell
        self._asked: asyncio.Task[PackedGuidance | Unguided] | None = None
        if guide is not None:
            order = tuple(output.id for output in outputs)
            self._asked = asyncio.create_task(_answered(guide, order), name="guidance")

    def until(self, now: float, due: float) -> float | None:
        """How long decoding waits for it, in monotonic seconds; None where nobody asked for any."""
        return None if self._asked is None else now + (due - now) * GUIDANCE_SHARE

    def belongs_to(self, number: int) -> None:
        """The request it is for has left, under this number."""
        if self._asked is not None:
            self._asked.add_done_callback(lambda asked: self._send(number, asked))

    def close(self) -> None:
        """Nobody needs it any more."""
        if self._asked is not None:
            self._asked.cancel()

    def _send(self, number: int, asked: asyncio.Task[PackedGuidance | Unguided]) -> None:
        if asked.cancelled():
            return
        found = asked.result()
        if isinstance(found, Unguided):
            self._tell(number, messages.Guide(because=found.because))
        else:
            self._tell(number, messages.Guide(packed=found))


def proposal_of(
    answer: Answer, outputs: Sequence[TagDefinition], by: str, digest: str, guide: Guide | None
) -> Proposal:
    """An answer in register values, by a model of that digest, and the others of its list behind it."""
    answers: tuple[Answer | Other, ...] = (answer, *answer.others)
    first, *others = (
        Proposal(
            values=tuple(
                RegisterValue(output.id, raw, output.engineering(raw))
                for output, raw in zip(outputs, each.raws, strict=True)
            ),
            by=by,
            model_digest=digest,
            confidence=each.confidence,
            masked_out={output.id: mass for output, mass in zip(outputs, each.masked_out, strict=False)},
        )
        for each in answers
    )
    return replace(first, decoding=decoding_of(answer, first, guide), others=tuple(others))


def decoding_of(answer: Answer, proposal: Proposal, guide: Guide | None) -> Decoding | None:
    """How an answer was decoded; None where nobody asked for guidance."""
    if guide is None:
        return None
    return Decoding(guided=answer.guided, because=answer.because, masked_out=proposal.masked_out)


async def _answered(guide: Guide, order: tuple[TagId, ...]) -> PackedGuidance | Unguided:
    return await guide(order)
